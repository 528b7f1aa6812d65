"""AFL: values by hand, and the statistics of its three kinds of draws."""

import numpy as np
import pytest
from policy_rounds import drive, losses_of

from bsfl.errors import InvalidInput
from bsfl.policies import AFL
from bsfl.policies.afl import optimistic_values


def test_values_by_hand():
    driver = drive(AFL(), 5, 2, samples=[1, 1, 16, 1, 1])

    def values():
        return optimistic_values(driver.state, driver.context(), np.arange(5)).tolist()

    driver.run_round(losses_of({0: 2.0, 1: 0.5}, samples={0: 9, 1: 4}))
    driver.run_round(losses_of({2: 3.0}), cohort=[2, 3])
    # sqrt(9) 2, sqrt(4) 0.5, sqrt(16) 3, no response, unseen: as good as the best
    assert values() == [6, 1, 12, 0, 12]
    driver.run_round(losses_of({2: 1.0}))
    assert values() == [6, 1, 4, 0, 6]


def after_losses(policy, losses):
    """Return a driver after a round in which all clients, with a sample each, reported losses."""
    driver = drive(policy, len(losses), len(losses), samples=np.ones(len(losses)))
    driver.run_round(losses_of(dict(enumerate(losses))))
    return driver


def test_the_lowest_values_are_only_drawn_uniformly():
    # K = 20, m = 10: 5 clients stay in the draw, all of them are selected; 5 places are left for 15
    driver = after_losses(AFL(), 1.0 + np.arange(20.0))
    here, rng = driver.context(target_responses=10), np.random.default_rng(2)
    hits, draws = np.zeros(20), 3000
    for _ in range(draws):
        hits[driver.select(here, rng)] += 1
    assert np.all(hits[15:] == draws)
    assert np.all(np.abs(hits[:15] / draws - 1 / 3) < 4 * np.sqrt(2 / 9 / draws))


def test_nine_tenths_are_drawn_by_value():
    # m = 10 of 100: 9 of the 25 best, 1 of the 91 others
    driver = after_losses(AFL(temperature=0.0), 1.0 + np.arange(100.0))
    here, rng = driver.context(target_responses=10), np.random.default_rng(3)
    low, draws = 0, 4000
    for _ in range(draws):
        n_low = int(np.sum(driver.select(here, rng) < 75))
        assert n_low <= 1
        low += n_low
    assert abs(low / draws - 75 / 91) < 4 * np.sqrt(75 * 16 / 91**2 / draws)


@pytest.mark.slow
def test_values_weigh_as_the_exponential_says():
    # m = 1, drop 0, uniform 0: probabilities exp(0.5 v) / sum with v = 0, 1, 2
    driver = after_losses(AFL(drop=0.0, uniform=0.0, temperature=0.5), [0.0, 1.0, 2.0])
    here, rng = driver.context(target_responses=1), np.random.default_rng(4)
    hits, draws = np.zeros(3), 20_000
    for _ in range(draws):
        hits[driver.select(here, rng)] += 1
    p = np.exp([0.0, 0.5, 1.0])
    p /= p.sum()
    assert np.all(np.abs(hits / draws - p) < 4 * np.sqrt(p * (1 - p) / draws))


def test_huge_values_do_not_overflow():
    driver = after_losses(AFL(drop=0.0, uniform=0.0), [0.0, 0.0, 0.0])
    driver.state.value[:] = [1e6, 1e6 + 1e4, 0.0]
    assert driver.select(target_responses=1).tolist() == [1]


@pytest.mark.parametrize("setting", ["drop", "uniform"])
def test_bad_shares_are_rejected(setting):
    with pytest.raises(InvalidInput, match=f"{setting} must be between 0 and 1, got 1.1"):
        AFL(**{setting: 1.1})


def test_bad_temperature_is_rejected():
    with pytest.raises(InvalidInput, match="temperature must be a finite number of at least 0"):
        AFL(temperature=-0.1)
