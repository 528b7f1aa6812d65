"""Fairness of participation: counts, Gini coefficient, Lorenz curve, capped shares."""

import numpy as np

from bsfl.types import FloatArray, IntArray


def gini(counts: IntArray | FloatArray) -> float:
    r"""Return the Gini coefficient of participation: 0 if all are equal, near 1 if a few have all.

    sum_i (2 i - K - 1) x_(i) / (K sum x) over the sorted counts.

    >>> gini(np.array([5, 5, 5, 5])), gini(np.array([0, 0, 0, 8]))
    (0.0, 0.75)
    """
    total, k = float(np.sum(counts)), len(counts)
    if total == 0:
        return 0.0
    return float(np.sum((2 * np.arange(1, k + 1) - k - 1) * np.sort(counts)) / (k * total))


def lorenz(counts: IntArray | FloatArray) -> FloatArray:
    """Return the share of all selections that the least selected 0, 1, 2, ... K clients have.

    >>> lorenz(np.array([3, 1]))
    array([0.  , 0.25, 1.  ])
    """
    summed = np.concatenate([[0.0], np.cumsum(np.sort(counts))])
    return np.asarray(summed / max(summed[-1], 1.0))


def participation(cohorts: IntArray, n_clients: int) -> IntArray:
    """Return how often each client was selected; entries below 0 are empty places."""
    return np.bincount(cohorts[cohorts >= 0].ravel(), minlength=n_clients)


def capped_shares(weights: FloatArray, total: float) -> FloatArray:
    r"""Return r_k = min(1, lambda w_k) with lambda such that sum r = total.

    A proportional share total * w_k / sum w may exceed 1. The shares of the heaviest clients are
    fixed at 1 and the others divide the remainder in proportion; all positive weights get 1 if
    there are no more than `total` of them. Without a positive weight, all shares are 0.

    >>> capped_shares(np.array([6.0, 1.0, 1.0]), 2.0)
    array([1. , 0.5, 0.5])
    """
    if not np.any(weights):
        return np.zeros(len(weights))
    weights = weights / weights.max()
    shares: FloatArray = weights * (total / weights.sum())
    if shares.max() <= 1.0:
        return shares
    if np.count_nonzero(weights) <= total:
        return (weights > 0).astype(np.float64)
    heavy_first = np.sort(weights)[::-1]
    rest = np.cumsum(heavy_first[::-1])[::-1]  # weight of the i-th heaviest and all lighter ones
    n_heavier = np.arange(len(weights))
    n_capped = int(np.argmax((total - n_heavier) * heavy_first <= rest))
    with np.errstate(over="ignore"):
        factor = (total - n_capped) / rest[n_capped]
        if np.isfinite(factor):
            return np.asarray(np.minimum(1.0, weights * factor))
        return np.asarray(np.minimum(1.0, weights / rest[n_capped] * (total - n_capped)))
