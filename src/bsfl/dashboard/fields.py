"""The fields of a journal's line, checked for type, length and range before anything is counted."""

import math
from typing import Any

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.monitoring.journal import Entry
from bsfl.types import OUTCOMES, FloatArray, IntArray
from bsfl.validation import LATENCY_RANGE, short

MAX_ROUND, MAX_NUMBER = 2**31 - 1, 1e300
MAX_SPAN_S, MAX_TIME = LATENCY_RANGE[1], 1e11
"""The longest span of time, and the last second since 1970 that a calendar can show."""
NUMBER = (int, float)
PLACES = {outcome: place for place, outcome in enumerate(OUTCOMES)}


class Fields:
    """Reads the fields of an entry; a wrong one raises InvalidInput with its name."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    def get(self, name: str, kind: type) -> Any:
        """Return a field of one type."""
        value = self._entry.get(name)
        if type(value) is not kind:
            raise InvalidInput(f"{name} must be of type {kind.__name__}, got {short(value)}")
        return value

    def count(self, name: str) -> int:
        """Return a number of rounds or clients."""
        value: int = self.get(name, int)
        if not 0 <= value <= MAX_ROUND:
            raise InvalidInput(f"{name} must be between 0 and {MAX_ROUND}, got {short(value)}")
        return value

    def seconds(self, name: str, high: float = MAX_SPAN_S) -> float:
        """Return a span or a point of time, NaN for None."""
        value = self._entry.get(name)
        if value is None:
            return math.nan
        if type(value) not in NUMBER or not 0.0 <= value <= high:
            raise InvalidInput(f"{name} must be between 0 and {high:g} s, got {short(value)}")
        return float(value)

    def clients(self, name: str) -> list[Any]:
        """Return distinct ids."""
        ids: list[Any] = self.get(name, list)
        if not set(map(type, ids)) <= {int, str}:
            raise InvalidInput(f"{name} must be a list of texts or whole numbers")
        if len(set(ids)) < len(ids):
            raise InvalidInput(f"{name} holds a client twice")
        return ids

    def numbers(self, name: str, n: int, low: float = -math.inf) -> FloatArray:
        """Return n finite numbers, at least `low`, NaN for None."""
        values = self._list(name, n)
        if not set(map(type, values)) <= {int, float, type(None)}:
            raise InvalidInput(f"{name} must be a list of numbers")
        try:
            found = np.array(values, dtype=np.float64)
        except OverflowError:
            raise InvalidInput(f"{name} holds a number that is too large") from None
        if not np.all(np.isnan(found) | (found >= low) & np.isfinite(found)):
            raise InvalidInput(f"{name} must hold finite numbers of at least {low:g}")
        return found

    def outcomes(self, n: int) -> IntArray:
        """Return the places of n outcomes in OUTCOMES."""
        words = self._list("outcome", n)
        if not set(map(type, words)) <= {str} or not set(words) <= PLACES.keys():
            raise InvalidInput(f"outcome must be a list of {', '.join(OUTCOMES)}")
        return np.array([PLACES[word] for word in words], dtype=np.int64)

    def part(self, name: str) -> "Fields | None":
        """Return the fields of an object that may be left out."""
        return Fields(self.get(name, dict)) if name in self._entry else None

    def by_name(self, name: str) -> dict[str, float]:
        """Return an object of finite numbers."""
        found: dict[str, Any] = self.get(name, dict)
        for key, value in found.items():
            if type(value) not in NUMBER or not abs(value) <= MAX_NUMBER:
                raise InvalidInput(f"{name} must hold finite numbers, got {short(value)} for {key}")
        return found

    def _list(self, name: str, n: int) -> list[Any]:
        values: list[Any] = self.get(name, list)
        if len(values) != n:
            raise InvalidInput(f"{name} must have {n:,} values, got {len(values):,}")
        return values
