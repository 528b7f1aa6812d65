"""Means over seeds with 95 % intervals."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl.records import FloatArray

# Student's t at 97.5 % for 1, 2, ... degrees of freedom
_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds and its 95 % interval; with one seed the interval is unknown (NaN)."""

    mean: float
    low: float
    high: float

    def as_json(self) -> dict[str, float | None]:
        """Return plain numbers, None for what is not known."""
        return {k: v if math.isfinite(v) else None for k, v in asdict(self).items()}


THREE_DIGITS = "three digits"
"""Form of a number of any size: as many decimals as give the mean three digits, and no exponent."""


def shown(
    value: Mapping[str, float | None] | None, form: str, *, with_interval: bool = True
) -> str:
    """Return an interval from a summary as text, empty where it is not known.

    >>> shown({"mean": 2.0, "low": 1.5, "high": 2.5}, ".2f")
    '2.00 ± 0.50'
    >>> shown({"mean": 0.1334, "low": 0.1317, "high": 0.1351}, THREE_DIGITS)
    '0.133 ± 0.002'
    """
    if value is None or value["mean"] is None:
        return ""
    if form == THREE_DIGITS:
        form = f",.{_decimals(value['mean'])}f"
    if not with_interval or value["high"] is None:
        return format(value["mean"], form)
    return f"{value['mean']:{form}} ± {value['high'] - value['mean']:{form}}"


def _decimals(mean: float) -> int:
    """Return how many decimals give a number three digits.

    >>> [_decimals(x) for x in (0.0, 0.0123, 1.5, 99.0, 1234.0)]
    [2, 4, 2, 1, 0]
    """
    return max(0, 2 - math.floor(math.log10(abs(mean)))) if mean else 2


def seeds_in_words(n: int, more: str = "") -> str:
    """Return "1 seed", or the number with what belongs to several."""
    return "1 seed" if n == 1 else f"{n} seeds{more}"


def interval(values: npt.ArrayLike) -> Interval:
    """Return the mean of a few values and its 95 % Student interval.

    >>> interval(np.array([1.0, 2.0, 3.0])).high
    4.484...
    """
    mean, half = (float(x) for x in band(np.asarray(values, dtype=np.float64)))
    return Interval(mean, mean - half, mean + half)


def band(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and half width of the 95 % interval along the first axis (the seeds)."""
    n = len(values)
    mean = np.asarray(values.mean(axis=0))
    if n < 2:
        return mean, np.full_like(mean, np.nan)
    quantile = _STUDENT[n - 2] if n - 2 < len(_STUDENT) else 1.96 + 2.4 / (n - 1)
    with np.errstate(invalid="ignore"):  # a diverged run has no spread
        return mean, np.asarray(quantile * values.std(axis=0, ddof=1) / math.sqrt(n))


def cells_of(row: Mapping[str, Any]) -> list[str]:
    """Return a row of names and intervals as text.

    >>> cells_of({"policy": "random", "time": {"mean": 1234.5, "low": 1230.0, "high": 1239.0}})
    ['random', '1,234 ± 4']
    """

    def text(value: Any) -> str:
        if isinstance(value, str):
            return value
        size = abs(value["mean"]) if value and value["mean"] is not None else 0.0
        forms = ((100.0, ",.0f"), (10.0, ".1f"), (1.0, ".2f"), (0.0, ".3f"))
        return shown(value, next(form for low, form in forms if size >= low)) or "–"

    return [text(value) for value in row.values()]


def markdown_table(rows: list[dict[str, Any]]) -> str:
    """Return rows of names and intervals as Markdown."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(cells_of(row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def at_same_gini(front: Iterable[tuple[float, float]], uneven: float) -> float:
    """Return the time on a front of (time, Gini) at a Gini, beyond its ends that of the end.

    A point that another beats in both is no part of the front.

    >>> at_same_gini([(10.0, 0.1), (4.0, 0.5), (6.0, 0.7)], 0.3)
    7.0
    """
    points = sorted((g, time_s) for time_s, g in front)
    best = np.minimum.accumulate([time_s for _, time_s in points])
    return float(np.interp(uneven, [g for g, _ in points], best))
