"""CS-UCB-Q: CS-UCB with a queue that demands each client's share (Xia et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import checks
from bsfl.estimation.averages import Queued, believed_latency
from bsfl.estimation.radii import hoeffding_radius
from bsfl.policies.base import top_m
from bsfl.records import FloatArray, IntArray, Report, Rng, RoundContext


@dataclass(frozen=True, slots=True, kw_only=True)
class CsUcbQ:
    r"""Choose fast clients, and keep a queue so that nobody waits for too long.

    Choose the m clients with the largest (1 - beta) index_k + beta D_k.

    index_k = min(1, mean reward + sqrt(2 ln t / c_k)), 1 if never chosen; the queue
    D_k <- max(D_k + share_k - [k was chosen], 0) starts at 0 and grows while k waits for its
    share_k = min(1, phi m n_k / sum n), or phi m / K where no sizes are registered.

    Attributes:
        tau_max: Latency that earns reward 0, in seconds.
        beta: Weight of the queue, between 0 and 1.
        phi: Part of its proportional share that a client is guaranteed, between 0 and 1; then the
            shares add up to at most m.
        exploration: Factor below the square root; 1 as published.
    """

    REMEMBERS_BY: ClassVar = ("tau_max",)
    tuning: ClassVar = (
        {"exploration": 0.01},
        {"exploration": 0.01, "beta": 0.2},
        {"exploration": 0.01, "phi": 0.9},
    )
    example: ClassVar = {"tau_max": 20.0}

    tau_max: float
    beta: float = 0.5
    phi: float = 0.5
    exploration: float = 1.0

    def __post_init__(self) -> None:
        checks.seconds("tau_max", self.tau_max)
        checks.between("beta", self.beta, 0.0, 1.0)
        checks.between("phi", self.phi, 0.0, 1.0)
        checks.at_least("exploration", self.exploration, 0.0)

    def init(self, n_clients: int) -> Queued:
        return Queued.of(n_clients)

    def select(self, state: Queued, context: RoundContext, rng: Rng) -> IntArray:
        clients = context.available
        scale = 2.0 * self.exploration
        radius = hoeffding_radius(state.selected[clients], t=context.t, scale=scale)
        index = np.minimum(1.0, state.mean[clients] + radius)
        score = (1.0 - self.beta) * index + self.beta * self.queues(state, context, clients)
        return clients[top_m(score, context.cohort_size, rng)]

    def observe(self, state: Queued, context: RoundContext, report: Report) -> None:
        if len(report.chosen):
            state.serve(context, report.chosen, self.shares(state, context, report.chosen))
        state.learn(report, 1.0 - believed_latency(report, self.tau_max) / self.tau_max)

    def queues(self, state: Queued, context: RoundContext, clients: IntArray) -> FloatArray:
        """Return D_k at the start of this round."""
        return state.queues(context, clients, self.shares(state, context, clients))

    def shares(self, state: Queued, context: RoundContext, clients: IntArray) -> FloatArray:
        """Return share_k, the rate at which the queue grows."""
        budget = self.phi * context.cohort_size
        if context.roster is None or context.roster.samples is None:
            return np.full(len(clients), budget / context.n_members(len(state.selected)))
        shares = budget * context.roster.sizes[clients] / context.roster.total_size
        return np.minimum(1.0, shares)
