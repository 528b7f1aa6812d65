"""Confidence radii: how much faster than its mean a client may still turn out to be."""

from typing import Protocol

import numpy as np

from bsfl.records import FloatArray, IntArray


class Radius(Protocol):
    """Any function with this signature can be BSFL's `radius`."""

    def __call__(self, count: IntArray, *, t: int, m: int) -> FloatArray:
        """Return the radius of clients observed `count` times after t rounds of m clients."""
        ...


def hoeffding_radius(count: IntArray, *, t: int, scale: float) -> FloatArray:
    r"""Return sqrt(scale * ln t / c), infinite for a client that was never observed.

    >>> hoeffding_radius(np.array([0, 1, 4]), t=1, scale=6.0)
    array([inf,  0.,  0.])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        radius = np.sqrt(scale * np.log(max(t, 1)) / count)
    return np.where(count == 0, np.inf, radius)


def paper_radius(count: IntArray, *, t: int, m: int) -> FloatArray:
    r"""Return sqrt((m + 1) ln t / c), the radius of the paper's ucb(k, t) (eq. update_ucb)."""
    return hoeffding_radius(count, t=t, scale=m + 1)


def no_radius(count: IntArray, *, t: int, m: int) -> FloatArray:
    """Return 0: trust the means as they are (infinite for a client never observed)."""
    return np.where(count == 0, np.inf, 0.0)


RADII: dict[str, Radius] = {"paper": paper_radius, "none": no_radius}
