"""The problem every solver solves: maximise E(S) = min_S u + (alpha / m) sum_S g over |S| = m.

u is the index of a client's speed and may be +inf for a client never met; g is its generalization
value. (The paper's E(S) for annealing has the sum inside the minimum; a misplaced brace.) Trying
every cohort is the oracle for small problems.
"""

from itertools import chain, combinations
from math import comb

import numpy as np
import numpy.typing as npt

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.records import FloatArray, IntArray

MAX_PLACES = 50_000_000
"""Clients in all cohorts together that are held in memory."""


class TooManyCohorts(InvalidInput):
    """There are more cohorts than can be tried."""


def energy(u: FloatArray, g: FloatArray, cohort: IntArray, alpha: float) -> float:
    """Return E(cohort) = min u + (alpha / m) sum g.

    >>> energy(np.array([0.9, 0.2, 0.5]), np.array([0.0, 1.0, 3.0]), np.array([0, 2]), alpha=2.0)
    3.5
    """
    return float(u[cohort].min() + alpha * g[cohort].mean())


def check_problem(
    u: npt.ArrayLike, g: npt.ArrayLike, m: int, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return u and g as arrays after checking that the problem is well posed."""
    u, g = np.asarray(u, dtype=np.float64), np.asarray(g, dtype=np.float64)
    if u.ndim != 1 or u.shape != g.shape or len(u) == 0:
        raise InvalidInput(
            f"u and g must be one-dimensional, not empty and equally long, "
            f"got shapes {u.shape} and {g.shape}"
        )
    if checks.natural("m", m) > len(u):
        raise InvalidInput(f"m must be between 1 and the {len(u):,} clients, got {m}")
    checks.at_least("alpha", alpha, 0.0)
    if not u.min() > -np.inf:  # a NaN anywhere makes the minimum NaN
        raise InvalidInput("u must hold no NaN and no -inf")
    largest = np.maximum(g.max(), -g.min())
    if not np.isfinite(float(alpha) * float(largest) * len(g)):
        raise InvalidInput("g must hold finite numbers, also when multiplied by alpha")
    return u, g


def solve_exhaustive(u: FloatArray, g: FloatArray, m: int, alpha: float) -> IntArray:
    """Return a cohort that maximises min_S u + (alpha / m) sum_S g by trying all of them.

    Among cohorts of equal value the first in lexicographic order is returned. Costs (K choose m)
    evaluations; refuses what memory would not hold.
    """
    u, g = check_problem(u, g, m, alpha)
    n_cohorts = comb(len(u), m)
    if n_cohorts * m > MAX_PLACES:
        raise TooManyCohorts(
            f"exhaustive search is limited to {MAX_PLACES // m:,} cohorts of {m}, "
            f"{len(u)} choose {m} has {n_cohorts:,}; use solve_exact"
        )
    cohorts = np.fromiter(
        chain.from_iterable(combinations(range(len(u)), m)), np.int64, n_cohorts * m
    ).reshape(n_cohorts, m)
    values = u[cohorts].min(axis=1) + alpha * g[cohorts].mean(axis=1)
    return np.asarray(cohorts[np.argmax(values)])
