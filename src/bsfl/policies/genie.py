"""The genie of the paper, an oracle: BSFL's objective with the true mean speeds."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bsfl import validation
from bsfl.estimators.generalization import DEFICITS, Deficit, generalization_term
from bsfl.policy import Policy, check_covers, freeze_arrays
from bsfl.solvers import SOLVERS, Solver
from bsfl.types import FloatArray, IntArray, Rng, RoundContext


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Genie(Policy):
    r"""Select as BSFL does, given the true mean speeds, which no server can know.

    Select the cohort that maximises min_S mu_k + (alpha / m) sum_S g_k (eq. Gt).

    It is an oracle: the upper bound for policies that learn, from which their regret is counted.

    >>> from bsfl import Scheduler
    >>> policy = Genie(mean_speed=[0.9, 0.2, 0.5], alpha=0.0)
    >>> Scheduler(policy, cohort_size=2).select(["ann", "bob", "cem"])
    ['ann', 'cem']

    Attributes:
        mean_speed: True mean speed mu_k = E[tau_min / tau_k] of every client, by dense index.
        alpha: Weight of generalization against speed.
        beta, generalization, solver: As for BSFL.
    """

    is_oracle: ClassVar[bool] = True
    example: ClassVar = {"mean_speed": np.linspace(0.1, 0.9, 40), "alpha": 3.0}

    mean_speed: FloatArray = field(repr=False)
    alpha: float = 1.0
    beta: int = 1
    generalization: str | Deficit = "equal"
    solver: str | Solver = "exact"

    def __post_init__(self) -> None:
        freeze_arrays(self, "mean_speed", optional=False)
        validation.at_least("alpha", self.alpha, 0.0)
        validation.natural("beta", self.beta)
        DEFICITS.resolve("generalization", self.generalization)
        SOLVERS.resolve("solver", self.solver)

    def init(self, n_clients: int) -> None:
        check_covers(self, n_clients, "mean_speed")

    def select(self, state: None, context: RoundContext, rng: Rng) -> IntArray:
        available, m = context.available, context.n_invited
        if len(available) <= m:
            return available
        solve = SOLVERS.resolve("solver", self.solver)
        g = generalization_term(self.generalization, context, self.beta)
        return available[solve(u=self.mean_speed[available], g=g, m=m, alpha=self.alpha, rng=rng)]
