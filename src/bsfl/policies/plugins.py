"""Settings that may be a name or a function."""

from collections.abc import Mapping
from typing import TypeVar

from bsfl.errors import InvalidInput

Plugin = TypeVar("Plugin")


def plugin(setting: str, choice: str | Plugin, known: Mapping[str, Plugin]) -> Plugin:
    """Return the function a setting stands for."""
    if not isinstance(choice, str):
        if not callable(choice):
            raise InvalidInput(f"{setting} must be a name or a function, got {choice!r}")
        return choice
    if choice not in known:
        raise InvalidInput(
            f"{setting} must be one of {', '.join(known)} or a function, got {choice!r}"
        )
    return known[choice]
