"""Scales of small charts: places in per cent, so that a chart fits any width."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bsfl.monitoring.words import figure
from bsfl.types import FloatArray

FAR = 4.0
"""Values so many times as high as nine of ten others are cut, so that those can be seen."""
STEPS = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Axis:
    """A linear or logarithmic scale from `low` to `high`."""

    low: float
    high: float
    is_log: bool = False

    def at(self, value: npt.ArrayLike) -> FloatArray:
        """Return where values are, in per cent of the axis; those beyond an end are at it.

        >>> Axis(1.0, 100.0, is_log=True).at([1.0, 10.0, 1e9]).tolist()
        [0.0, 50.0, 100.0]
        """
        value = np.clip(np.asarray(value, dtype=np.float64), self.low, self.high)
        if self.is_log:
            part = np.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return np.round(100.0 * part, 2)

    def ticks(self, unit: str = "") -> list[tuple[float, str]]:
        """Return places and labels.

        >>> Axis(0.0, 3.0).ticks(" s")
        [(0.0, '0 s'), (33.33, '1 s'), (66.67, '2 s'), (100.0, '3 s')]
        >>> [label for _, label in Axis(0.5, 70.0, is_log=True).ticks()]
        ['0.5', '1', '2', '5', '10', '20', '50']
        """
        if self.is_log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = STEPS[:1] if len(decades) > 4 else STEPS[:3]
            values = [step * 10.0**decade for decade in decades for step in steps]
        else:
            step = round_up((self.high - self.low) / 4)
            values = [step * i for i in range(math.floor(self.high / step + 1e-9) + 1)]
        inside = [x for x in values if self.low * 0.999 <= x <= self.high * 1.001]
        return [(float(self.at(x)), f"{figure(x)}{unit}") for x in inside]


def round_up(value: float) -> float:
    """Return the next number of the kind 1, 2, 5 times a power of ten.

    >>> [round_up(x) for x in (0.93, 1.0, 17.0, 61.0)]
    [1.0, 1.0, 20.0, 100.0]
    """
    power = 10.0 ** math.floor(math.log10(value) + 1e-9)
    return next(n * power for n in STEPS if n * power >= value * (1 - 1e-9))


def from_zero(values: FloatArray, least: float = 0.0) -> Axis:
    """Return an axis from 0 that shows values, without those that are far above most others."""
    known = values[np.isfinite(values)]
    top = float(known.max(initial=least))
    typical = float(np.quantile(known, 0.9)) if len(known) else 0.0
    if typical > 0:
        top = max(min(top, FAR * typical), least)
    top = top or 1.0
    step = round_up(top / 4)
    return Axis(0.0, step * math.ceil(top / step - 1e-9))


def logarithmic(values: FloatArray) -> Axis:
    """Return a logarithmic axis around positive values."""
    low, high = float(values.min()), float(values.max())
    if high < 3 * low:  # a narrow range would look as if it were wide
        low, high = low / 2, high * 2
    return Axis(low / 1.15, high * 1.15, is_log=True)
