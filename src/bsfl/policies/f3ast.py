"""F3AST: clients that took part too rarely for their data (Ribero, Vikalo, de Veciana 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import checks
from bsfl.policies.base import top_m
from bsfl.records import LATE, FloatArray, IntArray, Report, Rng, RoundContext
from bsfl.requirements import data_shares
from bsfl.state import ClientState, per_client


@dataclass(slots=True, kw_only=True)
class F3astState(ClientState):
    """What each client's selections have added to its rate, as it stood some rounds ago.

    A rate that nobody raises fades by the same factor in every round, so it is stored as it stood
    when the client was last chosen, with the number of its next round at that time: O(cohort).

    Attributes:
        added: Part of r_k that selections have brought, at the start of round `as_of`.
        as_of: That round, counted from the client's first.
    """

    added: FloatArray = per_client(0.0, low=0.0, high=1.0)
    as_of: IntArray = per_client(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class F3ast:
    r"""Choose who was chosen least for the data it holds, among those available.

    Choose the m available clients with the largest p_k / r_k.

    p_k = n_k / sum n is a client's share of all data, 1 / K where no sizes are registered. The rate
    r_k <- (1 - b) r_k + b [k was chosen] starts at min(1, m p_k). Updates weigh p_k / r_k, so that
    rarely available clients count as much as their data.

    Attributes:
        step: b, how much one round counts.
    """

    REMEMBERS_BY: ClassVar = ("step",)
    tuning: ClassVar = ({"step": 0.0003}, {"step": 0.003}, {"step": 0.01})

    step: float = 0.001

    def __post_init__(self) -> None:
        checks.between("step", self.step, 0.0, 1.0)

    def init(self, n_clients: int) -> F3astState:
        return F3astState.of(n_clients)

    def select(self, state: F3astState, context: RoundContext, rng: Rng) -> IntArray:
        clients = context.available
        rate = self.rates_by_share(state, context, clients)
        return clients[top_m(-rate, context.cohort_size, rng)]

    def observe(self, state: F3astState, context: RoundContext, report: Report) -> None:
        """Raise the rates of the chosen; one that was late is not in the model after all."""
        chosen, late = report.chosen, report.clients[report.outcome == LATE]
        next_round = context.rounds(chosen) + np.ones_like(chosen)
        state.added[chosen] *= self.faded(next_round - state.as_of[chosen])
        state.added[chosen] += self.step
        state.as_of[chosen] = next_round
        since = state.as_of[late] - context.rounds(late) - 1
        taken_back = state.added[late] - self.step * self.faded(since)
        state.added[late] = np.maximum(taken_back, 0.0)

    def weights(self, state: F3astState, context: RoundContext, clients: IntArray) -> FloatArray:
        """Return p_k / r_k, the choice of this round counted in r_k as in the public code.

        Who is not available any more was chosen, and counted, before.
        """
        rate = self.rates_by_share(state, context, clients)
        added = self.step / data_shares(context, clients, len(state.added))
        new = np.isin(clients, context.available)
        return np.asarray(1.0 / np.where(new, (1.0 - self.step) * rate + added, rate))

    def rates_by_share(
        self, state: F3astState, context: RoundContext, clients: IntArray
    ) -> FloatArray:
        """Return r_k / p_k at the start of this round, exactly equal for clients never chosen."""
        share = data_shares(context, clients, len(state.added))
        start = np.minimum(1.0 / share, context.quota)
        rounds = context.rounds(clients)
        added = state.added[clients] * self.faded(rounds - state.as_of[clients])
        return np.asarray(start * self.faded(rounds - 1) + added / share)

    def faded(self, rounds: int | IntArray) -> FloatArray:
        """Return (1 - b)^rounds, what is left after so many rounds without a selection."""
        return np.asarray((1.0 - self.step) ** np.maximum(rounds, 0))
