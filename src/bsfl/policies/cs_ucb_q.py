"""CS-UCB-Q: CS-UCB with queues that guarantee each client its share (Xia et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import validation
from bsfl.estimators.confidence import hoeffding_width
from bsfl.estimators.moments import Queued, censored_latency
from bsfl.policy import Policy, top_m
from bsfl.types import FloatArray, IntArray, Rng, RoundContext, RoundReport


@dataclass(frozen=True, slots=True, kw_only=True)
class CsUcbQ(Policy):
    r"""Select fast clients, and keep a queue so that no client waits for too long.

    Select the m clients with the largest (1 - beta) index_k + beta D_k.

    index_k = min(1, mean reward + sqrt(2 ln t / c_k)), 1 for an unseen client; the queue
    D_k <- max(D_k + share_k - [k was selected], 0) starts at 0 and grows while k waits for its
    share_k = min(1, phi m n_k / sum n), or phi m / K where no samples are registered.

    >>> from bsfl import Scheduler
    >>> scheduler = Scheduler(CsUcbQ(tau_max=10.0, exploration=0.0), cohort_size=2)
    >>> latency_s = {"ann": 5.0, "bob": 1.0, "cem": 2.0}
    >>> cohort = scheduler.select(list(latency_s), cohort_size=3)
    >>> rejected = scheduler.observe(latency_s)
    >>> scheduler.select()
    ['bob', 'cem']
    >>> rejected = scheduler.observe({"bob": 1.0, "cem": 2.0})
    >>> scheduler.select()  # index and queue: (0.5 + 1/3) / 2, 0.9 / 2 and 0.8 / 2
    ['ann', 'bob']

    Attributes:
        tau_max: Latency that earns reward 0, in seconds.
        beta: Weight of the queue, between 0 and 1.
        phi: Fraction of its proportional share that a client is guaranteed, between 0 and 1; the
            shares sum to at most m.
        exploration: Factor below the square root; 1 as published.
    """

    state_keys: ClassVar = ("tau_max",)
    search_space: ClassVar = (
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
        validation.seconds("tau_max", self.tau_max)
        validation.between("beta", self.beta, 0.0, 1.0)
        validation.between("phi", self.phi, 0.0, 1.0)
        validation.at_least("exploration", self.exploration, 0.0)

    def init(self, n_clients: int) -> Queued:
        return Queued.of(n_clients)

    def select(self, state: Queued, context: RoundContext, rng: Rng) -> IntArray:
        clients = context.available
        if context.pool.samples is not None:
            context.pool.check_sizes()
        scale = 2.0 * self.exploration
        width = hoeffding_width(context.task.invitations[clients], t=context.round, scale=scale)
        index = np.minimum(1.0, state.mean[clients] + width)
        queue = state.queues(context, clients, self.shares(context, clients))
        score = (1.0 - self.beta) * index + self.beta * queue
        return clients[top_m(score, context.n_invited, rng)]

    def observe(self, state: Queued, context: RoundContext, report: RoundReport) -> None:
        if len(report.invited):
            state.serve(context, report.invited, self.shares(context, report.invited))
        state.learn(report, 1.0 - censored_latency(report, self.tau_max) / self.tau_max)

    def shares(self, context: RoundContext, clients: IntArray) -> FloatArray:
        """Return share_k, the rate at which the queue grows."""
        budget = self.phi * context.n_invited
        if context.pool.samples is None:
            return np.full(len(clients), budget / max(context.n_clients, 1))
        sizes = context.pool.known_sizes
        return np.minimum(1.0, budget * sizes[clients] / (float(sizes.sum()) or 1.0))
