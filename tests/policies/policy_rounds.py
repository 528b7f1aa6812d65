"""Rounds to drive a policy through, shared by the tests of this folder."""

from bsfl.testing import PolicyDriver
from bsfl.types import Observation


def drive(policy, n_clients, m, **settings):
    """Return a driver of rounds with m target responses; see bsfl.testing.PolicyDriver."""
    return PolicyDriver(policy, n_clients=n_clients, target_responses=m, **settings)


def responses(latencies, losses=None, samples=None, outcome="ok"):
    """Return observations by latency; losses and samples by client, for policies that use them."""
    return {
        k: Observation(
            latency_s=latency,
            outcome=outcome,
            loss=None if losses is None else losses[k],
            samples=None if samples is None else samples[k],
        )
        for k, latency in latencies.items()
    }


def losses_of(losses, samples=None):
    """Return observations by loss, each after one second."""
    return responses(dict.fromkeys(losses, 1.0), losses=losses, samples=samples)


def timeouts(latencies):
    """Return timeouts by the seconds waited."""
    return responses(latencies, outcome="timeout")
