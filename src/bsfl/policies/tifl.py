"""TiFL: tiers of equally fast clients, the one with the largest loss first (Chai et al. 2020)."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bsfl import validation
from bsfl._core.state import ROUNDS, number, per_client
from bsfl.errors import InvalidInput
from bsfl.estimators.moments import Averages, censored_latency
from bsfl.policy import LOSS, Policy
from bsfl.types import BoolArray, FloatArray, IntArray, Rng, RoundContext, RoundReport

MOST_TIERS = 10_000
"""Largest number of tiers."""


@dataclass(slots=True, kw_only=True)
class TiflState(Averages):
    """Averages of 1 - tau / tau_max, and the tiers, fastest first.

    Attributes:
        formed: Whether the profiling phase is over.
        bound_s: Mean latency from which a client belongs to the next tier, one less than tiers.
        spent: Rounds in which each tier was selected.
        probability: Of each tier, before credits are considered.
        period: How many times the probabilities were due.
    """

    mean: FloatArray = per_client(0.0, high=1.0)
    formed: bool = False
    bound_s: FloatArray = field(metadata={"low": 0.0, "high": np.inf})
    spent: IntArray
    probability: FloatArray = field(metadata={"low": 0.0, "high": 1.0})
    period: int = number(0, high=ROUNDS)

    def check(self) -> None:
        """Check that tiers are in order."""
        if np.any(self.bound_s[1:] < self.bound_s[:-1]):
            raise InvalidInput("bound_s must rise from tier to tier")


@dataclass(frozen=True, slots=True, kw_only=True)
class TiFL(Policy):
    """Sort clients into tiers by speed, and draw each cohort from one tier.

    Every client is profiled first: it is selected once. Then the clients are divided into tiers of
    equal size by mean latency. Tiers with credits are drawn with probabilities that favour those
    with the largest losses; a draw costs one credit.

    >>> from bsfl import Observation, Scheduler
    >>> scheduler = Scheduler(TiFL(tau_max=10.0, rounds=20, tiers=2), cohort_size=2)
    >>> latency_s = {"ann": 1.0, "bob": 8.0, "cem": 1.5, "dan": 7.0}
    >>> cohort = scheduler.select(list(latency_s), cohort_size=4)
    >>> scheduler.observe({k: Observation(latency_s=latency_s[k], loss=1.0) for k in cohort})
    {}
    >>> scheduler.select() in (["ann", "cem"], ["bob", "dan"])
    True

    Attributes:
        tau_max: Deadline in seconds; a later response, or none, counts as this latency.
        rounds: How many rounds are planned: each tier gets ceil(rounds / tiers) credits, and as
            many again when all tiers have spent theirs.
        tiers: Number of tiers.
        interval: Rounds between two updates of the probabilities.
    """

    state_keys: ClassVar = ("tau_max", "tiers")
    needs: ClassVar = LOSS
    search_space: ClassVar = ({"rounds": 150}, {"tiers": 10}, {"tiers": 3})
    example: ClassVar = {"tau_max": 20.0, "rounds": 30}

    tau_max: float
    rounds: int = 500
    tiers: int = 5
    interval: int = 10

    def __post_init__(self) -> None:
        validation.natural("rounds", self.rounds)
        validation.natural("tiers", self.tiers, high=MOST_TIERS)
        validation.natural("interval", self.interval)
        validation.seconds("tau_max", self.tau_max)

    def init(self, n_clients: int) -> TiflState:
        return TiflState.of(
            n_clients,
            bound_s=np.full(self.tiers - 1, np.inf),
            spent=np.zeros(self.tiers, dtype=np.int64),
            probability=np.full(self.tiers, 1.0 / self.tiers),
        )

    def select(self, state: TiflState, context: RoundContext, rng: Rng) -> IntArray:
        """Return unseen clients, to profile them; the other places go to clients of one tier."""
        clients, m = context.available, context.n_invited
        if len(clients) <= m:
            return clients
        is_unseen = context.task.invitations[clients] == 0
        unseen = clients[is_unseen]
        if len(unseen) >= m:
            return np.sort(rng.choice(unseen, m, replace=False, shuffle=False))
        n_places, seen = m - len(unseen), clients[~is_unseen]
        bound_s = state.bound_s
        if not state.formed:
            bound_s = self.bounds(state, context.task.invitations > 0)
        tier = self.tiers_of(state, seen, bound_s)
        drawn = self.draw_tier(state, tier, n_places, rng)
        nearest = np.lexsort((rng.random(len(seen)), np.abs(tier - drawn)))
        return np.sort(np.concatenate([unseen, seen[nearest[:n_places]]]))

    def observe(self, state: TiflState, context: RoundContext, report: RoundReport) -> None:
        self.charge(state, context, report.invited)
        state.learn(report, 1.0 - censored_latency(report, self.tau_max) / self.tau_max)
        if context.round // self.interval > state.period:
            state.period = context.round // self.interval
            if state.formed:
                state.bound_s[:] = self.bounds(state, context.task.invitations > 0)
                self.update_probabilities(state, context.task.last_loss)

    def charge(self, state: TiflState, context: RoundContext, invited: IntArray) -> None:
        """Charge the tier that filled a round one credit; form the tiers before the first."""
        seen = invited[context.task.invitations[invited] > 1]
        if len(invited) < context.n_invited or len(seen) == 0:
            return  # all available clients were selected, or the whole cohort was profiled
        if not state.formed:
            profiled = context.task.invitations > 0
            profiled[np.setdiff1d(invited, seen)] = False
            state.bound_s[:] = self.bounds(state, profiled)
            state.formed = True
        state.spent[np.bincount(self.tiers_of(state, seen, state.bound_s)).argmax()] += 1

    def update_probabilities(self, state: TiflState, last_loss: FloatArray) -> None:
        """Rank the tiers by the mean of their clients' last losses; O(K)."""
        clients = np.flatnonzero(~np.isnan(last_loss))
        tier = self.tiers_of(state, clients, state.bound_s)
        loss = tier_losses(tier, last_loss[clients], self.tiers)
        state.probability[:] = rank_probabilities(loss)

    def bounds(self, state: TiflState, profiled: BoolArray) -> FloatArray:
        """Return the mean latencies at which tiers of equal size begin, except for the fastest."""
        latency = self.latencies(state, np.flatnonzero(profiled))
        if not len(latency):  # every profiled client was forgotten
            return np.full(self.tiers - 1, np.inf)
        places = np.arange(1, self.tiers) * len(latency) // self.tiers
        return np.partition(latency, places)[places]

    def tiers_of(self, state: TiflState, clients: IntArray, bound_s: FloatArray) -> IntArray:
        """Return the tier that each client belongs to by its mean latency."""
        return np.searchsorted(bound_s, self.latencies(state, clients), side="right")

    def latencies(self, state: TiflState, clients: IntArray) -> FloatArray:
        """Return mean latencies in seconds; tau_max for a client that never reported."""
        return self.tau_max * (1.0 - state.mean[clients])

    def draw_tier(self, state: TiflState, tier: IntArray, n_places: int, rng: Rng) -> int:
        """Return a tier that has credits and enough available clients, by probability.

        If no tier has both, the tier of a uniformly drawn available client is returned.
        """
        n_inside = np.bincount(tier, minlength=self.tiers)
        weight = state.probability * (self.credits(state) > 0) * (n_inside >= n_places)
        if not weight.any():
            weight = n_inside.astype(np.float64)
        return int(rng.choice(self.tiers, p=weight / weight.sum()))

    def credits(self, state: TiflState) -> IntArray:
        """Return each tier's remaining credits of ceil(rounds / tiers), refilled when all are 0."""
        per_tier = math.ceil(self.rounds / self.tiers)
        return per_tier * (1 + int(state.spent.min()) // per_tier) - state.spent


def tier_losses(tier: IntArray, loss: FloatArray, n_tiers: int) -> FloatArray:
    """Return the mean loss of the clients in each tier, -inf where there are none."""
    count = np.bincount(tier, minlength=n_tiers)
    total = np.bincount(tier, weights=loss, minlength=n_tiers)
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
