"""CS-UCB: client selection by upper confidence bounds alone (Xia et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

from bsfl import validation
from bsfl.estimators.confidence import hoeffding_width
from bsfl.estimators.moments import Averages, censored_latency
from bsfl.policy import Policy, top_m
from bsfl.types import IntArray, Rng, RoundContext, RoundReport


@dataclass(frozen=True, slots=True, kw_only=True)
class CsUcb(Policy):
    r"""Select the clients that seem fastest, and explore those rarely selected.

    Select the m clients with the largest mean reward + sqrt((m + 1) ln t / c_k).

    The reward of a response is 1 - tau / tau_max. Unseen clients have an infinite index and so come
    first. Only the confidence width brings slow clients back.

    >>> from bsfl import Scheduler
    >>> scheduler = Scheduler(CsUcb(tau_max=10.0, exploration=0.01), cohort_size=2)
    >>> cohort = scheduler.select(["ann", "bob", "cem"], cohort_size=3)
    >>> scheduler.observe({"ann": 5.0, "bob": 1.0, "cem": 2.0})
    {}
    >>> scheduler.select()
    ['bob', 'cem']

    Attributes:
        tau_max: Latency that earns reward 0, in seconds.
        exploration: Factor below the square root; 1 as published.
    """

    state_keys: ClassVar = ("tau_max",)
    search_space: ClassVar = ({"exploration": 0.1}, {"exploration": 0.01}, {"exploration": 0.001})
    example: ClassVar = {"tau_max": 20.0}

    tau_max: float
    exploration: float = 1.0

    def __post_init__(self) -> None:
        validation.seconds("tau_max", self.tau_max)
        validation.at_least("exploration", self.exploration, 0.0)

    def init(self, n_clients: int) -> Averages:
        return Averages.of(n_clients)

    def select(self, state: Averages, context: RoundContext, rng: Rng) -> IntArray:
        clients, m = context.available, context.n_invited
        scale = self.exploration * (m + 1)
        width = hoeffding_width(context.task.invitations[clients], t=context.round, scale=scale)
        return clients[top_m(state.mean[clients] + width, m, rng)]

    def observe(self, state: Averages, context: RoundContext, report: RoundReport) -> None:
        state.learn(report, 1.0 - censored_latency(report, self.tau_max) / self.tau_max)
