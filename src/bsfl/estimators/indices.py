"""The speed index that a policy ranks clients by.

An index turns latencies into the values that are averaged, learns what it needs beside those
averages, and predicts an optimistic speed from both.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from bsfl import validation
from bsfl._core.pool import PoolView
from bsfl._core.registry import Registry
from bsfl._core.state import EmptyState
from bsfl.estimators import lognormal
from bsfl.estimators.confidence import CONFIDENCE_WIDTHS, ConfidenceWidth
from bsfl.estimators.moments import RunningMoments
from bsfl.types import FloatArray, IntArray, State

PRIOR_RESPONSES = 3.0
"""Responses that the coefficient of variation of all clients is worth beside a client's own."""
MIN_SPEED = 1e-100
"""Smallest mean speed that a coefficient of variation is computed of."""
MAX_LOG_SPEED = 100.0
"""Largest size of the logarithm of a speed, however uncertain it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What an index predicts the speeds of clients from.

    Attributes:
        clients: Dense indices of the clients.
        invitations: How often each was selected; more than it responded if responses are pending.
        stats: Moments of their values.
        rounds: How many rounds count.
        n_invited: How many clients a round invites.
        tau_min: Smallest possible latency in seconds.
        worst_s: Latency that stands for a response that never came, 0 if none is known.
        pool: Attributes of the clients.
    """

    clients: IntArray
    invitations: IntArray
    stats: RunningMoments
    rounds: float
    n_invited: int
    tau_min: float
    worst_s: float
    pool: PoolView


@runtime_checkable
class Index(Protocol):
    """A speed index of clients, predicted from their latencies.

    Attributes:
        explores_first: Whether all unseen clients are selected before any other.
    """

    explores_first: ClassVar[bool]

    def init(self) -> State:
        """Return what is learned beside the averages, before the first round: nothing."""
        return EmptyState()

    def values(self, latency_s: FloatArray, worst_s: float) -> FloatArray:
        """Return the values of latencies that are averaged; NaN: no value.

        An infinite latency is a response that never came.
        """

    def learn(
        self,
        state: Any,
        clients: IntArray,
        values: FloatArray,
        stats: RunningMoments,
        pool: PoolView,
    ) -> None:
        """Learn from new values of clients; `stats` are their moments before."""
        return

    def speeds(self, state: Any, evidence: Evidence) -> FloatArray:
        """Return an optimistic tau_min / tau of clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UCBIndex(Index):
    """Mean of tau_min / tau plus a confidence width (eq. update_ucb).

    Attributes:
        confidence_width: "paper", "cucb" or "bernstein" (narrower), "none" (no exploration) or a
            function, see bsfl.estimators.confidence.
    """

    explores_first: ClassVar = True

    confidence_width: str | ConfidenceWidth = "paper"

    def __post_init__(self) -> None:
        CONFIDENCE_WIDTHS.resolve("confidence_width", self.confidence_width)

    def values(self, latency_s: FloatArray, worst_s: float) -> FloatArray:
        """Return 1 / tau, 0 for a response that never came."""
        return 1.0 / latency_s

    def speeds(self, state: EmptyState, evidence: Evidence) -> FloatArray:
        stats, tau_min = evidence.stats, evidence.tau_min
        unresponsive = np.maximum(evidence.invitations - stats.observed, 0)
        width = CONFIDENCE_WIDTHS.resolve("confidence_width", self.confidence_width)(
            stats.count + unresponsive,  # c_k counts invitations
            t=evidence.rounds,
            m=evidence.n_invited,
            variance=lambda: tau_min**2 * shrunk_variance(stats),
        )
        return tau_min * stats.mean + width


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal(Index):
    """A quantile of a client's latency under a hierarchical model of all clients.

    The latency of an unseen client is predicted from its features, see bsfl.estimators.lognormal.

    Attributes:
        quantile: Quantile of a client's latency: 0.9 prefers clients with a small variance, 0.5 is
            the median.
        optimism: By how many standard deviations of its posterior mean a client's latency is
            lowered.
    """

    explores_first: ClassVar = False

    quantile: float = 0.9
    optimism: float = 0.5

    def __post_init__(self) -> None:
        validation.between("quantile", self.quantile, 0.01, 0.999)
        validation.at_least("optimism", self.optimism, 0.0)

    def init(self) -> lognormal.Population:
        return lognormal.Population()

    def values(self, latency_s: FloatArray, worst_s: float) -> FloatArray:
        """Return ln tau; a response that never came has the longest latency known."""
        return np.log(np.where(np.isfinite(latency_s), latency_s, worst_s or np.nan))

    def learn(
        self,
        state: lognormal.Population,
        clients: IntArray,
        values: FloatArray,
        stats: RunningMoments,
        pool: PoolView,
    ) -> None:
        lognormal.learn(state, clients, values, stats, pool)

    def speeds(self, state: lognormal.Population, evidence: Evidence) -> FloatArray:
        """Return tau_min over the quantile, raised by the bonus for uncertainty."""
        stats = _with_unresponsive(evidence)
        posterior = lognormal.predict(state, evidence.pool, evidence.clients, stats)
        bonus = self.optimism * np.sqrt(posterior.variance)
        log_speed = bonus - posterior.quantile(self.quantile)
        return evidence.tau_min * np.exp(np.clip(log_speed, -MAX_LOG_SPEED, MAX_LOG_SPEED))


INDICES: Registry[type] = Registry("index", {"ucb": UCBIndex, "lognormal": Lognormal})


def _with_unresponsive(evidence: Evidence) -> RunningMoments:
    """Return the moments, in which selected clients without a response have the longest latency."""
    stats, invitations = evidence.stats, evidence.invitations
    unresponsive = (invitations > 0) & (stats.observed == 0)
    if not unresponsive.any():
        return stats
    worst = np.log(evidence.worst_s or 1.0)
    count = np.where(unresponsive, invitations, stats.count)
    mean = np.where(unresponsive, worst, stats.mean)
    return RunningMoments(stats.observed, count, mean, stats.spread)


def shrunk_variance(stats: RunningMoments) -> FloatArray:
    """Return the variance of each client's values, shrunk to that of all clients.

    V_k = (spread_k + n0 (v mean_k)^2) / (c_k - 1 + n0), where v is the coefficient of variation
    within clients over all of them. Two equal responses do not make the variance of a client 0.
    """
    freedom = np.maximum(stats.count - 1, 0.0)
    known = (freedom > 0) & (stats.mean > MIN_SPEED)
    relative = stats.spread[known] / stats.mean[known] ** 2
    v2 = float(relative.sum() / freedom[known].sum()) if known.any() else 1.0
    squares = stats.spread + PRIOR_RESPONSES * v2 * stats.mean**2
    return np.asarray(squares / (freedom + PRIOR_RESPONSES))
