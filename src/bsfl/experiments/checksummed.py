"""JSON files with their own checksum, so that one flipped bit is detected.

The last key is the SHA-256 of all bytes before it. Earlier versions wrote files without one, and
without the first key, the format, so that a file that lost its checksum is not taken for one of
theirs.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from bsfl.errors import InvalidInput
from bsfl.persistence.atomic import replace_file

FORMAT = 2
"""1: without checksum, and without this number."""
_CHECKSUM = ',\n  "sha256": "{}"\n}}\n'
_CHECKSUMMED = re.compile(rb'(.*),\n  "sha256": "([0-9a-f]{64})"\n\}\n', re.DOTALL)


def write(path: Path, content: dict[str, Any]) -> None:
    """Write plain data as indented JSON with its checksum, in one step."""
    body = json.dumps({"format": FORMAT, **content}, indent=2).removesuffix("\n}").encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, body, _CHECKSUM.format(hashlib.sha256(body).hexdigest()).encode())


def read(path: Path, *, advice: str) -> dict[str, Any]:
    """Return the data in a file, with its format; raise InvalidInput with advice if damaged."""
    text = path.read_bytes()
    found = _CHECKSUMMED.fullmatch(text)
    try:
        if found and hashlib.sha256(found[1]).hexdigest().encode() == found[2]:
            checked: dict[str, Any] = json.loads(found[1] + b"\n}")
            return checked
        content = {} if found else json.loads(text)
    except (ValueError, RecursionError):
        content = {}
    if not isinstance(content, dict) or "format" in content or not content:
        raise InvalidInput(f"{path} is damaged; {advice}")
    return {"format": 1, **content}
