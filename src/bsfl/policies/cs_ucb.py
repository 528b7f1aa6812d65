"""CS-UCB: client selection by upper confidence bounds alone (Xia et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

from bsfl import checks
from bsfl.estimation.averages import Averages, believed_latency
from bsfl.estimation.radii import hoeffding_radius
from bsfl.policies.base import top_m
from bsfl.records import IntArray, Report, Rng, RoundContext


@dataclass(frozen=True, slots=True, kw_only=True)
class CsUcb:
    r"""Choose the clients that seem fastest, and look again at those rarely tried.

    Choose the m clients with the largest mean reward + sqrt((m + 1) ln t / c_k).

    The reward of an answer is 1 - tau / tau_max. Clients never chosen have an infinite index and so
    come first. Nothing brings slow clients back but the radius.

    Attributes:
        tau_max: Latency that earns reward 0, in seconds.
        exploration: Factor below the square root; 1 as published.
    """

    REMEMBERS_BY: ClassVar = ("tau_max",)
    tuning: ClassVar = ({"exploration": 0.1}, {"exploration": 0.01}, {"exploration": 0.001})
    example: ClassVar = {"tau_max": 20.0}

    tau_max: float
    exploration: float = 1.0

    def __post_init__(self) -> None:
        checks.seconds("tau_max", self.tau_max)
        checks.at_least("exploration", self.exploration, 0.0)

    def init(self, n_clients: int) -> Averages:
        return Averages.of(n_clients)

    def select(self, state: Averages, context: RoundContext, rng: Rng) -> IntArray:
        clients, m = context.available, context.cohort_size
        scale = self.exploration * (m + 1)
        radius = hoeffding_radius(state.selected[clients], t=context.t, scale=scale)
        return clients[top_m(state.mean[clients] + radius, m, rng)]

    def observe(self, state: Averages, context: RoundContext, report: Report) -> None:
        state.learn(report, 1.0 - believed_latency(report, self.tau_max) / self.tau_max)
