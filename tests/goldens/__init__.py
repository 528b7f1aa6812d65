"""Golden results: numbers frozen before the sources were rewritten, compared bit for bit.

Each part is a module with `CASES`, the names of its cases, and `compute(case)`, which returns what
was recorded as plain lists, numbers and strings. What a part calls of bsfl is in one small adapter
at the top of its module; nothing else there depends on the API.
"""

import sys
from pathlib import Path

_TESTS = Path(__file__).parents[1]
for _folder in (_TESTS, _TESTS / "integrations" / "flower"):  # where pytest finds the fake grid
    if str(_folder) not in sys.path:
        sys.path.append(str(_folder))
