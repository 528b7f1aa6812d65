"""Confidence radii: how much faster than its mean a client may still turn out to be."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from bsfl.records import FloatArray, IntArray
from bsfl.registry import Registry

CUCB_SCALE = 1.5
VARIANCE_SCALE, RANGE_SCALE = 0.5, 0.15
"""Scales of the two terms of the Bernstein radius; UCB-V has 2 and 3, too wide for few answers."""

Counts = IntArray | FloatArray
Variance = Callable[[], FloatArray]


class Radius(Protocol):
    """Any function with this signature can be BSFL's `radius`."""

    def __call__(self, count: Counts, *, t: float, m: int, variance: Variance) -> FloatArray:
        """Return the radius of clients observed `count` times after t rounds of m clients.

        Args:
            count: Answers of each client; a fraction where old ones count less.
            t: Rounds that are remembered.
            m: Clients in a round.
            variance: Returns the variance of each client's speed, O(K), for those who want it.
        """


def hoeffding_radius(count: Counts, *, t: float, scale: float) -> FloatArray:
    r"""Return sqrt(scale * ln t / c), infinite for a client that was never observed.

    >>> hoeffding_radius(np.array([0, 1, 4]), t=1, scale=6.0)
    array([inf,  0.,  0.])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        radius = np.sqrt(scale * np.log(max(t, 1)) / count)
    return np.where(count == 0, np.inf, radius)


def paper_radius(count: Counts, *, t: float, m: int, variance: Variance) -> FloatArray:
    r"""Return sqrt((m + 1) ln t / c), the radius of the paper's ucb(k, t) (eq. update_ucb)."""
    return hoeffding_radius(count, t=t, scale=m + 1)


def cucb_radius(count: Counts, *, t: float, m: int, variance: Variance) -> FloatArray:
    r"""Return sqrt(1.5 ln t / c) (CUCB, Chen et al. 2013).

    The minimum of a cohort moves by no more than the largest error among its members, so one
    client's own confidence interval suffices, whatever the size of the cohort.
    """
    return hoeffding_radius(count, t=t, scale=CUCB_SCALE)


def bernstein_radius(count: Counts, *, t: float, m: int, variance: Variance) -> FloatArray:
    r"""Return sqrt(0.5 V ln t / c) + 0.15 ln t / c, the form of UCB-V (Audibert et al. 2009).

    Narrow for a client whose speed hardly varies. The last term covers the error of V itself.
    """
    log = np.log(max(t, 1.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        radius = np.sqrt(VARIANCE_SCALE * variance() * log / count) + RANGE_SCALE * log / count
    return np.where(count == 0, np.inf, radius)


def no_radius(count: Counts, *, t: float, m: int, variance: Variance) -> FloatArray:
    """Return 0: trust the means as they are (infinite for a client never observed)."""
    return np.where(count == 0, np.inf, 0.0)


RADII: Registry[Radius] = Registry(
    "radius",
    {"paper": paper_radius, "cucb": cucb_radius, "bernstein": bernstein_radius, "none": no_radius},
)
