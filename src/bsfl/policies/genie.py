"""The genie: BSFL's objective with the truth in place of the index."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bsfl import checks
from bsfl.estimation.averages import Selections
from bsfl.generalization import DEFICITS, Deficit, signed_power
from bsfl.records import FloatArray, IntArray, Report, Rng, RoundContext
from bsfl.requirements import keep_known, must_cover
from bsfl.solvers import SOLVERS, Solver


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Genie:
    r"""Choose as BSFL does, told the true speeds that no server can know.

    Choose the cohort that maximises min_S mu_k + (alpha / m) sum_S g_k (eq. Gt).

    Not a policy anyone can run: it is told the true mean speeds. It marks how well the others
    could do.

    Attributes:
        mean_speed: True mean speed mu_k = E[tau_min / tau_k] of every client, by dense index.
        alpha: Weight of generalization against speed.
        beta, generalization, solver: As for BSFL.
    """

    knows_truth: ClassVar[bool] = True
    example: ClassVar = {"mean_speed": np.linspace(0.1, 0.9, 40), "alpha": 3.0}

    mean_speed: FloatArray = field(repr=False)
    alpha: float = 1.0
    beta: int = 1
    generalization: str | Deficit = "equal"
    solver: str | Solver = "exact"

    def __post_init__(self) -> None:
        keep_known(self, "mean_speed", optional=False)
        checks.at_least("alpha", self.alpha, 0.0)
        checks.natural("beta", self.beta)
        DEFICITS.resolve("generalization", self.generalization)
        SOLVERS.resolve("solver", self.solver)

    def init(self, n_clients: int) -> Selections:
        must_cover(self, n_clients, "mean_speed")
        return Selections.of(n_clients)

    def select(self, state: Selections, context: RoundContext, rng: Rng) -> IntArray:
        available, m = context.available, context.cohort_size
        if len(available) <= m:
            return available
        deficit = DEFICITS.resolve("generalization", self.generalization)
        solve = SOLVERS.resolve("solver", self.solver)
        g = signed_power(deficit(available, state, context), self.beta)
        return available[solve(u=self.mean_speed[available], g=g, m=m, alpha=self.alpha, rng=rng)]

    def observe(self, state: Selections, context: RoundContext, report: Report) -> None:
        state.book(report)
