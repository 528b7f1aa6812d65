"""Rounds to drive a policy through, shared by the tests of this folder."""

import numpy as np

from bsfl import Scheduler
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


def after_losses(policy, losses, n_clients=None):
    """Return a driver after a round in which clients, with a sample each, reported losses."""
    n_clients = n_clients or len(losses)
    driver = drive(policy, n_clients, len(losses), samples=np.ones(n_clients))
    driver.run_round(losses_of(dict(enumerate(losses))))
    return driver


def cohorts_of(driver, context=None, seeds=200):
    """Return the cohorts that are selected with different seeds, as a set of tuples."""
    here = context or driver.context()
    rngs = (np.random.default_rng(seed) for seed in range(seeds))
    return {tuple(driver.select(here, rng).tolist()) for rng in rngs}


def assert_frequencies(draw, expected, n_draws):
    """Check how often each index is drawn, within four standard deviations.

    Args:
        draw: Function of a generator that returns the indices of one draw.
        expected: The probability of every index; one with 0 or 1 must never or always be drawn.
        n_draws: Number of draws.
    """
    expected, rng = np.asarray(expected, dtype=float), np.random.default_rng(n_draws)
    hits = np.zeros(len(expected))
    for _ in range(n_draws):
        hits[draw(rng)] += 1
    margin = 4 * np.sqrt(expected * (1 - expected) / n_draws) + 1e-12
    found = hits / n_draws
    assert np.all(np.abs(found - expected) <= margin), f"{found} instead of {expected}"


def overtaken(policy, order, losses=None):
    """Return a scheduler of one client that responded to its three open rounds in this order."""
    scheduler = Scheduler(policy, cohort_size=1, max_open_rounds=3)
    scheduler.register("ann", samples=1.0)
    for _ in range(3):
        scheduler.select()
    for number in order:
        seen = Observation(latency_s=1.0, loss=losses and losses[number])
        scheduler.observe({"ann": seen}, round=number)
    return scheduler
