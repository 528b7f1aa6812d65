"""Golden results: numbers of an earlier version, compared bit for bit.

Each part is a module with `CASES`, the names of its cases, and `compute(case)`, which returns what
is recorded as plain lists, numbers and strings.
"""

import sys
from pathlib import Path

_TESTS = Path(__file__).parents[1]
for _folder in (_TESTS, _TESTS / "integrations" / "flower"):  # where pytest finds the fake grid
    if str(_folder) not in sys.path:
        sys.path.append(str(_folder))
