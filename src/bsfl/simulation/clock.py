"""One round on the virtual clock: nothing sleeps, nothing reads a real clock."""

from dataclasses import dataclass

import numpy as np

from bsfl.records import OK, TIMEOUT, FloatArray, IntArray, Report


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """What the server sees of a round.

    Attributes:
        duration_s: min(max latency of the cohort, tau_max); tau_max when nobody was there to ask.
        observations: What each member showed.
        n_timeouts: How many did not answer before the deadline.
    """

    duration_s: float
    observations: Report
    n_timeouts: int


def run_round(cohort: IntArray, latencies: FloatArray, *, tau_max: float) -> RoundOutcome:
    """Return the outcome of a cohort, given the latency of every client in this round.

    >>> run_round(np.array([0, 2]), np.array([1.5, 9.0, 4.0]), tau_max=3.0).duration_s
    3.0
    """
    latency = latencies[cohort]
    late = latency > tau_max
    unknown = np.full(len(cohort), np.nan)
    report = Report(
        clients=cohort,
        latency=np.minimum(latency, tau_max),
        outcome=np.where(late, TIMEOUT, OK).astype(np.int8),
        loss=unknown,
        samples=unknown,
        chosen=cohort,
    )
    return RoundOutcome(
        duration_s=float(report.latency.max()) if len(cohort) else tau_max,
        observations=report,
        n_timeouts=int(np.count_nonzero(late)),
    )
