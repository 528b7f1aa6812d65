"""How fast a client may be: the index that a policy ranks clients by.

An index turns latencies into the values that are averaged, learns what it needs beside those
averages, and judges clients by both.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from bsfl import checks
from bsfl.estimation import lognormal
from bsfl.estimation.memory import ClientStats
from bsfl.estimation.radii import RADII, Radius
from bsfl.records import FloatArray, IntArray, Roster
from bsfl.registry import Registry
from bsfl.state import NothingLearned, State

PRIOR_ANSWERS = 3.0
"""What the fleet's own coefficient of variation is worth beside a client's few answers."""

HIGHEST = 100.0
"""Largest size of the logarithm of a speed, whatever is not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of some clients when they are judged.

    Attributes:
        clients: Their dense indices.
        selected: How often each was chosen; more than it answered if it owes answers.
        stats: What is remembered of their values.
        rounds: How many rounds are remembered.
        cohort_size: m.
        tau_min: Smallest possible latency, in seconds.
        worst_s: Latency that stands for an answer that never came, 0 if none is known.
        roster: What the owner of the fleet says of them.
    """

    clients: IntArray
    selected: IntArray
    stats: ClientStats
    rounds: float
    cohort_size: int
    tau_min: float
    worst_s: float
    roster: Roster | None


@runtime_checkable
class Index(Protocol):
    """How clients are judged by what they showed.

    Attributes:
        explores_first: Whether clients never chosen must all be tried before any is judged.
    """

    @property
    def explores_first(self) -> bool: ...

    def init(self) -> State:
        """Return what is known beside the averages before the first round."""

    def values(self, latency_s: FloatArray, worst_s: float) -> FloatArray:
        """Return what is averaged for latencies; infinite ones never came. NaN: nothing is."""

    def learn(
        self,
        state: Any,
        clients: IntArray,
        values: FloatArray,
        stats: ClientStats,
        roster: Roster | None,
    ) -> None:
        """Take in values of clients, of which `stats` was remembered before."""

    def speeds(self, state: Any, evidence: Evidence) -> FloatArray:
        """Return an optimistic tau_min / tau of clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Mean of tau_min / tau plus a confidence radius (eq. update_ucb).

    Attributes:
        radius: "paper", "cucb" or "bernstein" (narrower), "none" (trust the means) or a function,
            see bsfl.estimation.radii.
    """

    explores_first: ClassVar[bool] = True

    radius: str | Radius = "paper"

    def __post_init__(self) -> None:
        RADII.resolve("radius", self.radius)

    def init(self) -> NothingLearned:
        return NothingLearned()

    def values(self, latency_s: FloatArray, worst_s: float) -> FloatArray:
        """Return 1 / tau, 0 for an answer that never came."""
        return 1.0 / latency_s

    def learn(
        self,
        state: NothingLearned,
        clients: IntArray,
        values: FloatArray,
        stats: ClientStats,
        roster: Roster | None,
    ) -> None:
        """Learn nothing beside the averages."""

    def speeds(self, state: NothingLearned, evidence: Evidence) -> FloatArray:
        stats, tau_min = evidence.stats, evidence.tau_min
        silent = np.maximum(evidence.selected - stats.answers, 0)
        width = RADII.resolve("radius", self.radius)(
            stats.count + silent,  # c_k counts selections, or the silent were asked for ever
            t=evidence.rounds,
            m=evidence.cohort_size,
            variance=lambda: tau_min**2 * steadied_variance(stats),
        )
        return tau_min * stats.mean + width


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal:
    """A quantile of a client's latency under a hierarchical model of the whole fleet.

    Clients that nobody has met are judged by their features, see bsfl.estimation.lognormal.

    Attributes:
        quantile: Of a client's latency. 0.9: a steady client is worth more than a jittery one;
            0.5: the middle.
        optimism: How many standard deviations of what is not known yet count in its favour.
    """

    explores_first: ClassVar[bool] = False

    quantile: float = 0.9
    optimism: float = 0.5

    def __post_init__(self) -> None:
        checks.between("quantile", self.quantile, 0.01, 0.999)
        checks.at_least("optimism", self.optimism, 0.0)

    def init(self) -> lognormal.Population:
        return lognormal.Population()

    def values(self, latency_s: FloatArray, worst_s: float) -> FloatArray:
        """Return ln tau; an answer that never came counts as the worst one known."""
        return np.log(np.where(np.isfinite(latency_s), latency_s, worst_s or np.nan))

    def learn(
        self,
        state: lognormal.Population,
        clients: IntArray,
        values: FloatArray,
        stats: ClientStats,
        roster: Roster | None,
    ) -> None:
        lognormal.learn(state, clients, values, stats, roster)

    def speeds(self, state: lognormal.Population, evidence: Evidence) -> FloatArray:
        """Return tau_min over the quantile, lifted by what is not known yet."""
        posterior = lognormal.Judge(state, evidence.roster)(evidence.clients, _heard(evidence))
        bonus = self.optimism * np.sqrt(posterior.variance)
        lifted = np.clip(bonus - posterior.quantile(self.quantile), -HIGHEST, HIGHEST)
        return evidence.tau_min * np.exp(lifted)


INDICES: Registry[type] = Registry("index", {"means": Means, "lognormal": Lognormal})


def _heard(evidence: Evidence) -> ClientStats:
    """Let clients that were asked and never answered count as if they had shown the worst."""
    stats, asked = evidence.stats, evidence.selected
    silent = (asked > 0) & (stats.answers == 0)
    if not silent.any():
        return stats
    worst = np.log(evidence.worst_s or 1.0)
    count, mean = np.where(silent, asked, stats.count), np.where(silent, worst, stats.mean)
    return ClientStats(stats.answers, count, mean, stats.spread)


def steadied_variance(stats: ClientStats) -> FloatArray:
    """Return the variance of each client's values, its few answers steadied by the fleet's.

    V_k = (spread_k + n0 (v mean_k)^2) / (c_k - 1 + n0), where v is the coefficient of variation
    within clients over the whole fleet. Two equal answers do not make a client steady.
    """
    freedom = np.maximum(stats.count - 1, 0.0)
    known = (freedom > 0) & (stats.mean > 0)
    relative = stats.spread[known] / stats.mean[known] ** 2
    v2 = float(relative.sum() / freedom[known].sum()) if known.any() else 1.0
    squares = stats.spread + PRIOR_ANSWERS * v2 * stats.mean**2
    return np.asarray(squares / (freedom + PRIOR_ANSWERS))
