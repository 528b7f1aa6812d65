"""AFL: values by hand, and the statistics of its three kinds of draws."""

import numpy as np
import pytest
from policy_rounds import context, losses_of

from bsfl.errors import InvalidInput
from bsfl.policies import AFL
from bsfl.policies.afl import optimistic_values


def test_values_by_hand():
    policy = AFL()
    state = policy.init(5)
    reported = {0: 9, 1: 4}
    policy.observe(state, context(1, 2, 5), losses_of({0: 2.0, 1: 0.5}, samples=reported))
    registered = {"samples": np.array([1.0, 1.0, 16.0, 1.0, 1.0])}
    policy.observe(state, context(2, 2, 5, **registered), losses_of({2: 3.0}, chosen=[2, 3]))
    # sqrt(9) 2, sqrt(4) 0.5, sqrt(16) 3, silent, never chosen: as good as the best
    assert optimistic_values(state, np.arange(5)).tolist() == [6, 1, 12, 0, 12]
    policy.observe(state, context(3, 1, 5, **registered), losses_of({2: 1.0}))
    assert optimistic_values(state, np.arange(5)).tolist() == [6, 1, 4, 0, 6]


def test_the_lowest_values_are_only_drawn_uniformly():
    # K = 20, m = 10: 5 clients stay in the draw, all of them are taken; 5 places are left for 15
    policy = AFL()
    state = policy.init(20)
    losses = {k: 1.0 + k for k in range(20)}
    policy.observe(state, context(1, 20, 20, samples=np.ones(20)), losses_of(losses))
    rng, hits, draws = np.random.default_rng(2), np.zeros(20), 3000
    for _ in range(draws):
        hits[policy.select(state, context(2, 10, 20), rng)] += 1
    assert np.all(hits[15:] == draws)
    assert np.all(np.abs(hits[:15] / draws - 1 / 3) < 4 * np.sqrt(2 / 9 / draws))


def test_nine_tenths_are_drawn_by_value():
    # m = 10 of 100: 9 of the 25 best, 1 of the 91 others
    policy = AFL(temperature=0.0)
    state = policy.init(100)
    losses = {k: 1.0 + k for k in range(100)}
    policy.observe(state, context(1, 100, 100, samples=np.ones(100)), losses_of(losses))
    rng, low, draws = np.random.default_rng(3), 0, 4000
    for _ in range(draws):
        cohort = policy.select(state, context(2, 10, 100), rng)
        n_low = int(np.sum(cohort < 75))
        assert n_low <= 1
        low += n_low
    assert abs(low / draws - 75 / 91) < 4 * np.sqrt(75 * 16 / 91**2 / draws)


@pytest.mark.slow
def test_values_weigh_as_the_exponential_says():
    # m = 1, drop 0, uniform 0: probabilities exp(0.5 v) / sum with v = 0, 1, 2
    policy, draws = AFL(drop=0.0, uniform=0.0, temperature=0.5), 20_000
    state = policy.init(3)
    policy.observe(state, context(1, 3, 3, samples=np.ones(3)), losses_of({0: 0.0, 1: 1.0, 2: 2.0}))
    rng, hits = np.random.default_rng(4), np.zeros(3)
    for _ in range(draws):
        hits[policy.select(state, context(2, 1, 3), rng)] += 1
    p = np.exp([0.0, 0.5, 1.0])
    p /= p.sum()
    assert np.all(np.abs(hits / draws - p) < 4 * np.sqrt(p * (1 - p) / draws))


def test_huge_values_do_not_overflow():
    policy = AFL(drop=0.0, uniform=0.0)
    state = policy.init(3)
    state.selected[:], state.value[:] = 1, [1e6, 1e6 + 1e4, 0.0]
    assert policy.select(state, context(2, 1, 3), np.random.default_rng(0)).tolist() == [1]


@pytest.mark.parametrize("setting", ["drop", "uniform"])
def test_bad_shares_are_refused(setting):
    with pytest.raises(InvalidInput, match=f"{setting} must be between 0 and 1, got 1.1"):
        AFL(**{setting: 1.1})


def test_bad_temperature_is_refused():
    with pytest.raises(InvalidInput, match="temperature must be a finite number of at least 0"):
        AFL(temperature=-0.1)
