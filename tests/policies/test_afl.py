"""AFL: values by hand, and the statistics of its three kinds of draws."""

import numpy as np
import pytest
from policy_rounds import after_losses, assert_frequencies, drive, losses_of

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


def test_the_lowest_values_are_only_drawn_uniformly():
    # K = 20, m = 10: 5 clients stay in the draw, all of them are selected; 5 places are left for 15
    driver = after_losses(AFL(), 1.0 + np.arange(20.0))
    here = driver.context(target_responses=10)
    expected = np.repeat([1 / 3, 1.0], [15, 5])
    assert_frequencies(lambda rng: driver.select(here, rng), expected, 3000)


def test_nine_tenths_are_drawn_by_value():
    # m = 10 of 100: 9 of the 25 best, 1 of the 91 others
    driver = after_losses(AFL(temperature=0.0), 1.0 + np.arange(100.0))
    here = driver.context(target_responses=10)

    def n_low(rng):
        return np.sum(driver.select(here, rng) < 75)

    assert_frequencies(n_low, [16 / 91, 75 / 91], 4000)


@pytest.mark.slow
def test_values_weigh_as_the_exponential_says():
    # m = 1, drop 0, uniform 0: probabilities exp(0.5 v) / sum with v = 0, 1, 2
    driver = after_losses(AFL(drop=0.0, uniform=0.0, temperature=0.5), [0.0, 1.0, 2.0])
    here, weight = driver.context(target_responses=1), np.exp([0.0, 0.5, 1.0])
    assert_frequencies(lambda rng: driver.select(here, rng), weight / weight.sum(), 20_000)


def test_huge_values_do_not_overflow():
    driver = after_losses(AFL(drop=0.0, uniform=0.0), [0.0, 0.0, 0.0])
    driver.state.value[:] = [1e6, 1e6 + 1e4, 0.0]
    assert driver.select(target_responses=1).tolist() == [1]
