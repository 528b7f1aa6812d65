"""Oort: clients with large losses that are fast enough (Lai et al. 2021)."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bsfl import validation
from bsfl._core.state import ROUNDS, ClientState, number, per_client
from bsfl.estimators.moments import censored_latency
from bsfl.policy import (
    LOSS,
    SAMPLES,
    Policy,
    check_covers,
    freeze_arrays,
    share_of,
    top_m,
    weighted_draw,
)
from bsfl.types import FloatArray, IntArray, Rng, RoundContext, RoundReport

STALENESS = 0.1
"""Factor of ln t in the bonus for rounds without a selection."""


@dataclass(slots=True, kw_only=True)
class OortState(ClientState):
    """What Oort has learned.

    Attributes:
        utility: Statistical utility of each client's last response, 0 without one.
        duration: Latency of its last response in seconds, infinite while unknown.
        percentile: Percentile of the durations that T is, raised by the pacer.
        window: Number of the pacer's current window of rounds, starting at 0.
        utility_now: Sum of the utilities reported for the current window.
        utility_before: The same for the window before.
    """

    utility: FloatArray = per_client(0.0, low=0.0)
    duration: FloatArray = per_client(np.inf, low=1e-9)
    percentile: float = number(0.0, low=0.0, high=100.0)
    window: int = number(0, high=ROUNDS)
    utility_now: float = number(0.0, low=0.0)
    utility_before: float = number(0.0, low=0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Oort(Policy):
    r"""Draw mostly clients with large losses that are fast enough, and explore unseen ones.

    score_k = (min-max of clipped U_k + sqrt(0.1 ln t / last_k)) min(1, (T / duration_k)^penalty)
    with the utility U_k = n_k loss_k, the round last_k in which k was last selected, and the
    preferred duration T, a percentile of all durations that the pacer raises when utility stalls.

    >>> from bsfl import Observation, Scheduler
    >>> scheduler = Scheduler(Oort(explore_min=0.0, cut_off=1.0), cohort_size=1)
    >>> scheduler.join(["ann", "bob"], samples=[9, 9])
    >>> ann, bob = (Observation(latency_s=1.0, loss=loss) for loss in (0.1, 2.0))
    >>> cohort = scheduler.select(cohort_size=2)
    >>> rejected = scheduler.observe({"ann": ann, "bob": bob}, round=cohort)
    >>> scheduler.select()
    ['bob']

    Attributes:
        tau_max: Deadline in seconds; None: no deadline.
        percentile: Percentile of the durations that T starts at; 100: no client is too slow.
        pacer_step: Percentage points that the pacer adds.
        pacer_rounds: Rounds in a window of the pacer.
        penalty: Exponent for clients slower than T.
        clip: Quantile of the utilities above which they are clipped.
        cut_off: A client enters the draw if its score is at least this fraction of the smallest of
            the best scores.
        explore: Fraction of the cohort that is unseen in the first round (epsilon).
        explore_decay: Factor of epsilon per round.
        explore_min: Smallest epsilon.
        expected_s: Expected latency of each client in seconds, by dense index: unseen clients are
            selected in this order. None: at random.
    """

    needs: ClassVar = LOSS | SAMPLES
    search_space: ClassVar = ({"percentile": 10.0}, {"percentile": 60.0}, {"explore": 0.5})
    example: ClassVar = {"tau_max": 20.0}

    tau_max: float | None = None
    percentile: float = 30.0
    pacer_step: float = 5.0
    pacer_rounds: int = 20
    penalty: float = 2.0
    clip: float = 0.95
    cut_off: float = 0.95
    explore: float = 0.9
    explore_decay: float = 0.98
    explore_min: float = 0.2
    expected_s: FloatArray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.tau_max is not None:
            validation.seconds("tau_max", self.tau_max)
        validation.between("percentile", self.percentile, 0.0, 100.0)
        validation.between("pacer_step", self.pacer_step, 0.0, 100.0)
        validation.natural("pacer_rounds", self.pacer_rounds)
        validation.between("penalty", self.penalty, 0.0, 100.0)
        for name in ("clip", "cut_off", "explore", "explore_decay", "explore_min"):
            validation.between(name, getattr(self, name), 0.0, 1.0)
        freeze_arrays(self, "expected_s")

    def init(self, n_clients: int) -> OortState:
        check_covers(self, n_clients, "expected_s")
        return OortState.of(n_clients, percentile=self.percentile)

    def select(self, state: OortState, context: RoundContext, rng: Rng) -> IntArray:
        """Return clients drawn by score, and unseen ones; if one kind runs out, the other fills."""
        clients, m = context.available, context.n_invited
        if len(clients) <= m:
            return clients
        seen = context.task.last_selected[clients] > 0
        known, unseen = clients[seen], clients[~seen]
        n_known = min(share_of(m, 1.0 - self.exploration(context.round)), len(known))
        n_unseen = min(m - n_known, len(unseen))
        expected_s = np.zeros(len(unseen)) if self.expected_s is None else self.expected_s[unseen]
        explored = unseen[top_m(-expected_s, n_unseen, rng)]
        exploited = known[self.exploit(state, context, known, m - n_unseen, rng)]
        return np.sort(np.concatenate([explored, exploited]))

    def observe(self, state: OortState, context: RoundContext, report: RoundReport) -> None:
        utility = statistical_utility(report.samples, report.loss)
        known = ~np.isnan(utility)
        invited = report.invited
        if self.tau_max is not None:  # the upper limit, also for clients that never respond
            state.duration[invited] = np.minimum(state.duration[invited], self.tau_max)
        state.utility[report.clients[known]] = utility[known]
        state.duration[report.clients] = censored_latency(report, self.tau_max)
        self.pace(state, context.round, float(utility[known].sum()))

    def exploration(self, t: int) -> float:
        """Return epsilon in round t: explore x decay^(t-1), at least explore_min."""
        return max(self.explore * self.explore_decay ** (t - 1), self.explore_min)

    def exploit(
        self, state: OortState, context: RoundContext, known: IntArray, n: int, rng: Rng
    ) -> IntArray:
        """Return the positions of n known clients, drawn by score among the best ones."""
        if n == 0:
            return np.arange(0)
        score = self.scores(state, context, known)
        cut = self.cut_off * np.partition(score, -n)[-n]
        pool = np.flatnonzero(score >= cut)
        with np.errstate(divide="ignore"):
            return pool[weighted_draw(np.log(score[pool]), n, rng)]

    def scores(self, state: OortState, context: RoundContext, known: IntArray) -> FloatArray:
        """Return score_k of clients that were selected before."""
        staleness = np.sqrt(STALENESS * np.log(context.round) / context.task.last_selected[known])
        utility = clipped_and_scaled(state.utility[known], self.clip)
        preferred_s = preferred_duration(state.duration, state.percentile)
        score: FloatArray = utility + staleness
        return score * speed_penalty(state.duration[known], preferred_s, self.penalty)

    def pace(self, state: OortState, t: int, utility: float) -> None:
        """Add the utility of a report to its window; raise the percentile when a window stalls.

        A window stalls when its utility does not exceed that of the window before. Both are
        complete at the first report of the next window.
        """
        window = (t - 1) // self.pacer_rounds
        n_complete = window - state.window
        if n_complete > 0:
            has_stalled = state.window >= 1 and state.utility_now <= state.utility_before
            n_stalled = n_complete - 1 + has_stalled  # windows without responses stall, too
            state.percentile = min(100.0, state.percentile + self.pacer_step * n_stalled)
            state.utility_before = state.utility_now if n_complete == 1 else 0.0
            state.utility_now, state.window = utility, window
        elif n_complete == 0:
            state.utility_now += utility
        elif n_complete == -1:  # a late response
            state.utility_before += utility


def statistical_utility(samples: FloatArray, loss: FloatArray) -> FloatArray:
    r"""Return n_k |loss_k|, the paper's n_k sqrt(mean of squared losses).

    Departure: a report holds one loss per client, which is taken as the root mean square; the
    plain mean is never larger.
    """
    return samples * np.abs(loss)


def clipped_and_scaled(utility: FloatArray, quantile: float) -> FloatArray:
    r"""Return utilities clipped at their quantile and scaled to [0, 1]; 0 when all are equal.

    >>> clipped_and_scaled(np.array([1.0, 2.0, 3.0, 99.0]), 0.5)
    array([0. , 0.5, 1. , 1. ])
    """
    clipped = np.minimum(utility, rank_quantile(utility, quantile))
    low, high = clipped.min(), clipped.max()
    return (clipped - low) / (high - low) if high > low else np.zeros(len(utility))


def rank_quantile(values: FloatArray, quantile: float) -> float:
    """Return the value at position floor(n quantile) by rising size, at most the last.

    >>> [rank_quantile(np.array([30.0, 10.0, 20.0, 40.0]), q) for q in (0.0, 0.3, 0.5, 1.0)]
    [10.0, 20.0, 30.0, 40.0]
    """
    place = min(int(len(values) * quantile), len(values) - 1)
    return float(np.partition(values, place)[place])


def preferred_duration(duration: FloatArray, percentile: float) -> float:
    """Return T: a percentile of the known durations, infinite from 100 on."""
    known = duration[np.isfinite(duration)]
    if percentile >= 100.0 or len(known) == 0:
        return np.inf
    return rank_quantile(known, percentile / 100.0)


def speed_penalty(duration: FloatArray, preferred_s: float, exponent: float) -> FloatArray:
    r"""Return (T / duration)^exponent for clients slower than T, 1 for the others.

    Without a deadline, a client whose first response is pending, or that failed last, has an
    infinite duration and the factor 0.
    """
    known = np.isfinite(duration)
    ratio = np.minimum(1.0, preferred_s / np.where(known, duration, 1.0))
    return np.where(known, ratio**exponent, 0.0)
