"""The rules that settings and observations share, each with one message.

Every function returns the value it was given, so a check reads as an assignment, and raises
InvalidInput naming the rule and the value otherwise.
"""

import math
import operator
import sys
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from bsfl.errors import InvalidInput


def positive(name: str, value: float) -> float:
    """Return a finite number above zero."""
    if not (_is_number(value) and math.isfinite(value) and value > 0):
        raise InvalidInput(f"{name} must be a finite number above 0, got {value!r}")
    return float(value)


def finite(name: str, value: float) -> float:
    """Return a finite number."""
    if not (_is_number(value) and math.isfinite(value)):
        raise InvalidInput(f"{name} must be a finite number, got {value!r}")
    return float(value)


def at_least(name: str, value: float, low: float) -> float:
    """Return a finite number of at least `low`."""
    if not (_is_number(value) and math.isfinite(value) and value >= low):
        raise InvalidInput(f"{name} must be a finite number of at least {low:g}, got {value!r}")
    return float(value)


def between(name: str, value: float, low: float, high: float) -> float:
    """Return a number inside the closed interval [low, high]."""
    if not (_is_number(value) and low <= value <= high):
        raise InvalidInput(f"{name} must be between {low:g} and {high:g}, got {value!r}")
    return float(value)


def span(name: str, value: object) -> tuple[float, float]:
    """Return a range given as [low, high]."""
    if not (isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_number, value))):
        raise InvalidInput(f"{name} must be a range [low, high], got {value!r}")
    low, high = map(float, value)
    if not low <= high < math.inf:
        raise InvalidInput(f"{name} must be a range [low, high] with low <= high, got {value!r}")
    return low, high


def natural(name: str, value: SupportsIndex, low: int = 1) -> int:
    """Return a whole number of at least `low`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if number < low or isinstance(value, bool):
        raise InvalidInput(f"{name} must be a whole number of at least {low}, got {value!r}")
    return number


def _is_number(value: object) -> bool:
    """Return whether a value is a number that a float can hold."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return abs(int(value)) <= sys.float_info.max
    return isinstance(value, float | np.floating)


def numbers(name: str, values: object) -> npt.NDArray[np.float64]:
    """Return a copy of a one-dimensional collection of numbers that is not empty."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.zeros(0)
    if array.ndim != 1 or len(array) == 0:
        raise InvalidInput(f"{name} must be a list of numbers, got {values!r}")
    return array


def all_above_0(
    name: str, values: npt.NDArray[np.float64], high: float = math.inf
) -> npt.NDArray[np.float64]:
    """Return finite numbers above 0, and at most `high`."""
    wrong = ~((values > 0) & (values <= high) & np.isfinite(values))
    if wrong.any():
        limit = "above 0" if high == math.inf else f"above 0 and at most {high:g}"
        raise InvalidInput(f"{name} must be finite and {limit}, got {values[wrong][0]:g}")
    return values


def cohort_fits(cohort_size: int, n_clients: int) -> None:
    """Check that a fleet is large enough for a cohort."""
    if cohort_size > n_clients:
        raise InvalidInput(
            f"cohort_size must be between 1 and the {n_clients} clients of the fleet, "
            f"got {cohort_size}"
        )


def one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    """Check that a value is one of a few words."""
    if value not in known:
        raise InvalidInput(f"{name} must be one of {', '.join(known)}, got {value!r}")
