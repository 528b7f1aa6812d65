"""Age-based selection: the recursion of ages, and products by hand."""

import numpy as np
import pytest
from policy_rounds import context, report

from bsfl.errors import InvalidInput
from bsfl.policies import AgeBased

RNG = np.random.default_rng(0)


def test_ages_follow_the_recursion():
    policy, rng = AgeBased(tau_max=10.0), np.random.default_rng(2)
    state, age = policy.init(7), np.zeros(7)
    for t in range(1, 50):
        here = context(t, 2, 7)
        assert policy.ages(state, here, np.arange(7)).tolist() == age.tolist()
        cohort = policy.select(state, here, rng)
        policy.observe(state, here, report({int(k): 1.0 + k for k in cohort}))
        age = (age + 1) * (1 - np.isin(np.arange(7), cohort))


def test_rounds_by_hand():
    policy = AgeBased(tau_max=10.0)
    state = policy.init(3)
    policy.observe(state, context(1, 1, 3), report({0: 1.0}))
    assert policy.select(state, context(2, 2, 3), RNG).tolist() == [1, 2], "never chosen first"
    policy.observe(state, context(2, 1, 3), report({1: 2.0}))
    policy.observe(state, context(3, 1, 3), report({2: 8.0}))
    # t = 4: ages 2, 1, 0; speeds 1, 1/2, 1/8
    here = context(4, 1, 3)
    assert policy.ages(state, here, np.arange(3)).tolist() == [2, 1, 0]
    assert policy.select(state, here, RNG).tolist() == [0]
    policy.observe(state, here, report({0: 4.0}))
    # t = 5: ages 0, 2, 1; speeds (1 + 1/4) / 2, 1/2, 1/8
    assert policy.speeds(state, np.arange(3)) == pytest.approx([0.625, 0.5, 0.125])
    assert policy.select(state, context(5, 1, 3), RNG).tolist() == [1]


def test_a_slow_client_comes_back_when_its_age_makes_up_for_its_speed():
    # m = 1, speeds 1, 1 and 1/2.5. After a slow round the quick ones stand at ages 1 and 2 and go
    # at products 2, 2 and 1; then the slow one, three rounds old, leads by 3/2.5 to 1.
    policy, chosen = AgeBased(tau_max=10.0), []
    state = policy.init(3)
    for t in range(1, 61):
        here = context(t, 1, 3)
        cohort = policy.select(state, here, np.random.default_rng(t))
        policy.observe(state, here, report({int(k): (1.0, 1.0, 2.5)[k] for k in cohort}))
        chosen.append(int(cohort[0]))
    slow = [t for t in range(20, 60) if chosen[t] == 2]
    assert np.all(np.diff(slow) == 4)
    assert len(slow) == 10


def test_silence_counts_as_the_deadline():
    policy = AgeBased(tau_max=10.0)
    state = policy.init(2)
    policy.observe(state, context(1, 2, 2), report({0: 50.0}, chosen=[0, 1]))
    assert policy.speeds(state, np.arange(2)) == pytest.approx([0.1, 0.1])


def test_rounds_before_joining_do_not_age_a_client():
    policy = AgeBased(tau_max=10.0)
    here = context(9, 1, 2, since=np.array([1, 8]))
    assert policy.ages(policy.init(2), here, np.arange(2)).tolist() == [8, 1]


def test_a_newcomer_comes_before_the_oldest():
    policy = AgeBased(tau_max=10.0)
    state = policy.init(2)
    policy.observe(state, context(1, 1, 1), report({0: 0.01}))
    here = context(9, 1, 2, since=np.array([1, 9]))
    # ages 7 and 0, yet client 1 was never chosen
    assert policy.select(state, here, RNG).tolist() == [1]


def test_bad_settings_are_refused():
    with pytest.raises(InvalidInput, match="tau_max must be a finite number above 0, got 0"):
        AgeBased(tau_max=0)
