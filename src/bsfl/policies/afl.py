"""AFL: active federated learning, clients drawn by the value of their data (Goetz et al. 2019)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import checks
from bsfl.policies.base import part_of, top_m, weighted_draw
from bsfl.records import FloatArray, IntArray, Report, Rng, RoundContext
from bsfl.requirements import LOSS, SAMPLES, require_losses, sample_counts
from bsfl.state import ClientState, per_client


@dataclass(slots=True, kw_only=True)
class AflState(ClientState):
    """How often each client was chosen, and its last value (0 before it reported one)."""

    selected: IntArray = per_client(0)
    value: FloatArray = per_client(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AFL:
    r"""Draw clients whose data the model knows worst: large losses on much data.

    Draw most of the cohort with probability proportional to exp(temperature x v_k).

    v_k = sqrt(n_k) loss_k is the value of a client's data, known since it last trained. The lowest
    `drop` of the available clients cannot be drawn; the last part of the cohort is uniform.

    Attributes:
        drop: Share of the clients with the lowest values left out of the draw (alpha_1).
        temperature: Factor in the exponent (alpha_2).
        uniform: Share of the cohort drawn uniformly from everyone left (alpha_3).
    """

    needs: ClassVar = LOSS | SAMPLES
    tuning: ClassVar = ({"temperature": 0.1}, {"temperature": 1.0}, {"drop": 0.5})

    drop: float = 0.75
    temperature: float = 0.01
    uniform: float = 0.1

    def __post_init__(self) -> None:
        checks.between("drop", self.drop, 0.0, 1.0)
        checks.at_least("temperature", self.temperature, 0.0)
        checks.between("uniform", self.uniform, 0.0, 1.0)

    def init(self, n_clients: int) -> AflState:
        return AflState.of(n_clients)

    def select(self, state: AflState, context: RoundContext, rng: Rng) -> IntArray:
        clients, m = context.available, context.cohort_size
        if len(clients) <= m:
            return clients
        value = optimistic_values(state, clients)
        pool = top_m(value, len(clients) - part_of(len(clients), self.drop), rng)
        n_by_value = max(part_of(m, 1.0 - self.uniform), self.uniform < 1.0)
        n_drawn = min(len(pool), n_by_value)
        drawn = pool[weighted_draw(self.temperature * value[pool], n_drawn, rng)]
        others = np.delete(np.arange(len(clients)), drawn)
        lucky = rng.choice(others, m - n_drawn, replace=False, shuffle=False)
        cohort: IntArray = np.sort(np.concatenate([drawn, lucky]))
        return clients[cohort]

    def observe(self, state: AflState, context: RoundContext, report: Report) -> None:
        require_losses("afl", report)
        values = np.sqrt(sample_counts("afl", report, context)) * report.loss
        state.selected[report.chosen] += 1
        known = ~np.isnan(values)
        state.value[report.clients[known]] = values[known]


def optimistic_values(state: AflState, clients: IntArray) -> FloatArray:
    """Return v_k of clients; one that was never chosen counts as much as the best of the others.

    The paper does not say what an unknown client is worth.
    """
    value = state.value[clients]
    new = state.selected[clients] == 0
    value[new] = value[~new].max(initial=0.0)
    return value
