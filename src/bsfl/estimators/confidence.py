"""Confidence widths: by how much a client's true speed may exceed its observed mean."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from bsfl._core.registry import Registry
from bsfl.types import FloatArray, IntArray

CUCB_SCALE = 1.5
VARIANCE_SCALE, RANGE_SCALE = 0.5, 0.15
"""Scales of the two terms of the Bernstein width; UCB-V has 2 and 3, too wide for few responses."""

Counts = IntArray | FloatArray
Variance = Callable[[], FloatArray]


class ConfidenceWidth(Protocol):
    """Any function with this signature can be BSFL's `confidence_width`."""

    def __call__(self, count: Counts, *, t: float, m: int, variance: Variance) -> FloatArray:
        """Return the width of clients observed `count` times after t rounds of m clients.

        Args:
            count: Responses of each client; a fraction if old ones count less.
            t: Rounds that count.
            m: Clients in a round.
            variance: Returns the variance of each client's speed, O(K), for widths that use it.
        """


def hoeffding_width(count: Counts, *, t: float, scale: float) -> FloatArray:
    r"""Return sqrt(scale * ln t / c), infinite for a client that was never observed.

    >>> hoeffding_width(np.array([0, 1, 4]), t=1, scale=6.0)
    array([inf,  0.,  0.])
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        width = np.sqrt(scale * np.log(max(t, 1)) / count)
    return np.where(count == 0, np.inf, width)


def paper_width(count: Counts, *, t: float, m: int, variance: Variance) -> FloatArray:
    r"""Return sqrt((m + 1) ln t / c), the width of the paper's ucb(k, t) (eq. update_ucb)."""
    return hoeffding_width(count, t=t, scale=m + 1)


def cucb_width(count: Counts, *, t: float, m: int, variance: Variance) -> FloatArray:
    r"""Return sqrt(1.5 ln t / c) (CUCB, Chen et al. 2013).

    The minimum of a cohort moves by no more than the largest error among its members, so one
    client's own confidence interval suffices, whatever the size of the cohort.
    """
    return hoeffding_width(count, t=t, scale=CUCB_SCALE)


def bernstein_width(count: Counts, *, t: float, m: int, variance: Variance) -> FloatArray:
    r"""Return sqrt(0.5 V ln t / c) + 0.15 ln t / c, the form of UCB-V (Audibert et al. 2009).

    It is narrow for a client whose speed hardly varies. The last term covers the error of V itself.
    """
    log = np.log(max(t, 1.0))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        width = np.sqrt(VARIANCE_SCALE * variance() * log / count) + RANGE_SCALE * log / count
    return np.where(count == 0, np.inf, width)


def no_width(count: Counts, *, t: float, m: int, variance: Variance) -> FloatArray:
    """Return 0, no exploration of observed clients; infinite for a client never observed."""
    return np.where(count == 0, np.inf, 0.0)


CONFIDENCE_WIDTHS: Registry[ConfidenceWidth] = Registry(
    "confidence_width",
    {"paper": paper_width, "cucb": cucb_width, "bernstein": bernstein_width, "none": no_width},
)
