"""Numbers and ids as a reader wants them."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl import validation
from bsfl.types import FloatArray, RoundRecord

GINI = "0: all equal, near 1: a few clients have all"
"""What a Gini coefficient says."""


def named(client: object) -> str:
    r"""Return an id as it is, or quoted and shortened where it would disturb a terminal.

    >>> named("phone-7"), named(12), named("a\nb")
    ('phone-7', '12', "'a\\nb'")
    """
    text = str(client) if not isinstance(client, int) else validation.short(client)
    plain = text.isprintable() and text == text.strip() and 0 < len(text) <= validation.WIDEST
    return text if plain else validation.short(client)


def figure(value: float) -> str:
    """Return a number with three significant digits.

    >>> [figure(x) for x in (41.26, 0.01234, 1234.5, 0.0)]
    ['41.3', '0.0123', '1,234', '0']
    """
    if not math.isfinite(value) or abs(value) >= 1e6 or 0 < abs(value) < 1e-4:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def seconds(middle: float | None, low: float | None = None, high: float | None = None) -> str:
    """Return a time, with its 80 % interval if given.

    >>> seconds(41.0, 30.2, 55.0), seconds(3.0), seconds(None)
    ('41 s (30.2 - 55)', '3 s', 'unknown')
    """
    if middle is None:
        return "unknown"
    wide = "" if low is None or high is None else f" ({figure(low)} - {figure(high)})"
    return f"{figure(middle)} s{wide}"


def ago(span_s: float) -> str:
    """Return a span of time in one unit.

    >>> ago(59.6), ago(600.0), ago(7300.0), ago(200000.0)
    ('60 s', '10 min', '2 h', '2 days')
    """
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if span_s >= 2 * size:
            return f"{span_s / size:.0f} {unit}"
    return f"{max(span_s, 0.0):.0f} s"


def optional(values: FloatArray) -> list[Any]:
    """Return numbers as plain lists, None where there is none.

    >>> optional(np.array([[1.5, np.nan]]))
    [[1.5, None]]
    """
    found: npt.NDArray[Any] = values.astype(object)
    found[np.isnan(values)] = None
    return found.tolist()  # type: ignore[no-any-return]


def results(record: RoundRecord) -> str:
    """Return what became of a cohort.

    >>> record = RoundRecord(round=3, cohort=("ann", "bob"), n_invited=2, n_available=9,
    ...     duration_s=41.0, n_fresh=1, n_timeouts=1, n_failed=0, n_late=0)
    >>> results(record)
    '1 of 2 responded in 41 s, 1 timed out'
    """
    text = f"{record.n_fresh or 0:,} of {len(record.cohort):,} responded"
    text += "" if record.duration_s is None else f" in {seconds(record.duration_s)}"
    others = ("timed out", record.n_timeouts), ("failed", record.n_failed), ("late", record.n_late)
    return text + "".join(f", {n:,} {how}" for how, n in others if n)
