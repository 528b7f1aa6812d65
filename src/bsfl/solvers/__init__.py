"""Solvers that select the cohort with the largest energy, from arrays to indices.

All take (u, g, m, alpha, rng), so that a policy can use any of them; SOLVERS lists them by name.
"""

from functools import partial
from typing import Protocol

from bsfl._core.registry import Registry
from bsfl.solvers.annealing import PROPOSALS, AnnealingPath, Proposal, anneal, solve_annealing
from bsfl.solvers.exact import energy, solve_exact
from bsfl.solvers.exhaustive import TooManyCohorts, solve_exhaustive
from bsfl.types import FloatArray, IntArray, Rng

__all__ = [
    "PROPOSALS",
    "SOLVERS",
    "AnnealingPath",
    "Proposal",
    "Solver",
    "TooManyCohorts",
    "anneal",
    "energy",
    "solve_annealing",
    "solve_exact",
    "solve_exhaustive",
]

ANNEALING_STEPS = 5000
"""Steps of the annealing solvers in SOLVERS."""


class Solver(Protocol):
    """Any function with this signature can be BSFL's `solver`."""

    def __call__(self, u: FloatArray, g: FloatArray, m: int, alpha: float, rng: Rng) -> IntArray:
        """Return m distinct indices."""


_anneal = partial(solve_annealing, steps=ANNEALING_STEPS)

SOLVERS: Registry[Solver] = Registry(
    "solver",
    {
        "exact": lambda u, g, m, alpha, rng: solve_exact(u, g, m, alpha),
        "exhaustive": lambda u, g, m, alpha, rng: solve_exhaustive(u, g, m, alpha),
        **{f"annealing-{name}": partial(_anneal, proposal=name) for name in PROPOSALS},
    },
)
