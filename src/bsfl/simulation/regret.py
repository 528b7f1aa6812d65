"""Regret against the true optimum, exact at any number of clients."""

from dataclasses import dataclass

import numpy as np

from bsfl import validation
from bsfl._core.registry import is_reference
from bsfl.errors import InvalidInput
from bsfl.estimators.generalization import DEFICITS, Deficit, generalization_term
from bsfl.simulation.clients import SimulatedClients
from bsfl.simulation.latency import Phase
from bsfl.solvers import energy, solve_exact
from bsfl.types import FloatArray, IntArray, RoundContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The reward that regret is measured in: min_S mu_k + (alpha / m) sum_S g_k.

    Attributes:
        alpha: Weight of generalization against speed.
        beta, generalization: As for BSFL.
    """

    alpha: float = 1.0
    beta: int = 1
    generalization: str | Deficit = "equal"

    def __post_init__(self) -> None:
        validation.at_least("alpha", self.alpha, 0.0)
        validation.natural("beta", self.beta)
        if not is_reference(self.generalization):  # which is executed by a run alone
            DEFICITS.resolve("generalization", self.generalization)
        if self.generalization == "loss":
            raise InvalidInput("regret cannot be measured with generalization = 'loss'")


class RegretMeter:
    r"""Compares each cohort of a policy with the oracle's, given the policy's own history.

    Regret of a round = max_S E(S) - E(cohort) with E(S) = min_S mu_k + (alpha / m) sum_S g_k, the
    true mean speeds mu and g from the policy's own selections (eqs. Gt, eq:regret). Never
    negative. The paper searches all cohorts for the maximum; the exact solver finds it at any K.
    """

    def __init__(self, objective: Objective, clients: SimulatedClients) -> None:
        self.objective, self.clients = objective, clients
        self._phase: Phase | None = None
        self._mean_speed: FloatArray = np.zeros(0)

    def regret(self, context: RoundContext, cohort: IntArray) -> float:
        """Return the regret of a cohort, given the counts before its round."""
        if len(cohort) == len(context.available):
            return 0.0
        clients, alpha = context.available, self.objective.alpha
        g = generalization_term(self.objective.generalization, context, self.objective.beta)
        mu = self.mean_speed(context.round)[clients]
        best = solve_exact(mu, g, len(cohort), alpha)
        chosen = np.searchsorted(clients, cohort)
        return max(0.0, energy(mu, g, best, alpha) - energy(mu, g, chosen, alpha))

    def mean_speed(self, t: int) -> FloatArray:
        """Return the true mean speeds in round t, computed anew only when they changed."""
        phase = self.clients.latency.phase(t)
        if phase != self._phase:
            self._phase, self._mean_speed = phase, self.clients.mean_speed(t)
        return self._mean_speed


def regret_bound(
    rounds: IntArray, *, n_clients: int, cohort_size: int, delta_max: float, delta_min: float
) -> FloatArray:
    r"""Return Delta_max K (4 (m + 1) ln n / Delta_min^2 + 1 + pi^2 / 3) (Theorem 1)."""
    if delta_min == 0:
        return np.full(len(rounds), np.inf)
    explored = 4 * (cohort_size + 1) * np.log(rounds) / delta_min**2
    return np.asarray(delta_max * n_clients * (explored + 1 + np.pi**2 / 3))


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
