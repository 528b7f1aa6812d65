"""F3AST: clients selected too rarely for their data (Ribero, Vikalo, de Veciana 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import validation
from bsfl._core.state import ROUNDS, ClientState, per_client
from bsfl.policy import Policy, top_m
from bsfl.types import FloatArray, IntArray, Rng, RoundContext, RoundReport

TINY = float(np.finfo(np.float64).tiny)
"""Smallest share and rate, so that they can be divided by."""


@dataclass(slots=True, kw_only=True)
class F3astState(ClientState):
    """Part of each client's rate that its selections have added.

    Without a selection a rate fades by the same factor in every round, so it is stored as it was
    after the client's last selection, with the number of its next round: O(cohort) a round.

    Attributes:
        added: Part of r_k that selections have added, at the start of round `as_of`.
        as_of: That round, counted from the client's first.
    """

    added: FloatArray = per_client(0.0, low=0.0, high=1.0)
    as_of: IntArray = per_client(1, high=ROUNDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class F3ast(Policy):
    r"""Select the available clients that were selected least for the data they hold.

    Select the m available clients with the largest p_k / r_k.

    p_k = n_k / sum n is a client's share of all data, 1 / K where no samples are registered. The
    rate r_k <- (1 - b) r_k + b [k was selected] starts at min(1, m p_k). Updates weigh p_k / r_k,
    so that rarely available clients count as much as their data.

    >>> from bsfl import Scheduler
    >>> scheduler = Scheduler(F3ast(), cohort_size=2)
    >>> first = scheduler.select(["ann", "bob", "cem", "dan"])
    >>> sorted(first + scheduler.select())
    ['ann', 'bob', 'cem', 'dan']

    Attributes:
        step: b, the step size of the moving average r_k.
    """

    state_keys: ClassVar = ("step",)
    search_space: ClassVar = ({"step": 0.0003}, {"step": 0.003}, {"step": 0.01})

    step: float = 0.001

    def __post_init__(self) -> None:
        validation.between("step", self.step, 0.0, 1.0)

    def init(self, n_clients: int) -> F3astState:
        return F3astState.of(n_clients)

    def select(self, state: F3astState, context: RoundContext, rng: Rng) -> IntArray:
        clients = context.available
        rate = self.rates_by_share(state, context, clients)
        return clients[top_m(-rate, context.n_invited, rng)]

    def observe(self, state: F3astState, context: RoundContext, report: RoundReport) -> None:
        """Raise the rates of the invited clients; a dropped response takes its step back."""
        invited = report.invited
        dropped = report.clients[report.responded & report.dropped]
        next_round = context.rounds(invited) + 1
        before = state.as_of[invited]
        as_of: IntArray = np.maximum(next_round, before)  # reports of several rounds may overtake
        state.added[invited] *= self.fading(as_of - before)
        state.added[invited] += self.step * self.fading(as_of - next_round)
        state.as_of[invited] = as_of
        since = state.as_of[dropped] - context.rounds(dropped) - 1
        without_step = state.added[dropped] - self.step * self.fading(since)
        state.added[dropped] = np.maximum(without_step, 0.0)

    def weights(self, state: F3astState, context: RoundContext, clients: IntArray) -> FloatArray:
        """Return p_k / r_k, the selection of this round counted in r_k as in the public code.

        The selection of a client that is not available was counted in an earlier round.
        """
        rate = self.rates_by_share(state, context, clients)
        added = self.step / self.shares(context, clients)
        new = np.isin(clients, context.available)
        rate = np.where(new, (1.0 - self.step) * rate + added, rate)
        return np.asarray(1.0 / np.maximum(rate, TINY))

    def rates_by_share(
        self, state: F3astState, context: RoundContext, clients: IntArray
    ) -> FloatArray:
        """Return r_k / p_k at the start of this round, exactly equal for unseen clients."""
        share = self.shares(context, clients)
        start = np.minimum(1.0 / share, context.target_responses)
        rounds = context.rounds(clients)
        added = state.added[clients] * self.fading(rounds - state.as_of[clients])
        return np.asarray(start * self.fading(rounds - 1) + added / share)

    def shares(self, context: RoundContext, clients: IntArray) -> FloatArray:
        """Return p_k; that of a client that left is nearly 0."""
        return np.maximum(context.pool.data_shares(clients), TINY)

    def fading(self, rounds: int | IntArray) -> FloatArray:
        """Return (1 - b)^rounds, the factor of a rate after so many rounds without a selection."""
        return np.asarray((1.0 - self.step) ** np.maximum(rounds, 0))
