"""The rules that settings and observations share, each with one message.

Every function returns the value it was given, so a check reads as an assignment, and raises
InvalidInput naming the rule and the value otherwise.
"""

import math
import operator
import os
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from bsfl.errors import InvalidInput

LARGEST = 10**15
"""Largest whole number that a setting may be; doubles count this far one by one."""
LATENCY_RANGE = 1e-9, 1e12
"""Seconds that a latency can be; beyond, a unit was mistaken."""
LARGEST_FLOAT = 1e100
"""Largest number that a setting may be, so that its square is finite."""
MAX_OVER_SELECTION = 1e6
"""Largest over-selection, so that the number of invitations can be saved."""
LONGEST_LINE = 300
"""Characters of a message that another message quotes."""
WIDEST = 60
"""Characters of a value that a message quotes."""


def positive(name: str, value: float) -> float:
    """Return a finite number above zero."""
    return _number(
        name, value, _is_number(value) and 0 < value < math.inf, "a finite number above 0"
    )


def finite(name: str, value: float) -> float:
    """Return a finite number."""
    return _number(name, value, _is_number(value) and math.isfinite(value), "a finite number")


def at_least(name: str, value: float, low: float) -> float:
    """Return a finite number of at least `low`."""
    is_fine = _is_number(value) and low <= value < math.inf
    return _number(name, value, is_fine, f"a finite number of at least {low:g}")


def between(name: str, value: float, low: float, high: float) -> float:
    """Return a number inside the closed interval [low, high]."""
    is_fine = _is_number(value) and low <= value <= high
    return _number(name, value, is_fine, f"between {low:g} and {high:g}")


def _number(name: str, value: float, is_fine: bool, rule: str) -> float:
    if not is_fine:
        raise InvalidInput(f"{name} must be {rule}, got {short(value)}")
    return float(value)


def span(name: str, value: object) -> tuple[float, float]:
    """Return a range given as [low, high]."""
    if not (isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_number, value))):
        raise InvalidInput(f"{name} must be a range [low, high], got {short(value)}")
    low, high = map(float, value)
    if not low <= high < math.inf:
        raise InvalidInput(
            f"{name} must be a range [low, high] with low <= high, got {short(value)}"
        )
    return low, high


def natural(name: str, value: SupportsIndex, low: int = 1, high: int = LARGEST) -> int:
    """Return a whole number between `low` and `high`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if number < low or isinstance(value, bool):
        raise InvalidInput(f"{name} must be a whole number of at least {low}, got {short(value)}")
    if number > high:
        raise InvalidInput(
            f"{name} must be a whole number of at most {high:,}, got {short(number)}"
        )
    return number


def seconds(name: str, value: float) -> float:
    """Return a plausible time in seconds."""
    if type(value) is float and LATENCY_RANGE[0] <= value <= LATENCY_RANGE[1]:
        return value  # as most are
    return between(name, positive(name, value), *LATENCY_RANGE)


def short(value: object) -> str:
    """Return a value as a message can quote it.

    >>> short("x" * 1000)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    if isinstance(value, int) and abs(value) >= 10**WIDEST:  # printing it may be refused
        return f"a number of about {value.bit_length() * 0.30103:,.0f} digits"
    try:
        text = repr(value)
    except ValueError:  # such a number is inside
        return f"a {type(value).__name__} with a number of thousands of digits"
    return text if len(text) <= WIDEST else f"{text[:WIDEST]}..."


def in_short(error: BaseException) -> str:
    r"""Return what an error says in one line that can be read.

    >>> in_short(ValueError("first\n  second " + "x" * 1000))[:30]
    'first second xxxxxxxxxxxxxxxxx'
    """
    text = " ".join(str(error)[: 10 * LONGEST_LINE].split())
    return text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}..."


def _is_number(value: object) -> bool:
    """Return whether a value is a number of plausible size; infinity and NaN are numbers."""
    if type(value) is float:
        return not math.isfinite(value) or abs(value) <= LARGEST_FLOAT
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return abs(int(value)) <= LARGEST_FLOAT
    return isinstance(value, float | np.floating) and _is_number(float(value))


def numbers(name: str, values: object, *, min_length: int = 1) -> npt.NDArray[np.float64]:
    """Return a copy of a one-dimensional collection of at least so many numbers."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.array(np.nan)
    if array.ndim != 1 or len(array) < min_length:
        raise InvalidInput(f"{name} must be a list of numbers, got {short(values)}")
    return array


def all_above_0(
    name: str, values: npt.NDArray[np.float64], high: float = math.inf
) -> npt.NDArray[np.float64]:
    """Return finite numbers above 0, and at most `high`."""
    wrong = ~((values > 0) & (values <= high) & np.isfinite(values))
    if wrong.any():
        limit = (
            f"above 0 and at most {high:g}"
            if high <= 1 or high < values[wrong][0] < math.inf
            else "above 0"
        )
        raise InvalidInput(f"{name} must be finite and {limit}, got {values[wrong][0]:g}")
    return values


def cohort_fits(cohort_size: int, n_clients: int) -> None:
    """Check that there are enough clients for a cohort."""
    if cohort_size > n_clients:
        raise InvalidInput(
            f"cohort_size must be between 1 and the {n_clients} clients, got {cohort_size}"
        )


def over_selection(value: Any) -> Any:
    """Return how many clients are invited per target response: a number of at least 1, "auto"."""
    if isinstance(value, str):
        if value != "auto":
            raise InvalidInput(
                f'over_selection must be a number of at least 1 or "auto", got {short(value)}'
            )
        return value
    return between(
        "over_selection", at_least("over_selection", value, 1.0), 1.0, MAX_OVER_SELECTION
    )


def one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    """Check that a value is one of a few words."""
    if value not in known:
        raise InvalidInput(f"{name} must be one of {', '.join(known)}, got {short(value)}")


def folder(path: Path) -> Path:
    """Return a folder that is there or can be made."""
    there = next((one for one in (path, *path.parents) if os.path.exists(one)), path)
    if os.path.exists(there) and not os.path.isdir(there):
        raise InvalidInput(f"{there} is a file; a folder is needed")
    return path
