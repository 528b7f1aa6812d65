"""Malicious clients: what the policy receives, and how far it is moved."""

import numpy as np
import pytest

from bsfl import Pace
from bsfl.errors import InvalidInput
from bsfl.estimators import response_value
from bsfl.policies import UniformRandom
from bsfl.simulation import SimulatedClients, lognormal, simulate
from bsfl.simulation.clients import FalseReports, MaliciousClients
from bsfl.types import Observation, RoundReport
from small_scenario import parse


def report(**latencies):
    seen = {int(k[1:]): Observation(latency_s=v, loss=0.5) for k, v in latencies.items()}
    return RoundReport.of(seen, invited=list(seen))


def test_malicious_clients_claim_the_fastest_time_that_was_measured_and_a_larger_loss():
    malicious = MaliciousClients(is_malicious=np.array([False, True, True]), time=True, loss=1e3)
    reports = FalseReports(malicious)
    first = reports.of(report(c0=2.0, c1=9.0))
    assert first.latency_s.tolist() == [2.0, 2.0]
    assert first.loss.tolist() == [0.5, 500.0]
    later = reports.of(report(c2=7.0))
    assert later.latency_s.tolist() == [2.0], "of all rounds"
    honest = FalseReports(None)
    assert honest.of(first) is first


def test_an_unresponsive_client_reports_nothing_false():
    malicious = MaliciousClients(is_malicious=np.array([True, True]), time=True, loss=2.0)
    seen = {
        0: Observation(latency_s=9.0, outcome="timeout"),
        1: Observation(latency_s=3.0, loss=1e12),
    }
    received = FalseReports(malicious).of(RoundReport.of(seen, invited=[0, 1]))
    assert received.latency_s.tolist() == [9.0, 3.0]
    assert received.loss[1] == 1e12, "no more is accepted"


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


def test_a_scenario_may_have_malicious_clients():
    clients = parse(clients__false_reports={"share": 0.25, "time": True}).simulated_clients(0)
    assert clients.malicious.is_malicious.sum() == 3, "a quarter of 12"
    with pytest.raises(InvalidInput, match=r"\[clients.false_reports\]: missing key 'share'"):
        parse(clients__false_reports={"time": True})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share": 1.5, "time": True}, "share must be between 0 and 1, got 1.5"),
        ({"share": 0.1}, "something must be false"),
        ({"share": 0.1, "time": "yes"}, "time must be a valid boolean, got 'yes'"),
        ({"share": 0.1, "loss": 0}, "loss must be a finite number above 0"),
    ],
)
def test_wrong_settings_are_rejected(settings, message):
    with pytest.raises(InvalidInput, match=message):
        parse(clients__false_reports=settings)


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
