"""The exponent of value: found where it is known, and left alone where nothing tells it."""

import numpy as np
import pytest

from bsfl.estimation.evenness import EVEN, HIGHEST, POWER, PRIOR, LossTrend, exponent, learn


def trained(slope, rounds=200, noise=0.3, fall=50.0, seed=0, one_by_one=False, silent=0):
    rng, trend = np.random.default_rng(seed), LossTrend()
    for t in range(silent + 1, silent + rounds + 1):
        x = rng.normal(size=10)
        y = 1.0 - t / fall - slope * x + noise * rng.normal(size=10)
        for part in np.arange(10).reshape((10, 1) if one_by_one else (1, 10)):
            learn(trend, x[part], np.exp(y[part]), t)
    return trend


@pytest.mark.parametrize("slope", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_the_slope_of_losses_is_found(slope, one_by_one):
    trend = trained(slope, one_by_one=one_by_one)
    assert exponent(trend) == pytest.approx(POWER * slope, abs=0.1)


def test_it_stays_within_limits():
    assert exponent(trained(-1.0)) == 0.0
    assert exponent(trained(3.0, fall=20.0)) == HIGHEST


def test_losses_that_do_not_fall_are_not_believed():
    assert exponent(LossTrend()) == EVEN
    assert exponent(trained(0.0, fall=np.inf, noise=1.0)) == EVEN
    assert exponent(trained(0.0, fall=-100.0)) == EVEN, "they rise"
    assert exponent(trained(0.0)) < 0.1, "they fall, and participation makes no difference"


def test_losses_have_the_benefit_of_the_doubt_at_first():
    assert exponent(trained(0.0, rounds=20, fall=np.inf, noise=1.0)) < 1.0, "for 20 rounds"
    assert exponent(trained(0.0, rounds=21, fall=np.inf, noise=1.0)) == EVEN
    assert exponent(trained(0.0, rounds=20, fall=np.inf, noise=1.0, silent=50)) < 1.0
    few = LossTrend()
    for t in range(1, 101):
        learn(few, np.zeros(1), np.ones(1), t)
    assert exponent(few) < 1.0, "for 100 losses"
    learn(few, np.zeros(1), np.ones(1), 101)
    assert exponent(few) == EVEN


def test_losses_that_fall_while_a_model_is_young_do_not_look_like_those_of_regulars():
    at_once, one_by_one, rng = LossTrend(), LossTrend(), np.random.default_rng(0)
    for t in range(1, 31):  # clients took part ever more, and all losses fall alike
        x = t / 20 + 0.5 * rng.normal(size=25)
        loss = np.exp(2.0 - t / 10 + 0.1 * rng.normal(size=25))
        learn(at_once, x, loss, t)
        for k in range(25):
            learn(one_by_one, x[k : k + 1], loss[k : k + 1], t)
    assert exponent(at_once) < 0.5
    assert exponent(one_by_one) == pytest.approx(exponent(at_once), abs=0.25)


def test_clients_that_took_part_alike_tell_nothing():
    trend, rng = LossTrend(), np.random.default_rng(0)
    for t in range(1, 100):
        learn(trend, np.zeros(5), np.exp(1 - t / 20 + 0.1 * rng.normal(size=5)), t)
    assert exponent(trend) == pytest.approx(PRIOR)


def test_losses_that_are_none_are_passed_over():
    trend = LossTrend()
    learn(trend, np.zeros(4), np.array([np.nan, np.inf, 0.0, -1.0]), 1)
    assert trend == LossTrend()
