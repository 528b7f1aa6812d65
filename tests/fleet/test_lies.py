"""Clients that lie: what the policy hears, and how far it is moved."""

import numpy as np
import pytest

from bsfl import Pace
from bsfl.errors import InvalidInput
from bsfl.estimation import evenness
from bsfl.fleet.lies import Hearsay, Lies
from bsfl.records import Observation, Report
from bsfl.scenario.fleet_spec import LiesSpec


def report(**latencies):
    seen = {int(k[1:]): Observation(latency=v, loss=0.5) for k, v in latencies.items()}
    return Report.of(seen, chosen=list(seen))


def test_liars_claim_the_fastest_time_that_was_measured_and_a_larger_loss():
    hearsay = Hearsay(Lies(liars=np.array([False, True, True]), time=True, loss=1e3))
    first = hearsay.told(report(c0=2.0, c1=9.0))
    assert first.latency.tolist() == [2.0, 2.0]
    assert first.loss.tolist() == [0.5, 500.0]
    later = hearsay.told(report(c2=7.0))
    assert later.latency.tolist() == [2.0], "of all rounds"
    honest = Hearsay(None)
    assert honest.told(first) is first


def test_who_does_not_answer_does_not_lie():
    hearsay = Hearsay(Lies(liars=np.array([True, True]), time=True, loss=2.0))
    seen = {0: Observation(latency=9.0, outcome="timeout"), 1: Observation(latency=3.0, loss=1e12)}
    told = hearsay.told(Report.of(seen, chosen=[0, 1]))
    assert told.latency.tolist() == [9.0, 3.0]
    assert told.loss[1] == 1e12, "no more is believed"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share": 1.5, "time": True}, "share must be between 0 and 1, got 1.5"),
        ({"share": 0.1}, "liars must lie about something"),
        ({"share": 0.1, "time": "yes"}, "time must be true or false, got 'yes'"),
        ({"share": 0.1, "loss": 0}, "loss must be a finite number above 0"),
    ],
)
def test_wrong_lies_are_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        LiesSpec(**settings)


def test_a_tenth_of_liars_moves_the_exponent_of_pace_little():
    """Honest log losses fall by x / 2, so that f = 1; one in ten tells a loss 1e12 times as large."""
    rng = np.random.default_rng(1)
    honest, lied = evenness.LossTrend(), evenness.LossTrend()
    for t in range(1, 400):
        x = rng.normal(size=25)
        loss = np.exp(-0.5 * x + rng.normal(0, 0.2, 25) - min(t, 200) / 100)
        evenness.learn(honest, x, loss, t)
        liars = rng.random(25) < 0.1
        evenness.learn(lied, x, np.where(liars, loss * 1e12, loss), t)
    assert evenness.exponent(honest) == pytest.approx(1.0, abs=0.1)
    # a tenth of the sample has no slope at all: 0.9, give or take what clipped noise adds
    assert evenness.exponent(lied) == pytest.approx(0.9, abs=0.25)
    assert Pace().exponent(Pace().init(3)) == evenness.EVEN
