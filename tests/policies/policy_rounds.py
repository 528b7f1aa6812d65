"""Rounds to show to a policy, shared by the tests of this folder."""

import numpy as np

from bsfl.records import Observation, Report, Roster, RoundContext


def context(t, m, k, available=None, **roster):
    return RoundContext(
        t=t,
        available=np.arange(k) if available is None else np.array(available, dtype=np.int64),
        cohort_size=m,
        roster=Roster(n_members=k, **roster),
    )


def report(latencies, chosen=None, outcome="ok", losses=None, samples=None):
    """Return answers by latency; losses and samples by client where a policy wants them."""
    answers = {
        k: Observation(
            latency=latency,
            outcome=outcome,
            loss=None if losses is None else losses[k],
            samples=None if samples is None else samples[k],
        )
        for k, latency in latencies.items()
    }
    return Report.of(answers, chosen=list(latencies) if chosen is None else chosen)


def losses_of(losses, chosen=None, **more):
    """Return answers by loss, each after one second."""
    return report(dict.fromkeys(losses, 1.0), chosen=chosen, losses=losses, **more)
