"""Means over seeds with 95 % intervals."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from bsfl.extras import optional_module
from bsfl.types import FloatArray


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds and its 95 % interval; with one seed the interval is unknown (NaN)."""

    mean: float
    low: float
    high: float

    def as_json(self) -> dict[str, float | None]:
        """Return plain numbers, None for what is not known."""
        return {k: v if math.isfinite(v) else None for k, v in asdict(self).items()}

    def text(self, form: str = "", *, wide: bool = True) -> str:
        """Return the mean and half of the interval, empty where the mean is not known.

        Without a form the mean has three digits, and no more than three decimals.

        >>> Interval(2.0, 1.5, 2.5).text(".1f"), Interval(1234.5, 1230.0, 1239.0).text()
        ('2.0 ± 0.5', '1,234 ± 4')
        >>> Interval(0.1334, 0.1317, 0.1351).text(), Interval(0.0, 0.0, 0.0).text(wide=False)
        ('0.133 ± 0.002', '0.00')
        """
        if not math.isfinite(self.mean):
            return ""
        digits = 1 + math.floor(math.log10(abs(self.mean))) if self.mean else 1
        form = form or f",.{min(max(3 - digits, 0), 3)}f"
        half = self.high - self.mean
        return f"{self.mean:{form}}" + (f" ± {half:{form}}" if wide and math.isfinite(half) else "")


def seeds_in_words(n: int, more: str = "") -> str:
    """Return "1 seed", or the number with what belongs to several."""
    return "1 seed" if n == 1 else f"{n} seeds{more}"


def interval(values: npt.ArrayLike) -> Interval:
    """Return the mean of a few values and its 95 % confidence interval.

    >>> interval([1.0, 2.0, 3.0]).high
    4.484...
    """
    mean, half = (float(x) for x in band(np.asarray(values, dtype=np.float64)))
    return Interval(mean, mean - half, mean + half)


def prediction_interval(values: npt.ArrayLike) -> Interval:
    """Return the mean of a few values and the 95 % prediction interval of the next value.

    It is sqrt(n + 1) times as wide as the confidence interval of the mean.

    >>> prediction_interval([1.0, 2.0, 3.0]).high
    6.968...
    """
    confidence = interval(values)
    half = (confidence.high - confidence.mean) * math.sqrt(np.size(values) + 1)
    return Interval(confidence.mean, confidence.mean - half, confidence.mean + half)


def ratio_interval(values: npt.ArrayLike) -> Interval:
    """Return the geometric mean of ratios, and the 95 % prediction interval of the next one.

    Both are computed on the log scale, so no end is negative.

    >>> ratio_interval([0.5, 2.0]).mean, ratio_interval([0.1, 0.2, 0.4]).low
    (1.0, 0.0063...)
    """
    logs = prediction_interval(np.log(np.asarray(values, dtype=np.float64)))
    return Interval(*np.exp([logs.mean, logs.low, logs.high]).tolist())


def count_interval(values: npt.ArrayLike) -> Interval:
    """Return the mean of counts, or of multiples of them, and the 95 % prediction interval.

    The interval is computed on the scale of the square root, on which counts vary alike whatever
    their mean is, and which has room for 0; no end is negative.

    >>> count_interval([1.0, 1.0]), count_interval([0.0, 0.0, 1.0]).low
    (Interval(mean=1.0, low=1.0, high=1.0), 0.0)
    """
    numbers = np.asarray(values, dtype=np.float64)
    roots = prediction_interval(np.sqrt(numbers))
    low = roots.low if math.isnan(roots.low) else max(roots.low, 0.0)
    return Interval(float(numbers.mean()), low**2, roots.high**2)


def significantly_best(values: Mapping[int, FloatArray], *, better: str | None) -> int | None:
    """Return which of several sets of numbers, one for each seed, is significantly the best.

    The 95 % interval of its difference to each other set, seed by seed, excludes 0. None: no set
    is, there is one seed, or there is no other set.

    >>> significantly_best({0: np.array([1.0, 2.0]), 1: np.array([5.0, 6.1])}, better="less")
    0
    """
    if better is None or len(values) < 2:
        return None
    sign = 1.0 if better == "less" else -1.0
    first = min(values, key=lambda key: sign * float(values[key].mean()))
    for key, others in values.items():
        if key != first and not interval(sign * (others - values[first])).low > 0.0:
            return None
    return first


def band(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and half width of the 95 % Student interval along the first axis (the seeds)."""
    n = len(values)
    mean = np.asarray(values.mean(axis=0))
    if n < 2:
        return mean, np.full_like(mean, np.nan)
    quantile = optional_module("scipy.special").stdtrit(n - 1, 0.975)
    with np.errstate(invalid="ignore"):  # a diverged run has no spread
        return mean, np.asarray(quantile * values.std(axis=0, ddof=1) / math.sqrt(n))


def at_same_gini(front: Iterable[tuple[float, float]], uneven: float) -> float:
    """Return the time on a front of (time, Gini) at a Gini, beyond its ends that of the end.

    A point that another beats in both is no part of the front.

    >>> at_same_gini([(10.0, 0.1), (4.0, 0.5), (6.0, 0.7)], 0.3)
    7.0
    """
    points = sorted((g, time_s) for time_s, g in front)
    best = np.minimum.accumulate([time_s for _, time_s in points])
    return float(np.interp(uneven, [g for g, _ in points], best))
