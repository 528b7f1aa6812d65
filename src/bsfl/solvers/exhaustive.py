"""Exhaustive search, the reference for small problems."""

from itertools import chain, combinations
from math import comb

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.solvers.exact import check_problem
from bsfl.types import FloatArray, IntArray

MAX_PLACES = 50_000_000
"""Largest number of clients, in all cohorts together, that exhaustive search holds in memory."""


class TooManyCohorts(InvalidInput):
    """There are too many cohorts for exhaustive search."""


def solve_exhaustive(u: FloatArray, g: FloatArray, m: int, alpha: float) -> IntArray:
    """Return a cohort that maximises min_S u + (alpha / m) sum_S g by exhaustive search.

    Of cohorts with equal values the first in lexicographic order is returned. It costs
    (K choose m) evaluations, and raises TooManyCohorts if they would not fit in memory.
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
