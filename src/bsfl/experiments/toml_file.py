"""The first checks of a scenario file: size, encoding, nesting and numbers."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bsfl.errors import InvalidInput, reason

MAX_FILE_BYTES = 1_000_000
"""Size of a scenario file."""
MAX_DEPTH = 20
"""Tables and lists within each other."""
TOO_DEEP = f"more than {MAX_DEPTH} levels of nesting"


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file after check_values, or say why there is none."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"cannot be read: {reason(error)}") from None
    if len(text) > MAX_FILE_BYTES:
        raise InvalidInput(f"a scenario has at most {MAX_FILE_BYTES:,} bytes")
    try:
        content = tomllib.loads(text.decode())
    except RecursionError:
        raise InvalidInput(TOO_DEEP) from None
    except ValueError as error:  # of TOML, UTF-8, or a number of more digits than Python reads
        raise InvalidInput(f"not a TOML file: {error}") from None
    check_values(content)
    return content


def check_values(value: object, key: str = "", depth: int = MAX_DEPTH) -> None:
    """Check what holds for every value: numbers of 64 bits, no NUL, no endless nesting."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidInput(f"{key} must be a whole number of 64 bits, got a larger one")
    if isinstance(value, str) and "\0" in value:  # no file and no module has such a name
        raise InvalidInput(f"{key} must not hold the character NUL")
    inside: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list | tuple):
        inside = enumerate(value)
    for name, one in inside:
        if depth == 0:
            raise InvalidInput(TOO_DEEP)
        word = name if isinstance(name, str) and name.isprintable() else repr(name)
        check_values(one, f"{key}.{word}" if key else word, depth - 1)
