"""UCB-CS: the clients with the largest discounted loss index (Cho et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.policies.base import top_m
from bsfl.records import FloatArray, IntArray, Report, Rng, RoundContext
from bsfl.requirements import LOSS, SAMPLES, keep_losses, registered_sizes, require_losses
from bsfl.state import ClientState, per_client


@dataclass(slots=True, kw_only=True)
class UcbCsState(ClientState):
    """Discounted sums as they stood when the client was last chosen: O(cohort) a round.

    Attributes:
        last_chosen: Round in which the client was last chosen, 0 if never.
        count: Discounted number of its selections in that round.
        loss_sum: Discounted sum of its losses in that round.
        loss: Last loss it reported, NaN if none.
    """

    last_chosen: IntArray = per_client(0)
    count: FloatArray = per_client(0.0, low=0.0)
    loss_sum: FloatArray = per_client(0.0)
    loss: FloatArray = per_client(np.nan)

    def check(self) -> None:
        """Check that whoever was chosen counts."""
        if np.any((self.last_chosen > 0) & (self.count < 1.0)):
            raise InvalidInput("count must be at least 1 where a client was chosen")


@dataclass(frozen=True, slots=True, kw_only=True)
class UcbCs:
    r"""Choose clients with large losses, and look again at those rarely tried.

    Choose the m clients with the largest p_k (L_k / N_k + sqrt(2 sigma^2 ln T / N_k)).

    With p_k = n_k / sum n, N_k = sum_s gamma^(t-1-s) [k in S_s], L_k the same sum with the mean
    local losses as factors and T = sum_s gamma^(t-1-s), all over the rounds s = 1 .. t-1 before
    round t. Clients never chosen come first. Latency is not looked at.

    Attributes:
        gamma: Discount per round, above 0 and below 1.
        sigma: Standard deviation of a local loss; when None, that of the losses last reported by
            the last cohort.
    """

    needs: ClassVar = LOSS | SAMPLES
    tuning: ClassVar = tuple({"gamma": gamma} for gamma in (0.97, 0.99, 0.9))

    gamma: float = 0.7
    sigma: float | None = None

    def __post_init__(self) -> None:
        if checks.between("gamma", self.gamma, 0.0, 1.0) in (0.0, 1.0):
            raise InvalidInput(f"gamma must be above 0 and below 1, got {self.gamma!r}")
        if self.sigma is not None:
            checks.at_least("sigma", self.sigma, 0.0)

    def init(self, n_clients: int) -> UcbCsState:
        return UcbCsState.of(n_clients)

    def select(self, state: UcbCsState, context: RoundContext, rng: Rng) -> IntArray:
        sizes = registered_sizes(context)
        clients = context.available
        score = sizes[clients] * self.index(state, context, clients)
        return clients[top_m(score, context.cohort_size, rng)]

    def observe(self, state: UcbCsState, context: RoundContext, report: Report) -> None:
        require_losses("ucb-cs", report)
        fade = self.gamma ** (context.t - state.last_chosen[report.chosen])
        state.count[report.chosen] = fade * state.count[report.chosen] + 1.0
        state.loss_sum[report.chosen] *= fade
        state.last_chosen[report.chosen] = context.t
        known = ~np.isnan(report.loss)
        clients = report.clients[known]
        age = state.last_chosen[clients] - context.t  # above 0 for an answer to an old round
        state.loss_sum[clients] += self.gamma**age * report.loss[known]
        keep_losses(state.loss, report)

    def index(self, state: UcbCsState, context: RoundContext, clients: IntArray) -> FloatArray:
        r"""Return L_k / N_k + sqrt(2 sigma^2 ln T / N_k), infinite if never chosen."""
        elapsed = context.t - 1 - state.last_chosen[clients]
        count = self.gamma**elapsed * state.count[clients]
        rounds = (1.0 - self.gamma ** (context.t - 1)) / (1.0 - self.gamma)
        spread = last_spread(state) if self.sigma is None else self.sigma
        new = state.last_chosen[clients] == 0
        certain = spread * spread * np.log(max(rounds, 1.0)) == 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = state.loss_sum[clients] / state.count[clients]  # both fade alike
            radius = 0.0 if certain else spread * np.sqrt(2.0 * np.log(rounds) / count)
        return np.where(new, np.inf, mean + radius)


def last_spread(state: UcbCsState) -> float:
    """Return the standard deviation of the losses that the last cohort reported, 0 if unknown.

    Departure: the paper takes the largest standard deviation within a client's local losses, which
    a report does not hold.
    """
    latest = state.last_chosen == state.last_chosen.max(initial=1)
    losses = state.loss[latest & ~np.isnan(state.loss)]
    return float(losses.std()) if len(losses) else 0.0
