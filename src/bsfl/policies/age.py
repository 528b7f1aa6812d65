"""Age-based selection: whoever waited longest, weighted by speed (Yang et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import checks
from bsfl.estimation.averages import Averages, believed_latency
from bsfl.policies.base import top_m
from bsfl.records import FloatArray, IntArray, Report, Rng, RoundContext
from bsfl.state import per_client


@dataclass(slots=True, kw_only=True)
class AgeState(Averages):
    """Averages of 1/tau, and the client's own round in which it was last chosen (0: never)."""

    last_chosen: IntArray = per_client(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeBased:
    r"""Choose clients that are fast and have waited for long.

    Choose the m clients with the largest age_k x speed_k.

    age_k <- (age_k + 1) (1 - [k was chosen]) starts at 0, so it counts the rounds since k was last
    chosen; speed_k is the mean of 1/tau_k. Clients never chosen come first.

    Attributes:
        tau_max: Deadline in seconds; what comes later, or not at all, counts as that slow.
    """

    example: ClassVar = {"tau_max": 20.0}

    tau_max: float

    def __post_init__(self) -> None:
        checks.seconds("tau_max", self.tau_max)

    def init(self, n_clients: int) -> AgeState:
        return AgeState.of(n_clients)

    def select(self, state: AgeState, context: RoundContext, rng: Rng) -> IntArray:
        clients = context.available
        score = self.ages(state, context, clients) * self.speeds(state, clients)
        score[state.selected[clients] == 0] = np.inf
        return clients[top_m(score, context.cohort_size, rng)]

    def observe(self, state: AgeState, context: RoundContext, report: Report) -> None:
        state.last_chosen[report.chosen] = context.rounds(report.chosen)
        state.learn(report, 1.0 / believed_latency(report, self.tau_max))

    def ages(self, state: AgeState, context: RoundContext, clients: IntArray) -> IntArray:
        """Return age_k at the start of this round: what the recursion gives, without running it."""
        return context.rounds(clients) - 1 - state.last_chosen[clients]

    def speeds(self, state: AgeState, clients: IntArray) -> FloatArray:
        """Return the mean of 1/tau; 1/tau_max while a client has not answered."""
        heard = state.observed[clients] > 0
        return np.where(heard, state.mean[clients], 1.0 / self.tau_max)
