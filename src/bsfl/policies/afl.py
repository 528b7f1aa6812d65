"""AFL: active federated learning draws clients by the value of their data (Goetz et al. 2019)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import validation
from bsfl._core.state import ClientState, per_client
from bsfl.policy import LOSS, SAMPLES, Policy, share_of, top_m, weighted_draw
from bsfl.types import FloatArray, IntArray, Rng, RoundContext, RoundReport


@dataclass(slots=True, kw_only=True)
class AflState(ClientState):
    """The last value of each client's data, 0 before it reported one."""

    value: FloatArray = per_client(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AFL(Policy):
    r"""Draw clients with large losses on much data.

    Draw most of the cohort with probability proportional to exp(temperature x v_k).

    v_k = sqrt(n_k) loss_k is the value of a client's data, known since its last response. The
    available clients with the lowest values cannot be drawn by value; the remaining places of the
    cohort are drawn uniformly.

    >>> from bsfl import Observation, Scheduler
    >>> scheduler = Scheduler(AFL(drop=0.5, uniform=0.0), cohort_size=1)
    >>> scheduler.join(["ann", "bob"], samples=[9, 9])
    >>> ann, bob = (Observation(latency_s=1.0, loss=loss) for loss in (0.1, 2.0))
    >>> cohort = scheduler.select(cohort_size=2)
    >>> rejected = scheduler.observe({"ann": ann, "bob": bob}, round=cohort)
    >>> scheduler.select()
    ['bob']

    Attributes:
        drop: Share of the clients, those with the lowest values, that cannot be drawn by value
            (alpha_1).
        temperature: Factor in the exponent (alpha_2).
        uniform: Share of the cohort drawn uniformly among all others (alpha_3).
    """

    needs: ClassVar = LOSS | SAMPLES
    search_space: ClassVar = ({"temperature": 0.1}, {"temperature": 1.0}, {"drop": 0.5})

    drop: float = 0.75
    temperature: float = 0.01
    uniform: float = 0.1

    def __post_init__(self) -> None:
        validation.between("drop", self.drop, 0.0, 1.0)
        validation.at_least("temperature", self.temperature, 0.0)
        validation.between("uniform", self.uniform, 0.0, 1.0)

    def init(self, n_clients: int) -> AflState:
        return AflState.of(n_clients)

    def select(self, state: AflState, context: RoundContext, rng: Rng) -> IntArray:
        clients, m = context.available, context.n_invited
        if len(clients) <= m:
            return clients
        value = optimistic_values(state, context, clients)
        pool = top_m(value, len(clients) - share_of(len(clients), self.drop), rng)
        n_by_value = max(share_of(m, 1.0 - self.uniform), self.uniform < 1.0)
        n_drawn = min(len(pool), n_by_value)
        drawn = pool[weighted_draw(self.temperature * value[pool], n_drawn, rng)]
        others = np.delete(np.arange(len(clients)), drawn)
        uniform = rng.choice(others, m - n_drawn, replace=False, shuffle=False)
        cohort: IntArray = np.sort(np.concatenate([drawn, uniform]))
        return clients[cohort]

    def observe(self, state: AflState, context: RoundContext, report: RoundReport) -> None:
        values = np.sqrt(report.samples) * report.loss
        known = ~np.isnan(values)
        state.value[report.clients[known]] = values[known]


def optimistic_values(state: AflState, context: RoundContext, clients: IntArray) -> FloatArray:
    """Return v_k of clients; an unseen client has the largest value of the others.

    The paper does not define the value of an unseen client.
    """
    value = state.value[clients]
    new = context.task.invitations[clients] == 0
    value[new] = value[~new].max(initial=0.0)
    return value
