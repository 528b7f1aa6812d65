"""Every cohort there is: the oracle for small problems."""

from itertools import chain, combinations
from math import comb

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.records import FloatArray, IntArray
from bsfl.solvers.problem import check_problem

MAX_PLACES = 50_000_000
"""Clients in all cohorts together that are held in memory."""


def solve_exhaustive(u: FloatArray, g: FloatArray, m: int, alpha: float) -> IntArray:
    """Return a cohort that maximises min_S u + (alpha / m) sum_S g by trying all of them.

    Among cohorts of equal value the first in lexicographic order is returned. Costs (K choose m)
    evaluations; refuses what memory would not hold.
    """
    u, g = check_problem(u, g, m, alpha)
    n_cohorts = comb(len(u), m)
    if n_cohorts * m > MAX_PLACES:
        raise InvalidInput(
            f"exhaustive search is limited to {MAX_PLACES // m:,} cohorts of {m}, "
            f"{len(u)} choose {m} has {n_cohorts:,}; use solve_exact"
        )
    cohorts = np.fromiter(
        chain.from_iterable(combinations(range(len(u)), m)), np.int64, n_cohorts * m
    ).reshape(n_cohorts, m)
    values = u[cohorts].min(axis=1) + alpha * g[cohorts].mean(axis=1)
    return np.asarray(cohorts[np.argmax(values)])
