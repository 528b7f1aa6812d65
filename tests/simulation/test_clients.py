"""Simulated clients: draws depend on seed and round alone, and some clients send false reports."""

import numpy as np
import pytest

from bsfl import Pace
from bsfl.errors import InvalidInput
from bsfl.estimators import response_value
from bsfl.policies import UniformRandom
from bsfl.random import stream
from bsfl.simulation import POPULATIONS, Intervals, SimulatedClients, lognormal, simulate
from bsfl.simulation.clients import FalseReports, MaliciousClients
from bsfl.types import Observation, RoundReport


def test_every_draw_depends_on_seed_and_round_alone():
    def clients(seed):
        latency = POPULATIONS["authors-bimodal"](50, stream(seed, "population"))
        return SimulatedClients(latency=latency, tau_min=0.05, tau_max=1.0, seed=seed)

    first, again, other = clients(1), clients(1), clients(2)
    first.latencies(7, 0.0)  # another round in between changes nothing
    assert np.array_equal(first.latencies(3, 0.0), again.latencies(3, 0.0))
    assert not np.array_equal(first.latencies(3, 0.0), first.latencies(4, 0.0))
    assert not np.array_equal(first.latencies(3, 0.0), other.latencies(3, 0.0))


class Numbers:
    """Returns the available clients by their numbers, not a truth value for each client."""

    def reachable(self, t, clock_s, n_clients, rng):
        return np.arange(3)


def test_wrong_limits_and_availabilities_are_rejected():
    def clients(tau_min=1.0, **more):
        latency = lognormal(np.ones(3), np.zeros(3))
        return SimulatedClients(latency=latency, tau_min=tau_min, tau_max=2.0, **more)

    with pytest.raises(InvalidInput, match=r"tau_min must not exceed tau_max, got 3\.0 > 2\.0"):
        clients(3.0)
    with pytest.raises(InvalidInput, match="tau_min must be a finite number above 0"):
        clients(0.0)
    with pytest.raises(InvalidInput, match="ids must name all 3 clients, got 2"):
        clients(ids=["a", "b"])
    with pytest.raises(InvalidInput, match=r"of the 3 clients, got .* int64 with shape \(3,\)"):
        clients(availability=Numbers()).available(1, 0.0)
    with pytest.raises(InvalidInput, match="describe all 3 clients, got the intervals of 4"):
        clients(availability=Intervals(np.zeros(4), np.ones(4), np.arange(5)))


def reported(reports, seen):
    """Return what the server receives of these observations."""
    return reports.of(RoundReport.of(seen, invited=list(seen)))


def test_malicious_clients_claim_the_fastest_time_that_was_measured_and_a_larger_loss():
    malicious = MaliciousClients(is_malicious=np.array([False, True, True]), time=True, loss=1e3)
    reports = FalseReports(malicious)
    honest, fake = (Observation(latency_s=s, loss=0.5) for s in (2.0, 9.0))
    first = reported(reports, {0: honest, 1: fake})
    assert (first.latency_s.tolist(), first.loss.tolist()) == ([2.0, 2.0], [0.5, 500.0])
    # the fastest of all rounds; one that does not respond reports nothing false; losses are capped
    timeout = Observation(latency_s=9.0, outcome="timeout")
    later = reported(reports, {1: timeout, 2: Observation(latency_s=7.0, loss=1e12)})
    assert (later.latency_s.tolist(), later.loss[1]) == ([9.0, 2.0], 1e12)
    assert FalseReports(None).of(first) is first


def test_the_policy_receives_false_reports_and_the_clock_the_truth():
    received = []

    class Recorder(UniformRandom):
        def observe(self, state, context, report):
            received.append(dict(zip(report.clients.tolist(), report.latency_s, strict=True)))

    malicious = MaliciousClients(is_malicious=np.array([False, True]), time=True)
    latency = lognormal(np.array([2.0, 9.0]), np.zeros(2))
    clients = SimulatedClients(latency=latency, tau_min=0.1, tau_max=60.0, malicious=malicious)
    records = list(simulate(Recorder(), clients, cohort_size=2, rounds=3))
    assert [record.duration_s for record in records] == pytest.approx([9.0] * 3)
    assert received == [pytest.approx({0: 2.0, 1: 2.0})] * 3


def test_a_tenth_of_malicious_clients_moves_the_exponent_of_pace_little():
    """Honest log losses fall by x / 2, so f = 1; one in ten reports a loss 1e12 times as large."""
    rng = np.random.default_rng(1)
    honest, attacked = response_value.LossTrend(), response_value.LossTrend()
    for t in range(1, 400):
        x = rng.normal(size=25)
        loss = np.exp(-0.5 * x + rng.normal(0, 0.2, 25) - min(t, 200) / 100)
        response_value.learn(honest, x, loss, t)
        is_malicious = rng.random(25) < 0.1
        response_value.learn(attacked, x, np.where(is_malicious, loss * 1e12, loss), t)
    assert response_value.exponent(honest) == pytest.approx(1.0, abs=0.1)
    # a tenth of the sample has no slope at all: 0.9, give or take what clipped noise adds
    assert response_value.exponent(attacked) == pytest.approx(0.9, abs=0.25)
    assert Pace().exponent(Pace().init(3)) == response_value.DEFAULT_EXPONENT


def test_latencies_must_be_a_model():
    with pytest.raises(InvalidInput, match=r"latency must have n_clients, draw, .* got \[1, 2\]"):
        SimulatedClients(latency=[1, 2], tau_min=1.0, tau_max=9.0)
