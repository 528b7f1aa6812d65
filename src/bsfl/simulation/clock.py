"""One round on the virtual clock: nothing sleeps, nothing reads a real clock."""

from dataclasses import dataclass

import numpy as np

from bsfl.records import OK, TIMEOUT, FloatArray, IntArray, Report
from bsfl.rounds import Round, RoundPlan


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """What the server sees of a round.

    Attributes:
        duration_s: When it was over.
        observations: What each member showed.
        n_timeouts: How many did not answer before that.
    """

    duration_s: float
    observations: Report
    n_timeouts: int


def run_round(cohort: IntArray, latencies: FloatArray, plan: RoundPlan) -> RoundOutcome:
    """Return the outcome of a cohort, given the latency of every client in this round.

    Nobody to ask: the round lasts until it closes, as waiting for somebody takes time, too.

    >>> plan = RoundPlan(cohort_size=2, deadline_s=3.0)
    >>> run_round(np.array([0, 2]), np.array([1.5, 9.0, 4.0]), plan).duration_s
    3.0
    """
    latency = latencies[cohort]
    running, now_s = Round(plan, cohort.tolist()), 0.0
    order = np.argsort(latency, kind="stable")
    for client, at_s in zip(cohort[order].tolist(), latency[order].tolist(), strict=True):
        if at_s > now_s:  # answers of one moment come together
            if running.is_over(now_s) or at_s > running.closes_at:
                break
            now_s = at_s
        running.hear(client, "ok", at_s)
    is_over = len(cohort) > 0 and running.is_over(now_s)
    duration_s = now_s if is_over else float(running.closes_at)
    unknown = np.full(len(cohort), np.nan)
    report = Report(
        clients=cohort,
        latency=np.minimum(latency, duration_s),
        outcome=np.where(latency > duration_s, TIMEOUT, OK).astype(np.int8),
        loss=unknown,
        samples=unknown,
        chosen=cohort,
    )
    return RoundOutcome(duration_s=duration_s, observations=report, n_timeouts=len(running.missing))
