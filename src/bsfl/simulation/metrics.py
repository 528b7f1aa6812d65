"""What a run amounts to: time, participation, growth of regret."""

import numpy as np

from bsfl.records import FloatArray, IntArray


def lorenz(counts: IntArray | FloatArray) -> FloatArray:
    """Return the share of all selections that the least chosen 0, 1, 2, ... K clients have.

    >>> lorenz(np.array([3, 1]))
    array([0.  , 0.25, 1.  ])
    """
    summed = np.concatenate([[0.0], np.cumsum(np.sort(counts))])
    shares: FloatArray = summed / max(summed[-1], 1.0)
    return shares


def participation(cohorts: IntArray, n_clients: int) -> IntArray:
    """Return how often each client was chosen; entries below 0 are empty places."""
    return np.bincount(cohorts[cohorts >= 0].ravel(), minlength=n_clients)


def growth_exponent(regret: FloatArray, first: int, last: int) -> float:
    """Return the slope of log cumulative regret against log rounds between two rounds.

    1 for linear growth, towards 0 for logarithmic growth.

    >>> round(growth_exponent(3.0 * np.arange(1, 101) ** 0.5, 10, 100), 6)
    0.5
    """
    last = min(last, len(regret))
    if first >= last:
        return float("nan")
    rounds = np.unique(np.geomspace(first, last, 50).round().astype(np.int64))
    rounds = rounds[regret[rounds - 1] > 0]
    if len(rounds) < 2:
        return float("nan")
    slope, _ = np.polyfit(np.log(rounds), np.log(regret[rounds - 1]), 1)
    return float(slope)
