"""The fairness exponent: found if it is known, and the default if losses carry no information."""

import numpy as np
import pytest

from bsfl.estimators.response_value import (
    DEFAULT_EXPONENT,
    LOSS_POWER,
    MAX_EXPONENT,
    PRIOR_EXPONENT,
    LossTrend,
    exponent,
    learn,
)


def trained(slope, rounds=200, noise=0.3, fall=50.0, seed=0, one_at_a_time=False, skipped=0):
    rng, trend = np.random.default_rng(seed), LossTrend()
    for t in range(skipped + 1, skipped + rounds + 1):
        x = rng.normal(size=10)
        y = 1.0 - t / fall - slope * x + noise * rng.normal(size=10)
        for part in np.arange(10).reshape((10, 1) if one_at_a_time else (1, 10)):
            learn(trend, x[part], np.exp(y[part]), t)
    return trend


@pytest.mark.parametrize("slope", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("one_at_a_time", [False, True])
def test_the_slope_of_losses_is_found(slope, one_at_a_time):
    trend = trained(slope, one_at_a_time=one_at_a_time)
    assert exponent(trend) == pytest.approx(LOSS_POWER * slope, abs=0.1)


def test_it_stays_within_limits():
    assert exponent(trained(-1.0)) == 0.0
    assert exponent(trained(3.0, fall=20.0)) == MAX_EXPONENT


def test_losses_that_do_not_fall_are_ignored():
    assert exponent(LossTrend()) == DEFAULT_EXPONENT
    assert exponent(trained(0.0, fall=np.inf, noise=1.0)) == DEFAULT_EXPONENT
    assert exponent(trained(0.0, fall=-100.0)) == DEFAULT_EXPONENT, "they rise"
    assert exponent(trained(0.0)) < 0.1, "they fall, and participation makes no difference"


def test_losses_are_not_tested_before_100_losses_and_20_rounds():
    assert exponent(trained(0.0, rounds=20, fall=np.inf, noise=1.0)) < 1.0, "for 20 rounds"
    assert exponent(trained(0.0, rounds=21, fall=np.inf, noise=1.0)) == DEFAULT_EXPONENT
    assert exponent(trained(0.0, rounds=20, fall=np.inf, noise=1.0, skipped=50)) < 1.0
    few = LossTrend()
    for t in range(1, 101):
        learn(few, np.zeros(1), np.ones(1), t)
    assert exponent(few) < 1.0, "for 100 losses"
    learn(few, np.zeros(1), np.ones(1), 101)
    assert exponent(few) == DEFAULT_EXPONENT


def test_losses_that_fall_early_in_training_do_not_look_like_an_effect_of_participation():
    at_once, one_at_a_time, rng = LossTrend(), LossTrend(), np.random.default_rng(0)
    for t in range(1, 31):  # clients took part ever more, and all losses fall alike
        x = t / 20 + 0.5 * rng.normal(size=25)
        loss = np.exp(2.0 - t / 10 + 0.1 * rng.normal(size=25))
        learn(at_once, x, loss, t)
        for k in range(25):
            learn(one_at_a_time, x[k : k + 1], loss[k : k + 1], t)
    assert exponent(at_once) < 0.5
    assert exponent(one_at_a_time) == pytest.approx(exponent(at_once), abs=0.25)


def test_clients_with_equal_participation_carry_no_information():
    trend, rng = LossTrend(), np.random.default_rng(0)
    for t in range(1, 100):
        learn(trend, np.zeros(5), np.exp(1 - t / 20 + 0.1 * rng.normal(size=5)), t)
    assert exponent(trend) == pytest.approx(PRIOR_EXPONENT)


def test_losses_without_a_logarithm_are_ignored():
    trend = LossTrend()
    learn(trend, np.zeros(4), np.array([np.nan, np.inf, 0.0, -1.0]), 1)
    assert trend == LossTrend()
