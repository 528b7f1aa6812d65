"""TiFL: tiers of equally fast clients, the worst learned one most likely (Chai et al. 2020)."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.estimation.averages import Averages, believed_latency
from bsfl.records import FloatArray, IntArray, Report, Rng, RoundContext
from bsfl.requirements import LOSS, keep_losses, require_losses
from bsfl.state import per_client

NO_TIER = -1
"""The tier of a client that has none yet."""
MOST_TIERS = 10_000
"""Largest number of tiers."""


@dataclass(slots=True, kw_only=True)
class TiflState(Averages):
    """Averages of 1 - tau / tau_max, and the tiers.

    Attributes:
        loss: Last loss each client reported, NaN if it never did.
        tier: The tier of each client, fastest first; NO_TIER until it has one.
        formed: Whether the profiling phase is over.
        bound_s: Mean latency from which a client belongs to the next tier, one less than tiers.
        spent: Rounds in which each tier was chosen.
        probability: Of each tier, before credits are looked at.
        period: How many times the probabilities were due.
    """

    loss: FloatArray = per_client(np.nan)
    tier: IntArray = per_client(NO_TIER, low=NO_TIER, high=MOST_TIERS)
    formed: bool = False
    bound_s: FloatArray = field(metadata={"low": 0.0, "high": np.inf})
    spent: IntArray
    probability: FloatArray = field(metadata={"low": 0.0, "high": 1.0})
    period: int = 0

    def check(self) -> None:
        """Check tiers, that all who were chosen have one once they are formed, and means."""
        wrong = self.tier >= len(self.spent)
        if self.formed:
            wrong |= (self.tier == NO_TIER) & (self.selected > 0)
        if wrong.any() or np.any(self.bound_s[1:] < self.bound_s[:-1]):
            raise InvalidInput("tiers do not fit together")
        if np.any(self.mean > 1.0):
            raise InvalidInput("a mean latency is below 0 s")


@dataclass(frozen=True, slots=True, kw_only=True)
class TiFL:
    """Sort clients into tiers by speed, and draw each cohort from one tier.

    Draw a tier of clients with similar latencies, then m clients of it, uniformly.

    Every client is profiled first: it is chosen once. Then the fleet is cut into tiers of equal
    size by mean latency. Tiers with credits are drawn with probabilities that favour those with the
    largest losses; a draw costs one credit.

    Attributes:
        tau_max: Deadline in seconds; what comes later, or not at all, counts as that slow.
        rounds: How many rounds are planned: each tier gets ceil(rounds / tiers) credits, and again
            as many when all tiers have spent theirs.
        tiers: Number of tiers.
        interval: Rounds between two updates of the probabilities.
    """

    REMEMBERS_BY: ClassVar = ("tau_max", "tiers")
    needs: ClassVar = LOSS
    tuning: ClassVar = ({"rounds": 150}, {"tiers": 10}, {"tiers": 3})
    example: ClassVar = {"tau_max": 20.0, "rounds": 30}

    tau_max: float
    rounds: int = 500
    tiers: int = 5
    interval: int = 10

    def __post_init__(self) -> None:
        for name, high in (
            ("rounds", checks.LARGEST),
            ("tiers", MOST_TIERS),
            ("interval", checks.LARGEST),
        ):
            checks.natural(name, getattr(self, name), high=high)
        checks.seconds("tau_max", self.tau_max)

    def init(self, n_clients: int) -> TiflState:
        return TiflState.of(
            n_clients,
            bound_s=np.full(self.tiers - 1, np.inf),
            spent=np.zeros(self.tiers, dtype=np.int64),
            probability=np.full(self.tiers, 1.0 / self.tiers),
        )

    def select(self, state: TiflState, context: RoundContext, rng: Rng) -> IntArray:
        """Return clients to profile, and where there are too few, clients of one tier."""
        clients, m = context.available, context.cohort_size
        if len(clients) <= m:
            return clients
        new = state.selected[clients] == 0
        fresh = clients[new]
        if len(fresh) >= m:
            return np.sort(rng.choice(fresh, m, replace=False, shuffle=False))
        n_places, old = m - len(fresh), clients[~new]
        tier = state.tier[old] if state.formed else self.tiers_of(state, old, self.bounds(state))
        drawn = self.draw_tier(state, tier, n_places, rng)
        nearest = np.lexsort((rng.random(len(old)), np.abs(tier - drawn)))
        return np.sort(np.concatenate([fresh, old[nearest[:n_places]]]))

    def observe(self, state: TiflState, context: RoundContext, report: Report) -> None:
        require_losses("tifl", report)
        self.spend(state, context, report.chosen)
        if state.formed:
            state.tier[report.chosen[state.selected[report.chosen] == 0]] = self.tiers - 1
        state.learn(report, 1.0 - believed_latency(report, self.tau_max) / self.tau_max)
        keep_losses(state.loss, report)
        if state.formed:
            state.tier[report.clients] = self.tiers_of(state, report.clients, state.bound_s)
        if context.t // self.interval > state.period:
            state.period = context.t // self.interval
            if state.formed:
                self.form(state)
                state.probability[:] = rank_probabilities(tier_losses(state))

    def spend(self, state: TiflState, context: RoundContext, chosen: IntArray) -> None:
        """Book a round that a tier filled; before the first one the tiers are formed."""
        old = chosen[state.selected[chosen] > 0]
        if len(chosen) < context.cohort_size or len(old) == 0:
            return  # nobody had to be left out, or the whole cohort was profiled
        if not state.formed:
            self.form(state)
        state.spent[np.bincount(state.tier[old]).argmax()] += 1

    def form(self, state: TiflState) -> None:
        """Cut the clients that were profiled into tiers; O(K)."""
        met = np.flatnonzero(state.selected > 0)
        state.bound_s[:] = self.bounds(state)
        state.tier[met] = self.tiers_of(state, met, state.bound_s)
        state.formed = True

    def bounds(self, state: TiflState) -> FloatArray:
        """Return the mean latencies at which tiers of equal size begin, but for the fastest."""
        latency = self.latencies(state, np.flatnonzero(state.selected > 0))
        places = np.arange(1, self.tiers) * len(latency) // self.tiers
        return np.partition(latency, places)[places]

    def tiers_of(self, state: TiflState, clients: IntArray, bound_s: FloatArray) -> IntArray:
        return np.searchsorted(bound_s, self.latencies(state, clients), side="right")

    def latencies(self, state: TiflState, clients: IntArray) -> FloatArray:
        """Return mean latencies in seconds; tau_max for a client that never answered."""
        return self.tau_max * (1.0 - state.mean[clients])

    def draw_tier(self, state: TiflState, tier: IntArray, n_places: int, rng: Rng) -> int:
        """Return a tier that has credits and enough available clients, by probability.

        If no tier has both, every available client is equally likely to bring its tier in.
        """
        n_inside = np.bincount(tier, minlength=self.tiers)
        weight = state.probability * (self.credits(state) > 0) * (n_inside >= n_places)
        if not weight.any():
            weight = n_inside.astype(np.float64)
        return int(rng.choice(self.tiers, p=weight / weight.sum()))

    def credits(self, state: TiflState) -> IntArray:
        """Return what each tier has left of ceil(rounds / tiers), refilled when all are spent."""
        quota = math.ceil(self.rounds / self.tiers)
        return quota * (1 + int(state.spent.min()) // quota) - state.spent


def tier_losses(state: TiflState) -> FloatArray:
    """Return the mean of the last losses in each tier, -inf where there are none."""
    n_tiers = len(state.spent)
    told = (state.tier != NO_TIER) & ~np.isnan(state.loss)
    count = np.bincount(state.tier[told], minlength=n_tiers)
    total = np.bincount(state.tier[told], weights=state.loss[told], minlength=n_tiers)
    return np.where(count > 0, total / np.maximum(count, 1), -np.inf)


def rank_probabilities(loss: FloatArray) -> FloatArray:
    r"""Return probabilities n / D, (n-1) / D, ..., 1 / D by falling loss, D = n (n + 1) / 2.

    Departure: the paper ranks tiers by test accuracy, the lowest first; a report holds losses.

    >>> rank_probabilities(np.array([0.2, 0.9, 0.5]))
    array([0.16666667, 0.5       , 0.33333333])
    """
    n = len(loss)
    probability = np.empty(n)
    probability[np.argsort(-loss, kind="stable")] = np.arange(n, 0, -1) / (n * (n + 1) / 2)
    return probability
