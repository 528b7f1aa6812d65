"""UCB-CS: the clients with the largest discounted loss index (Cho et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import validation
from bsfl._core.state import ROUNDS, ClientState, per_client
from bsfl.errors import InvalidInput
from bsfl.policy import LOSS, SAMPLES, Policy, top_m
from bsfl.types import FloatArray, IntArray, Rng, RoundContext, RoundReport


@dataclass(slots=True, kw_only=True)
class UcbCsState(ClientState):
    """Discounted sums as of each client's last selection: O(cohort) a round.

    Attributes:
        last_selected: Round in which the client was last selected, 0 if never.
        count: Discounted number of its selections in that round.
        loss_sum: Discounted sum of its losses in that round.
    """

    last_selected: IntArray = per_client(0, high=ROUNDS)
    count: FloatArray = per_client(0.0, low=0.0)
    loss_sum: FloatArray = per_client(0.0)

    def check(self) -> None:
        """Check that clients that were selected have a count."""
        if np.any((self.last_selected > 0) & (self.count < 1.0)):
            raise InvalidInput("count must be at least 1 for a client that was selected")


@dataclass(frozen=True, slots=True, kw_only=True)
class UcbCs(Policy):
    r"""Select clients with large losses, and explore those rarely selected.

    Select the m clients with the largest p_k (L_k / N_k + sqrt(2 sigma^2 ln T / N_k)).

    Here p_k = n_k / sum n, N_k = sum_s gamma^(t-1-s) [k in S_s], L_k is the same sum with the mean
    local losses as factors and T = sum_s gamma^(t-1-s), all over the rounds s = 1 .. t-1 before
    round t. Unseen clients come first. Latency is not considered.

    >>> from bsfl import Observation, Scheduler
    >>> scheduler = Scheduler(UcbCs(), cohort_size=1)
    >>> scheduler.join(["ann", "bob"], samples=[9, 9])
    >>> ann, bob = (Observation(latency_s=1.0, loss=loss) for loss in (0.1, 2.0))
    >>> cohort = scheduler.select(cohort_size=2)
    >>> rejected = scheduler.observe({"ann": ann, "bob": bob}, round=cohort)
    >>> scheduler.select()
    ['bob']

    Attributes:
        gamma: Discount per round, above 0 and below 1.
        sigma: Standard deviation of a local loss; None: that of the last losses of the last cohort.
    """

    needs: ClassVar = LOSS | SAMPLES
    search_space: ClassVar = tuple({"gamma": gamma} for gamma in (0.97, 0.99, 0.9))

    gamma: float = 0.7
    sigma: float | None = None

    def __post_init__(self) -> None:
        if validation.between("gamma", self.gamma, 0.0, 1.0) in (0.0, 1.0):
            raise InvalidInput(f"gamma must be above 0 and below 1, got {self.gamma!r}")
        if self.sigma is not None:
            validation.at_least("sigma", self.sigma, 0.0)

    def init(self, n_clients: int) -> UcbCsState:
        return UcbCsState.of(n_clients)

    def select(self, state: UcbCsState, context: RoundContext, rng: Rng) -> IntArray:
        sizes = context.pool.sizes
        clients = context.available
        score = sizes[clients] * self.index(state, context, clients)
        return clients[top_m(score, context.n_invited, rng)]

    def observe(self, state: UcbCsState, context: RoundContext, report: RoundReport) -> None:
        before = state.last_selected[report.invited]
        last = np.maximum(before, context.round)  # reports of several rounds may overtake
        fade = self.gamma ** (last - before)
        added = self.gamma ** (last - context.round)
        state.count[report.invited] = fade * state.count[report.invited] + added
        state.loss_sum[report.invited] *= fade
        state.last_selected[report.invited] = last
        known = ~np.isnan(report.loss)
        clients = report.clients[known]
        age = state.last_selected[clients] - context.round  # above 0 for a late response
        state.loss_sum[clients] += self.gamma ** np.maximum(age, 0) * report.loss[known]

    def index(self, state: UcbCsState, context: RoundContext, clients: IntArray) -> FloatArray:
        r"""Return L_k / N_k + sqrt(2 sigma^2 ln T / N_k), infinite for an unseen client."""
        elapsed = np.maximum(context.round - 1 - state.last_selected[clients], 0)
        count = self.gamma**elapsed * state.count[clients]
        rounds = (1.0 - self.gamma ** (context.round - 1)) / (1.0 - self.gamma)
        spread = last_spread(state, context) if self.sigma is None else self.sigma
        unseen = state.last_selected[clients] == 0
        certain = spread * spread * np.log(max(rounds, 1.0)) == 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = state.loss_sum[clients] / state.count[clients]  # both fade equally
            width = 0.0 if certain else spread * np.sqrt(2.0 * np.log(rounds) / count)
            index = mean + width
        return np.where(unseen, np.inf, index)


def last_spread(state: UcbCsState, context: RoundContext) -> float:
    """Return the standard deviation of the losses that the last cohort reported, 0 if unknown.

    Departure: the paper takes the largest standard deviation within a client's local losses, which
    a report does not hold.
    """
    latest = state.last_selected == state.last_selected.max(initial=1)
    last_loss = context.task.last_loss
    losses = last_loss[latest & ~np.isnan(last_loss)]
    return float(losses.std()) if len(losses) else 0.0
