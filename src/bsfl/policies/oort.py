"""Oort: clients with much loss that are quick enough (Lai et al. 2021)."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bsfl import checks
from bsfl.estimation.averages import believed_latency
from bsfl.policies.base import part_of, top_m, weighted_draw
from bsfl.records import FloatArray, IntArray, Report, Rng, RoundContext
from bsfl.requirements import LOSS, SAMPLES, keep_known, must_cover, require_losses, sample_counts
from bsfl.state import ClientState, number, per_client

STALENESS = 0.1
"""Factor of ln t in the bonus of a client that was not chosen for long."""


@dataclass(slots=True, kw_only=True)
class OortState(ClientState):
    """What Oort has learned.

    Attributes:
        last_chosen: Round in which the client was last chosen, 0 if never.
        utility: Statistical utility when it last answered, 0 if it never did.
        duration: Seconds it last took, infinite while unknown.
        percentile: Where in the durations the preferred one is, moved by the pacer.
        window: Number of the pacer's current window of rounds, starting at 0.
        utility_now: Sum of the utilities reported for the current window.
        utility_before: The same for the window before.
    """

    last_chosen: IntArray = per_client(0)
    utility: FloatArray = per_client(0.0, low=0.0)
    duration: FloatArray = per_client(np.inf, low=1e-9)
    percentile: float = number(0.0, low=0.0, high=100.0)
    window: int = 0
    utility_now: float = number(0.0, low=0.0)
    utility_before: float = number(0.0, low=0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Oort:
    r"""Draw mostly clients with large losses that are fast enough, and try new ones.

    Draw most of the cohort among the best scores, the rest among clients never chosen.

    score_k = (min-max of clipped U_k + sqrt(0.1 ln t / last_k)) min(1, (T / duration_k)^penalty)
    with the utility U_k = n_k loss_k, the round last_k in which k was last chosen, and the
    preferred duration T, a percentile of all durations that the pacer raises when utility stalls.

    Attributes:
        tau_max: Deadline in seconds; None: no deadline.
        percentile: Percentile of the durations that T starts at; 100: no client is too slow.
        pacer_step: Percentage points that the pacer adds.
        pacer_rounds: Rounds between two looks of the pacer.
        penalty: Exponent for clients slower than T.
        clip: Quantile of the utilities above which they are clipped.
        cut_off: Share of the last score of the top that still enters the draw.
        explore: Share of the cohort that is new in the first round (epsilon).
        explore_decay: Factor of epsilon per round.
        explore_min: Smallest epsilon.
        expected_s: Seconds expected of each client, by dense index: among clients never chosen the
            quickest come first. None: at random.
    """

    needs: ClassVar = LOSS | SAMPLES
    tuning: ClassVar = ({"percentile": 10.0}, {"percentile": 60.0}, {"explore": 0.5})
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
            checks.seconds("tau_max", self.tau_max)
        checks.between("percentile", self.percentile, 0.0, 100.0)
        checks.between("pacer_step", self.pacer_step, 0.0, 100.0)
        checks.natural("pacer_rounds", self.pacer_rounds)
        checks.between("penalty", self.penalty, 0.0, 100.0)
        for name in ("clip", "cut_off", "explore", "explore_decay", "explore_min"):
            checks.between(name, getattr(self, name), 0.0, 1.0)
        keep_known(self, "expected_s")

    def init(self, n_clients: int) -> OortState:
        must_cover(self, n_clients, "expected_s")
        return OortState.of(n_clients, percentile=self.percentile)

    def select(self, state: OortState, context: RoundContext, rng: Rng) -> IntArray:
        """Return clients drawn by score, and new ones; where one kind runs out, the other fills."""
        clients, m = context.available, context.cohort_size
        if len(clients) <= m:
            return clients
        met = state.last_chosen[clients] > 0
        known, new = clients[met], clients[~met]
        n_known = min(part_of(m, 1.0 - self.exploration(context.t)), len(known))
        n_new = min(m - n_known, len(new))
        explored = new[self.newcomers(new, n_new, rng)]
        exploited = known[self.best(state, context, known, m - n_new, rng)]
        return np.sort(np.concatenate([explored, exploited]))

    def observe(self, state: OortState, context: RoundContext, report: Report) -> None:
        require_losses("oort", report)
        utility = statistical_utility(sample_counts("oort", report, context), report.loss)
        known = ~np.isnan(utility)
        state.last_chosen[report.chosen] = context.t
        if self.tau_max is not None:  # nobody is slower, not even those that never answer
            state.duration[report.chosen] = np.minimum(state.duration[report.chosen], self.tau_max)
        state.utility[report.clients[known]] = utility[known]
        state.duration[report.clients] = believed_latency(report, self.tau_max)
        self.pace(state, context.t, float(utility[known].sum()))

    def exploration(self, t: int) -> float:
        """Return epsilon in round t: explore x decay^(t-1), at least explore_min."""
        return max(self.explore * self.explore_decay ** (t - 1), self.explore_min)

    def newcomers(self, new: IntArray, n: int, rng: Rng) -> IntArray:
        """Return the positions of n clients never chosen: the quickest, or any."""
        speed = np.zeros(len(new)) if self.expected_s is None else -self.expected_s[new]
        return top_m(speed, n, rng)

    def best(
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
        staleness = np.sqrt(STALENESS * np.log(context.t) / state.last_chosen[known])
        utility = clipped_and_scaled(state.utility[known], self.clip)
        preferred_s = preferred_duration(state.duration, state.percentile)
        score: FloatArray = utility + staleness
        return score * speed_penalty(state.duration[known], preferred_s, self.penalty)

    def pace(self, state: OortState, t: int, utility: float) -> None:
        """Add the utility of a report to its window; raise the percentile when a window stalls.

        A window stalls when its utility does not exceed that of the window before. Both are
        complete when the first report of the next one comes in.
        """
        window = (t - 1) // self.pacer_rounds
        for _ in range(2):  # a window in which nobody answered does not exceed the one before
            if state.window >= window:
                break
            if state.window >= 1 and state.utility_now <= state.utility_before:
                state.percentile = min(100.0, state.percentile + self.pacer_step)
            state.utility_before, state.utility_now = state.utility_now, 0.0
            state.window += 1
        if state.window < window:
            raised = state.percentile + self.pacer_step * (window - state.window)
            state.percentile, state.window = min(100.0, raised), window
        if window == state.window:
            state.utility_now += utility
        elif window == state.window - 1:  # an answer that came late
            state.utility_before += utility


def statistical_utility(samples: FloatArray, loss: FloatArray) -> FloatArray:
    r"""Return n_k |loss_k|, the paper's n_k sqrt(mean of squared losses).

    Departure: a report holds one loss, so what the caller reports is taken for the root mean
    square; the plain mean is never larger.
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
    """Return T: a percentile of the durations that are known, infinite from 100 on."""
    known = duration[np.isfinite(duration)]
    if percentile >= 100.0 or len(known) == 0:
        return np.inf
    return rank_quantile(known, percentile / 100.0)


def speed_penalty(duration: FloatArray, preferred_s: float, exponent: float) -> FloatArray:
    r"""Return (T / duration)^exponent for clients slower than T, 1 for the others.

    Where there is no deadline, a client that owes its first answer, or failed last time, has an
    infinite duration and gets 0.
    """
    known = np.isfinite(duration)
    ratio = np.zeros(len(duration))
    ratio[known] = np.minimum(1.0, preferred_s / duration[known])
    return np.where(known, ratio**exponent, 0.0)
