"""Arrays in, indices out: three ways to choose the cohort with the largest energy.

A Solver takes (u, g, m, alpha, rng) so that a policy can use any of them; SOLVERS names them.
"""

from functools import partial
from typing import Protocol

from bsfl.records import FloatArray, IntArray, Rng
from bsfl.registry import Registry
from bsfl.solvers.annealing import PROPOSALS, AnnealingPath, Proposal, anneal, solve_annealing
from bsfl.solvers.choice import Choice, best_with, best_without
from bsfl.solvers.exact import solve_exact
from bsfl.solvers.problem import TooManyCohorts, energy, solve_exhaustive

__all__ = [
    "PROPOSALS",
    "SOLVERS",
    "AnnealingPath",
    "Choice",
    "Proposal",
    "Solver",
    "TooManyCohorts",
    "anneal",
    "best_with",
    "best_without",
    "energy",
    "solve_annealing",
    "solve_exact",
    "solve_exhaustive",
]

ANNEALING_STEPS = 5000
"""Steps of the annealing solvers that are chosen by name."""


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
