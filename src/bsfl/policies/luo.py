"""Adaptive client sampling: much to learn, and soon (Luo et al. 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.estimation.averages import Averages, believed_latency
from bsfl.fairness import capped_shares
from bsfl.policies.weighted_random import inclusion_draw
from bsfl.records import BoolArray, FloatArray, IntArray, Report, Rng, RoundContext
from bsfl.requirements import LOSS, data_shares, keep_losses, require_losses
from bsfl.state import per_client


@dataclass(slots=True, kw_only=True)
class LuoState(Averages):
    """Averages of latencies, and the last loss each client reported (NaN: never)."""

    loss: FloatArray = per_client(np.nan)

    def check(self) -> None:
        """Check that latencies are some."""
        if np.any(self.mean[self.observed > 0] < 1e-9):
            raise InvalidInput("mean must be a latency")


@dataclass(frozen=True, slots=True, kw_only=True)
class Luo:
    r"""Draw clients with much to teach more often, and slow ones less often.

    Draw m clients, k with a probability proportional to p_k G_k / sqrt(tau_k).

    p_k is a client's share of the data, G_k the last loss it reported, in place of the norm of its
    gradient, and tau_k its mean latency. Nobody is drawn twice: k is included with probability
    pi_k = min(1, lambda q_k). Updates weigh p_k / pi_k, so that they are right on average.

    Attributes:
        tau_max: Deadline in seconds; what comes later, or not at all, counts as that slow.
        speed: Exponent of the latency; 1/2 as published.
        least: G_k is at least this part of the mean, so that everyone is drawn now and then.
    """

    needs: ClassVar = LOSS
    tuning: ClassVar = ({"speed": 0.25}, {"speed": 1.0}, {"least": 0.5})
    example: ClassVar = {"tau_max": 20.0}

    tau_max: float
    speed: float = 0.5
    least: float = 0.1

    def __post_init__(self) -> None:
        checks.seconds("tau_max", self.tau_max)
        checks.between("speed", self.speed, 0.0, 10.0)
        checks.between("least", checks.positive("least", self.least), 0.0, 1.0)

    def init(self, n_clients: int) -> LuoState:
        return LuoState.of(n_clients)

    def select(self, state: LuoState, context: RoundContext, rng: Rng) -> IntArray:
        clients = context.available
        share = data_shares(context, clients, len(state.loss))
        worth = share * self.gains(state)[clients]
        return clients[inclusion_draw(worth, context.cohort_size, rng)]

    def observe(self, state: LuoState, context: RoundContext, report: Report) -> None:
        require_losses("luo", report)
        state.learn(report, believed_latency(report, self.tau_max))
        keep_losses(state.loss, report)

    def weights(self, state: LuoState, context: RoundContext, clients: IntArray) -> FloatArray:
        """Return p_k / pi_k, with p over those that could be drawn.

        They are the available clients and, chosen before, `clients`; everyone where nobody is said
        to be available. Where other than the n drawn come, pi_k counts as pi_k len(clients) / n.
        """
        asked = len(context.available) > 0
        pool = np.union1d(context.available, clients) if asked else np.arange(len(state.loss))
        share = data_shares(context, pool, len(state.loss))
        n = min(context.cohort_size, len(pool))
        inclusion = capped_shares(share * self.gains(state)[pool], n)
        weight = (share / share.sum() / inclusion)[np.searchsorted(pool, clients)]
        return np.asarray(weight * n / max(len(clients), 1) if asked else weight)

    def gains(self, state: LuoState) -> FloatArray:
        """Return G_k / tau_k^speed of every client."""
        loss = or_mean(np.abs(state.loss), ~np.isnan(state.loss))
        norm = np.maximum(loss, self.least * loss.mean() or 1.0)
        return np.asarray(norm / or_mean(state.mean, state.observed > 0) ** self.speed)


def or_mean(values: FloatArray, known: BoolArray) -> FloatArray:
    """Return values, the mean of the known ones where they are not; 1 if none is.

    >>> or_mean(np.array([2.0, np.nan, 4.0]), np.array([True, False, True]))
    array([2., 3., 4.])
    """
    return np.where(known, values, values[known].mean() if known.any() else 1.0)
