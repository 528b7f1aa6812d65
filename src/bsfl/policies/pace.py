"""Pace: the cohort that teaches most per second."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from bsfl import checks
from bsfl.estimation import evenness, lognormal
from bsfl.estimation.averages import Selections, believed_latency
from bsfl.estimation.ledger import HEARD, absence
from bsfl.estimation.memory import ClientStats, Lasting, LastingState
from bsfl.policies.base import top_m
from bsfl.records import (
    LATE,
    NOBODY,
    OK,
    FloatArray,
    IntArray,
    Report,
    Rng,
    RoundContext,
    in_parts,
    pick,
)
from bsfl.solvers import Choice, solve_exact
from bsfl.state import number

QUANTILE, OPTIMISM = 0.9, 0.5
"""Where all are waited for, a client is judged by this quantile of its latency, less deviations of
what is not known."""
ROUNDS, ANSWERS = 20, 200
"""Rounds that tell the price of a second; more where they have fewer than so many answers."""
RATE = 0.1
"""How much of a round enters the usual participation."""
VAIN = 0.5
"""What an answer that came too late counts of one: else the slowest were asked again and again."""
CHEAPEST = 1e-80
"""Lowest price of a second, where nobody has answered for ever so long."""
KNOWN = 20
"""Cohorts of clients of which the quickest are quick enough; then fewer strangers are asked."""
MEMORY = Lasting()


@dataclass(slots=True, kw_only=True)
class PaceState(Selections):
    """What Pace has learned beside c_k.

    Attributes:
        t, round_s, n_kept: The latest round that was reported, how long it has lasted, and how many
            answers have entered the model in it.
        gain, time_s: Value that answers brought, and the seconds it took; old rounds fade.
        usual: Mean ln((c_k + 1) / (e_k + 1)) of those who answer; value is counted from there.
        slowest_s: Largest latency seen; 0 before the first.
        n_answered, n_lost: Answers of clients that had answered before, and those that were lost.
        memory, population: Logarithms of latencies, of each client and of the fleet.
        trend: How losses depend on participation.
    """

    t: int = 0
    round_s: float = number(0.0, low=0.0, high=1e12)
    n_kept: int = 0
    gain: float = number(0.0, low=0.0, high=1e60)
    time_s: float = number(0.0, low=0.0, high=1e30)
    usual: float = number(0.0, low=-50.0, high=50.0)
    slowest_s: float = number(0.0, low=0.0, high=1e12)
    n_answered: int = 0
    n_lost: int = 0
    memory: LastingState
    population: lognormal.Population
    trend: evenness.LossTrend


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    r"""Choose the cohort that teaches most per second; nothing has to be set.

    It maximises sum_S v_k - lambda max_S tau_k, where lambda is the value per second so far, tau_k
    how long client k may take, and v_k = ((e_k + 1) / (c_k + 1))^f what it may teach: c_k counts
    its answers, e_k its fair number of them by the rounds in which it could be chosen. f is learned
    from the losses that clients report, see bsfl.estimation.evenness.

    Attributes:
        evenness: f, if it shall not be learned: 0 for speed alone, 1 for equal time for everyone,
            more for more even numbers of rounds.
        least_share: Part of its fair number of rounds that every client is given, whatever it
            costs: 0.8 for 80 %.
        tau_max: Deadline in seconds; latencies beyond it are cut to it. None: no deadline.
    """

    example: ClassVar = {"least_share": 0.5}

    evenness: float | None = None
    least_share: float = 0.0
    tau_max: float | None = None

    def __post_init__(self) -> None:
        if self.evenness is not None:
            checks.between("evenness", self.evenness, 0.0, evenness.HIGHEST)
        checks.between("least_share", self.least_share, 0.0, 1.0)
        if self.tau_max is not None:
            checks.seconds("tau_max", self.tau_max)

    def init(self, n_clients: int) -> PaceState:
        return PaceState.of(
            n_clients,
            memory=MEMORY.init(n_clients),
            population=lognormal.Population(),
            trend=evenness.LossTrend(),
        )

    def select(self, state: PaceState, context: RoundContext, rng: Rng) -> IntArray:
        return self.choice(state, context, rng).cohort

    def choice(self, state: PaceState, context: RoundContext, rng: Rng) -> Choice:
        """Return the cohort with what it was weighed by, in seconds."""
        available, n = context.available, context.cohort_size
        if len(available) <= n:
            return Choice(cohort=available, available=available)
        e = context.fair(available, len(state.selected))
        fair = np.broadcast_to(e, len(available))
        chances = fair, pick(state.selected, available), pick(state.late, available)
        if not (state.gain and state.time_s):  # no answer yet, so a second has no price
            value = in_parts(partial(self._value, state), *chances)
            return Choice(
                cohort=available[top_m(value, n, rng)],
                available=available,
                clients=available,
                u=np.zeros(len(value)),
                g=value,
                alpha=float(n),
            )
        seconds = self.seconds(state, context)
        price = max(state.gain / state.time_s, CHEAPEST)
        longest = price * seconds.max()  # what the longest wait costs
        value = in_parts(partial(self._value, state), *chances)
        if 2.0 * HEARD * np.max(e) > 1.0:
            missed = in_parts(_missed, *chances)
            value += np.minimum(missed, n) * (longest / context.quota)
        if self.least_share:
            owed = np.maximum(self.least_share * fair - in_parts(_served, *chances[1:]), 0.0)
            value += owed * (n * value.max() + longest)
        tie = 1e-9 * value.max()  # at random
        draws = rng.random(len(value), dtype=np.float32)
        value += tie * draws
        first = _strangers(state, context, seconds, rng)
        others = np.arange(len(available))
        others = np.delete(others, first) if len(first) else others
        n_places = n - len(first)
        u, value = pick(np.negative(seconds, out=seconds), others), pick(value, others)
        alpha = context.quota / price * n_places / n
        best = others[solve_exact(u, value, n_places, alpha=alpha)]
        return Choice(
            cohort=available[np.sort(np.concatenate([first, best]))],
            available=available,
            first=available[first],
            clients=pick(available, others),
            u=u,
            g=value,
            alpha=alpha,
            unit="s",
        )

    def observe(self, state: PaceState, context: RoundContext, report: Report) -> None:
        latency = believed_latency(report, self.tau_max)
        state.slowest_s = float(max(state.slowest_s, latency[latency < np.inf].max(initial=0.0)))
        latency[np.isinf(latency)] = self.tau_max or state.slowest_s or np.nan
        state.book(report)
        regular = state.memory.observed[report.clients] > 0
        state.n_answered += int(np.count_nonzero(regular & report.answered))
        state.n_lost += int(np.count_nonzero(regular & ~report.answered))
        known = ~np.isnan(latency)
        # whose answer is lost costs no second where others stand in for it
        heard = known & (report.answered | (context.quota == context.cohort_size))
        clients, values = report.clients[heard], np.log(latency[heard])
        stats = MEMORY.recall(state.memory, clients, context.t)
        lognormal.learn(state.population, clients, values, stats, context.roster)
        MEMORY.add(state.memory, clients, context.t, values)
        kept = report.outcome == OK
        who = report.clients[kept]
        fair = context.fair(who, len(state.selected))
        x = np.log(np.maximum(state.served(who), 1) / (fair + 1.0))  # this answer is counted
        evenness.learn(state.trend, x, report.loss[kept], context.t)
        if len(who):
            part = RATE * min(1.0, len(who) / context.quota) if state.gain else 1.0
            state.usual += part * float(x.mean() - state.usual)
        gain = float(np.exp(self.exponent(state) * (state.usual - x)).sum())
        self._learn_price(state, context, report, latency, gain)

    def figures(self, state: PaceState, context: RoundContext) -> dict[str, float]:
        """Return f and lambda."""
        price = state.gain / state.time_s if state.time_s else 0.0
        return {"evenness": self.exponent(state), "price_of_a_second": price}

    def _value(
        self, state: PaceState, fair: FloatArray, selected: IntArray, late: IntArray
    ) -> FloatArray:
        """Return v_k = ((e_k + 1) / (c_k + 1))^f, counted from the usual participation."""
        value = fair + 1.0
        value /= _served(selected, late) + 1.0
        np.log(value, out=value)
        value += state.usual
        value *= self.exponent(state)
        return np.asarray(np.exp(value, out=value))

    def exponent(self, state: PaceState) -> float:
        """Return f."""
        return evenness.exponent(state.trend) if self.evenness is None else self.evenness

    def seconds(self, state: PaceState, context: RoundContext) -> FloatArray:
        """Return tau_k of the available clients: how long each may take.

        Where all are waited for, that is at best: else nobody new would be asked. Where m of n are,
        it is the time in which each has answered with a chance of m / n.
        """
        clients, part = context.available, context.quota / context.cohort_size
        stats = MEMORY.recall(state.memory, clients, context.t)
        judge = lognormal.Judge(state.population, context.roster)

        def judged(clients: IntArray, *stats: Any) -> FloatArray:
            posterior = judge(clients, ClientStats(*stats))
            if part < 1.0:  # strangers have places of their own, so nobody has to be hoped for
                log_s = posterior.next_answer(min(part, QUANTILE))
            else:
                log_s = posterior.quantile(QUANTILE)
                log_s -= OPTIMISM * np.sqrt(posterior.variance)
            return np.asarray(np.exp(np.clip(log_s, *lognormal.LOG_RANGE, out=log_s), out=log_s))

        seconds = in_parts(judged, clients, stats.answers, stats.count, stats.mean, stats.spread)
        unmet = stats.answers == 0
        if unmet.any():
            silent = unmet & (pick(state.selected, clients) > 0)
            seconds[silent] = self.tau_max or state.slowest_s
        return seconds if self.tau_max is None else np.minimum(seconds, self.tau_max, out=seconds)

    def _learn_price(
        self,
        state: PaceState,
        context: RoundContext,
        report: Report,
        latency: FloatArray,
        gain: float,
    ) -> None:
        """Take in the value of answers, and the seconds waited for a round's slowest."""
        if context.t > state.t:
            fade = 1.0 - 1.0 / max(ROUNDS, ANSWERS / context.quota)
            state.gain *= fade
            state.time_s *= fade
            state.t, state.round_s, state.n_kept = context.t, 0.0, 0
        kept, m = report.outcome == OK, context.quota
        state.n_kept += int(np.count_nonzero(kept)) if context.t == state.t else 0
        is_over = context.t == state.t and state.n_kept >= m
        made_it_long = kept if is_over else report.outcome != LATE
        waited = latency[made_it_long & ~np.isnan(latency)]
        longest = float(waited.max(initial=0.0))
        state.gain += gain
        if context.cohort_size == 1:
            state.time_s += float(waited.sum())
        elif context.t == state.t:
            state.time_s += max(longest - state.round_s, 0.0)
            state.round_s = max(longest, state.round_s)
        elif kept.any():  # a round that others overtook; its answers may come one by one
            state.time_s += longest * min(1.0, len(waited) / m)


def _strangers(state: PaceState, context: RoundContext, seconds: FloatArray, rng: Rng) -> IntArray:
    """Return the positions of clients that are asked to get to know them, sorted.

    Of n who are asked as many are weighed as m answers need, by how many get lost; the others may
    be anybody. They have never been asked, and are the quickest by what is known of them before.
    Where many clients are known, there are fewer of them.
    """
    n, m = context.cohort_size, context.quota
    new = np.flatnonzero(pick(state.selected, context.available) == 0) if n > m else NOBODY
    if len(new) == 0:
        return new
    invitations_an_answer = (state.n_answered + state.n_lost + 1) / (state.n_answered + 1)
    places = max(n - math.ceil(m * invitations_an_answer), 0)
    n_known = len(context.available) - len(new)
    if n_known > KNOWN * n:
        places = int(places * KNOWN * n / n_known + rng.random())
    if len(new) > places:
        new = np.sort(new[top_m(-seconds[new], places, rng)])
    return new


def _served(selected: IntArray, late: IntArray) -> FloatArray:
    """Return c_k, with half of the answers that came too late."""
    served = late * (VAIN - 1.0)
    served += selected
    return np.asarray(served)


def _missed(fair: FloatArray, selected: IntArray, late: IntArray) -> FloatArray:
    """Return how much each client is missed; where that adds up to m, it is worth the longest wait.

    So a cohort of clients comes together when each is missed by 1. A few of them come when they are
    missed more, and one alone when it is missed as much as a cohort: nobody is left out for ever.
    """
    return absence(fair, _served(selected, late))
