"""Pace: the cohort whose responses have the largest value per second."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from bsfl import validation
from bsfl._core.state import ClientState, number
from bsfl.estimators import lognormal, response_value
from bsfl.estimators.moments import (
    CumulativeMean,
    CumulativeState,
    RunningMoments,
    censored_latency,
)
from bsfl.estimators.over_selection import MIN_PARTICIPATION, participation_deficit
from bsfl.policy import Policy, Selection, top_m
from bsfl.solvers import solve_exact
from bsfl.types import (
    NO_CLIENTS,
    FloatArray,
    IntArray,
    Rng,
    RoundContext,
    RoundReport,
    in_chunks,
    pick,
)

QUANTILE, OPTIMISM = 0.9, 0.5
"""Without over-selection: the quantile of a client's latency that counts, and by how many standard
deviations of its posterior mean it is lowered (a lower confidence bound)."""
TREND_RATE = 0.1
"""Step size of the moving average of log participation."""
LATE_RESPONSE_WEIGHT = 0.5
"""A dropped response counts as half a participation; with 0 the slowest clients would be selected
every round."""
MANY_KNOWN = 20
"""Once this many times n_invited clients are known, fewer places go to unseen clients."""
MOMENTS = CumulativeMean()


@dataclass(slots=True, kw_only=True)
class PaceState(ClientState):
    """What Pace has learned beside the counts of the task.

    Attributes:
        usual: Moving average of ln((c_k + 1) / (e_k + 1)) over responses; values are relative to
            it.
        slowest_s: Largest latency observed; 0 before the first.
        n_responded, n_lost: Responses and lost responses of clients that had responded before.
        rate: The value per second so far.
        moments, population: Moments of log latencies, of each client and of all.
        trend: The regression of losses on participation.
    """

    usual: float = number(0.0, low=-response_value.MAX_X, high=response_value.MAX_X)
    slowest_s: float = number(0.0, low=0.0, high=1e12)
    n_responded: int = 0
    n_lost: int = 0
    rate: response_value.ValueRate
    moments: CumulativeState
    population: lognormal.Population
    trend: response_value.LossTrend

    def check(self) -> None:
        """Check that latencies can be predicted."""
        lognormal.check_latencies(self.moments, self.slowest_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace(Policy):
    r"""Select the cohort with the largest value per second; no setting is needed.

    It maximises sum_S v_k - lambda max_S tau_k, where lambda is the value per second so far, tau_k
    the expected latency of client k, and v_k = ((e_k + 1) / (c_k + 1))^f the value of its response:
    c_k counts its participations, e_k is its fair count, by the rounds in which it was available.
    The exponent f is learned from reported losses, see bsfl.estimators.response_value.

    >>> from bsfl import Scheduler
    >>> scheduler = Scheduler(Pace(), cohort_size=2)
    >>> cohort = scheduler.select(["ann", "bob", "cem"], cohort_size=3)
    >>> scheduler.observe({"ann": 5.0, "bob": 1.0, "cem": 2.0})
    {}
    >>> scheduler.select()
    ['bob', 'cem']

    Attributes:
        fairness: The fairness exponent f; None: it is learned. 0 is speed alone, 1 equal time for
            every client, larger values mean more equal numbers of rounds.
        min_participation: Minimum participation of every client, as a fraction of its fair count,
            whatever it costs: 0.8 for 80 %.
        tau_max: Deadline in seconds; longer latencies are clipped. None: no deadline.
    """

    example: ClassVar = {"min_participation": 0.5}

    fairness: float | None = None
    min_participation: float = 0.0
    tau_max: float | None = None

    def __post_init__(self) -> None:
        if self.fairness is not None:
            validation.between("fairness", self.fairness, 0.0, response_value.MAX_EXPONENT)
        validation.between("min_participation", self.min_participation, 0.0, 1.0)
        if self.tau_max is not None:
            validation.seconds("tau_max", self.tau_max)

    def init(self, n_clients: int) -> PaceState:
        return PaceState.of(
            n_clients,
            rate=response_value.ValueRate(),
            moments=MOMENTS.init(n_clients),
            population=lognormal.Population(),
            trend=response_value.LossTrend(),
        )

    def select(self, state: PaceState, context: RoundContext, rng: Rng) -> Selection:
        available, n, task = context.available, context.n_invited, context.task
        if len(available) <= n:
            return Selection(clients=available)
        counts = (
            context.fair_count(available),
            pick(task.invitations, available),
            pick(task.dropped, available),
        )
        value = in_chunks(partial(self._value, state), *counts)
        if not state.rate.is_known:  # no response yet
            return Selection(
                clients=available[top_m(value, n, rng)],
                candidates=available,
                u=np.zeros(len(value)),
                g=value,
                alpha=float(n),
            )
        latency_s = self.expected_latency(state, context)
        per_second = max(state.rate.per_second, response_value.MIN_VALUE_PER_SECOND)
        self._add_bonus(context, counts, value, per_second * latency_s.max())
        value += 1e-9 * value.max() * rng.random(len(value), dtype=np.float32)  # ties at random
        reserved = self._places_for_unseen(state, context, latency_s, rng)
        others = np.arange(len(available))
        others = np.delete(others, reserved) if len(reserved) else others
        n_places = n - len(reserved)
        u, g = pick(np.negative(latency_s, out=latency_s), others), pick(value, others)
        alpha = context.target_responses / per_second * n_places / n
        best = others[solve_exact(u, g, n_places, alpha=alpha)]
        return Selection(
            clients=available[np.sort(np.concatenate([reserved, best]))],
            reserved=available[reserved],
            candidates=pick(available, others),
            u=u,
            g=g,
            alpha=alpha,
            unit="s",
        )

    def observe(self, state: PaceState, context: RoundContext, report: RoundReport) -> None:
        latency = censored_latency(report, self.tau_max)
        state.slowest_s = float(max(state.slowest_s, latency[latency < np.inf].max(initial=0.0)))
        latency[np.isinf(latency)] = self.tau_max or state.slowest_s or np.nan
        self._learn_latencies(state, context, report, latency)
        kept = report.usable
        clients = report.clients[kept]
        fair = context.fair_count(clients)
        x = np.log(np.maximum(context.served(clients), 1) / (fair + 1.0))
        response_value.learn(state.trend, x, report.loss[kept], context.round)
        if len(clients):
            step = 1.0
            if state.rate.gain:
                step = TREND_RATE * min(1.0, len(clients) / context.target_responses)
            state.usual += step * float(x.mean() - state.usual)
        gain = float(np.exp(self.exponent(state) * (state.usual - x)).sum())
        response_value.learn_rate(state.rate, context, report, latency, gain)

    def diagnostics(self, state: PaceState, context: RoundContext) -> dict[str, float]:
        """Return f and lambda."""
        return {
            "fairness_exponent": self.exponent(state),
            "value_per_second": state.rate.per_second,
        }

    def exponent(self, state: PaceState) -> float:
        """Return f."""
        return response_value.exponent(state.trend) if self.fairness is None else self.fairness

    def expected_latency(self, state: PaceState, context: RoundContext) -> FloatArray:
        """Return tau_k of the available clients.

        Without over-selection it is an optimistic quantile (a lower confidence bound), so that new
        clients are tried. Where m of n responses close the round, it is the time in which each
        client has responded with probability m / n.
        """
        clients, fraction = context.available, context.target_responses / context.n_invited
        stats = MOMENTS.recall(state.moments, clients, context.round)

        def seconds_of(clients: IntArray, *columns: Any) -> FloatArray:
            moments = RunningMoments(*columns)
            posterior = lognormal.predict(state.population, context.pool, clients, moments)
            if fraction < 1.0:  # unseen clients have reserved places: no optimism is needed
                log_s = posterior.next_response(min(fraction, QUANTILE))
            else:
                log_s = posterior.quantile(QUANTILE)
                log_s -= OPTIMISM * np.sqrt(posterior.variance)
            return np.asarray(np.exp(np.clip(log_s, *lognormal.LOG_RANGE, out=log_s), out=log_s))

        latency_s = in_chunks(
            seconds_of, clients, stats.observed, stats.count, stats.mean, stats.spread
        )
        unseen = stats.observed == 0
        if unseen.any():
            unresponsive = unseen & (pick(context.task.invitations, clients) > 0)
            latency_s[unresponsive] = self.tau_max or state.slowest_s
        return latency_s if self.tau_max is None else np.minimum(latency_s, self.tau_max)

    def _value(
        self, state: PaceState, fair: FloatArray, invitations: IntArray, dropped: IntArray
    ) -> FloatArray:
        """Return v_k = ((e_k + 1) / (c_k + 1))^f, relative to the usual participation."""
        value = fair + 1.0
        value /= _participations(invitations, dropped) + 1.0
        np.log(value, out=value)
        value += state.usual
        value *= self.exponent(state)
        return np.asarray(np.exp(value, out=value))

    def _add_bonus(
        self,
        context: RoundContext,
        counts: tuple[FloatArray, IntArray, IntArray],
        value: FloatArray,
        longest_wait: float,
    ) -> None:
        """Add the bonus of clients with a participation deficit to their values.

        A cohort whose deficits sum to m outweighs the longest latency, and so does one client
        whose deficit is m: no client is left out for ever. A client below min_participation
        outweighs everything.
        """
        fair, n = counts[0], context.n_invited
        if 2.0 * MIN_PARTICIPATION * np.max(fair) > 1.0:
            deficit = in_chunks(_deficit, *counts)
            value += np.minimum(deficit, n) * (longest_wait / context.target_responses)
        if self.min_participation:
            missing = self.min_participation * fair - in_chunks(_participations, *counts[1:])
            value += np.maximum(missing, 0.0) * (n * value.max() + longest_wait)

    def _places_for_unseen(
        self, state: PaceState, context: RoundContext, latency_s: FloatArray, rng: Rng
    ) -> IntArray:
        """Return the positions of unseen clients that are selected to observe them, sorted.

        Invitations that are not needed to obtain m responses, given the observed loss rate, go to
        clients that were never selected, those expected to be fastest first. Where many clients
        are known, there are fewer such places.
        """
        n, m = context.n_invited, context.target_responses
        if n <= m:
            return NO_CLIENTS
        unseen = np.flatnonzero(pick(context.task.invitations, context.available) == 0)
        if len(unseen) == 0:
            return unseen
        per_response = (state.n_responded + state.n_lost + 1) / (state.n_responded + 1)
        places = max(n - math.ceil(m * per_response), 0)
        n_known = len(context.available) - len(unseen)
        if n_known > MANY_KNOWN * n:
            places = int(places * MANY_KNOWN * n / n_known + rng.random())
        if len(unseen) > places:
            unseen = np.sort(unseen[top_m(-latency_s[unseen], places, rng)])
        return unseen

    def _learn_latencies(
        self, state: PaceState, context: RoundContext, report: RoundReport, latency: FloatArray
    ) -> None:
        """Update latency moments and the loss rate of invitations."""
        seen_before = state.moments.observed[report.clients] > 0
        state.n_responded += int(np.count_nonzero(seen_before & report.responded))
        state.n_lost += int(np.count_nonzero(seen_before & ~report.responded))
        # under over-selection a lost response costs no time: others stand in for it
        counts = report.responded | (context.target_responses == context.n_invited)
        counts &= ~np.isnan(latency)
        clients, values = report.clients[counts], np.log(latency[counts])
        stats = MOMENTS.recall(state.moments, clients, context.round)
        lognormal.learn(state.population, clients, values, stats, context.pool)
        MOMENTS.add(state.moments, clients, context.round, values)


def _participations(invitations: IntArray, dropped: IntArray) -> FloatArray:
    """Return c_k, in which a dropped response counts LATE_RESPONSE_WEIGHT."""
    counted = dropped * (LATE_RESPONSE_WEIGHT - 1.0)
    counted += invitations
    return np.asarray(counted)


def _deficit(fair: FloatArray, invitations: IntArray, dropped: IntArray) -> FloatArray:
    """Return the participation deficits of clients with these counts."""
    return participation_deficit(fair, _participations(invitations, dropped))
