"""Age-based selection: rounds since the last selection, weighted by speed (Yang et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import validation
from bsfl._core.state import ROUNDS, per_client
from bsfl.estimators.moments import Averages, censored_latency
from bsfl.policy import Policy, top_m
from bsfl.types import FloatArray, IntArray, Rng, RoundContext, RoundReport


@dataclass(slots=True, kw_only=True)
class AgeState(Averages):
    """Averages of 1/tau, and the client's own round in which it was last selected (0: never)."""

    last_selected: IntArray = per_client(0, high=ROUNDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeBased(Policy):
    r"""Select clients that are fast and have waited for long.

    Select the m clients with the largest age_k x speed_k.

    age_k <- (age_k + 1) (1 - [k was selected]) starts at 0, so it counts the rounds since k was
    last selected; speed_k is the mean of 1/tau_k. Unseen clients come first.

    >>> from bsfl import Scheduler
    >>> scheduler = Scheduler(AgeBased(tau_max=10.0), cohort_size=1)
    >>> for client, latency_s in {"ann": 4.0, "bob": 1.0, "cem": 1.0}.items():
    ...     rejected = scheduler.observe({client: latency_s}, round=scheduler.select([client]))
    >>> scheduler.select(["ann", "bob", "cem"])  # age x speed = 2 x 1/4, 1 x 1 and 0 x 1
    ['bob']

    Attributes:
        tau_max: Deadline in seconds; a later response, or none, counts as this latency.
    """

    example: ClassVar = {"tau_max": 20.0}

    tau_max: float

    def __post_init__(self) -> None:
        validation.seconds("tau_max", self.tau_max)

    def init(self, n_clients: int) -> AgeState:
        return AgeState.of(n_clients)

    def select(self, state: AgeState, context: RoundContext, rng: Rng) -> IntArray:
        clients = context.available
        score = self.ages(state, context, clients) * self.speeds(state, clients)
        score[context.task.invitations[clients] == 0] = np.inf
        return clients[top_m(score, context.n_invited, rng)]

    def observe(self, state: AgeState, context: RoundContext, report: RoundReport) -> None:
        last = state.last_selected[report.invited]  # reports of several rounds may overtake
        state.last_selected[report.invited] = np.maximum(last, context.rounds(report.invited))
        state.learn(report, 1.0 / censored_latency(report, self.tau_max))

    def ages(self, state: AgeState, context: RoundContext, clients: IntArray) -> IntArray:
        """Return age_k at the start of this round, the recursion in closed form."""
        return context.rounds(clients) - 1 - state.last_selected[clients]

    def speeds(self, state: AgeState, clients: IntArray) -> FloatArray:
        """Return the mean of 1/tau; 1/tau_max for a client without a response."""
        is_observed = state.observed[clients] > 0
        return np.where(is_observed, state.mean[clients], 1.0 / self.tau_max)
