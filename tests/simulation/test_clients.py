"""Simulated clients: what they are made of is checked, and draws depend on seed and round alone."""

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.random import stream
from bsfl.simulation import POPULATIONS, Intervals, SimulatedClients, lognormal


def test_every_draw_depends_on_seed_and_round_alone():
    def clients(seed):
        latency = POPULATIONS["authors-bimodal"](50, stream(seed, "population"))
        return SimulatedClients(latency=latency, tau_min=0.05, tau_max=1.0, seed=seed)

    first, again, other = clients(1), clients(1), clients(2)
    first.latencies(7, 0.0)  # asking twice or in another order moves nothing
    assert np.array_equal(first.latencies(3, 0.0), again.latencies(3, 0.0))
    assert not np.array_equal(first.latencies(3, 0.0), first.latencies(4, 0.0))
    assert not np.array_equal(first.latencies(3, 0.0), other.latencies(3, 0.0))


def test_the_limits_of_latencies_are_checked():
    latency = lognormal(np.ones(2), np.ones(2))
    with pytest.raises(InvalidInput, match=r"tau_min must not exceed tau_max, got 3\.0 > 2\.0"):
        SimulatedClients(latency=latency, tau_min=3.0, tau_max=2.0)
    with pytest.raises(InvalidInput, match="tau_min must be a finite number above 0"):
        SimulatedClients(latency=latency, tau_min=0.0, tau_max=2.0)


class Numbers:
    """Returns the available clients by their numbers, not a truth value for each client."""

    def reachable(self, t, clock_s, n_clients, rng):
        return np.arange(3)


def test_who_is_there_is_a_yes_or_no_for_each_client():
    latency = lognormal(np.ones(12), np.full(12, 0.1))
    clients = SimulatedClients(latency=latency, tau_min=0.5, tau_max=9.0, availability=Numbers())
    with pytest.raises(InvalidInput, match=r"of the 12 clients, got .* int64 with shape \(3,\)"):
        clients.available(1, 0.0)


def test_the_intervals_must_be_those_of_all_clients():
    with pytest.raises(InvalidInput, match="describe all 3 clients, got the intervals of 4"):
        SimulatedClients(
            latency=lognormal(np.ones(3), np.zeros(3)),
            tau_min=1.0,
            tau_max=2.0,
            availability=Intervals(np.zeros(4), np.ones(4), np.arange(5)),
        )


def test_latencies_must_be_a_model():
    with pytest.raises(InvalidInput, match=r"latency must have n_clients, draw, .* got \[1, 2\]"):
        SimulatedClients(latency=[1, 2], tau_min=1.0, tau_max=9.0)
