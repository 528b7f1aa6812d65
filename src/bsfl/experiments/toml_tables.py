"""Checks of tables in a scenario file, and where a message says that the mistake is."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from bsfl._core.registry import REQUIRED, nearest, settings_of
from bsfl.errors import InvalidInput

Table = dict[str, Any]


def build(kind: Callable[..., Any], table: Table) -> Any:
    """Return a record made from a table after checking its keys."""
    settings = settings_of(kind)
    known_keys(table, settings)
    required(table, (name for name, default in settings.items() if default is REQUIRED))
    return kind(**table)


def check_table(table: object) -> None:
    """Check that something is a table."""
    if not isinstance(table, dict):
        raise InvalidInput(f"expected a table, got {table!r}")


def known_keys(table: Table, known: Iterable[str]) -> None:
    """Check that a table has no other keys than these."""
    check_table(table)
    for key in table:
        if key not in known:
            raise InvalidInput(f"unknown key {key!r}{nearest(key, known)}")


def required(table: Table, keys: Iterable[str]) -> None:
    """Check that a table has these keys."""
    check_table(table)
    for key in keys:
        if key not in table:
            raise InvalidInput(f"missing key {key!r}")


@contextmanager
def at(place: str) -> Iterator[None]:
    """Put the place in front of every message about bad input, and behind every other error."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{place}: {error}") from None
    except Exception as error:  # in a policy, a task or a model of latencies of the user's own
        error.add_note(f"in {place}")
        raise
