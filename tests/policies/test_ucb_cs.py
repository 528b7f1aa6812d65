"""UCB-CS: discounted sums against their definition, and an index by hand."""

from math import log, sqrt

import numpy as np
import pytest
from policy_rounds import context, losses_of

from bsfl.errors import InvalidInput
from bsfl.policies import UcbCs
from bsfl.policies.ucb_cs import last_spread

RNG = np.random.default_rng(0)


def test_index_by_hand():
    # gamma = 1/2; round 1: losses 4 and 2 of clients 0 and 1; round 2: loss 1 of client 0
    policy = UcbCs(gamma=0.5, sigma=3.0)
    state, everyone = policy.init(3), np.arange(3)
    policy.observe(state, context(1, 2, 3), losses_of({0: 4.0, 1: 2.0}))
    # t = 2: N = 1, 1, T = 1, so the radius is 0
    assert policy.index(state, context(2, 2, 3), everyone).tolist() == [4.0, 2.0, np.inf]
    policy.observe(state, context(2, 1, 3), losses_of({0: 1.0}))
    # t = 3: N_0 = 1/2 + 1, L_0 = 4/2 + 1; N_1 = 1/2, L_1 = 2/2; T = 1/2 + 1
    assert policy.index(state, context(3, 1, 3), everyone) == pytest.approx(
        [3 / 1.5 + sqrt(2 * 9 * log(1.5) / 1.5), 1 / 0.5 + sqrt(2 * 9 * log(1.5) / 0.5), np.inf]
    )
    # t = 4: everything fades once more, the means stay; T = 7/4
    assert policy.index(state, context(4, 1, 3), everyone[:2]) == pytest.approx(
        [2 + sqrt(18 * log(1.75) / 0.75), 2 + sqrt(18 * log(1.75) / 0.25)]
    )


def test_sums_equal_their_definition():
    gamma, k, rng = 0.7, 5, np.random.default_rng(3)
    policy = UcbCs(gamma=gamma, sigma=0.5)
    state, history = policy.init(k), []
    for t in range(1, 40):
        here = context(t, 2, k, samples=np.ones(k))
        for i in range(k):
            terms = [(s, told[i]) for s, told in history if i in told]
            if terms:
                count = sum(gamma ** (t - 1 - s) for s, _ in terms)
                total = sum(gamma ** (t - 1 - s) * loss for s, loss in terms)
                rounds = sum(gamma ** (t - 1 - s) for s in range(1, t))
                expected = total / count + sqrt(2 * 0.25 * log(rounds) / count)
                index = policy.index(state, here, np.array([i]))
                assert index[0] == pytest.approx(expected)
        told = {int(i): float(rng.uniform(0.1, 3.0)) for i in policy.select(state, here, rng)}
        policy.observe(state, here, losses_of(told))
        history.append((t, told))


def test_data_size_weighs_the_index():
    policy = UcbCs(sigma=0.0)
    state = policy.init(3)
    policy.observe(state, context(1, 3, 3), losses_of({0: 3.0, 1: 2.0, 2: 1.0}))
    # 3 * 1, 2 * 2, 1 * 5
    sizes = np.array([1.0, 2.0, 5.0])
    assert policy.select(state, context(2, 1, 3, samples=sizes), RNG).tolist() == [2]
    assert policy.select(state, context(2, 2, 3, samples=sizes), RNG).tolist() == [1, 2]


def test_spread_is_that_of_the_last_cohort():
    policy = UcbCs()
    state = policy.init(5)
    assert last_spread(state) == 0.0
    policy.observe(state, context(1, 2, 5), losses_of({0: 100.0, 1: 0.0}))
    assert last_spread(state) == 50.0
    policy.observe(state, context(2, 3, 5), losses_of({2: 1.0, 3: 3.0}, chosen=[2, 3, 4]))
    assert last_spread(state) == 1.0, "the silent client 4 does not count"


def test_a_long_wait_makes_a_client_as_good_as_new():
    policy = UcbCs(gamma=0.1, sigma=1.0)
    state = policy.init(2)
    policy.observe(state, context(1, 2, 2), losses_of({0: 5.0, 1: 5.0}))
    index = policy.index(state, context(5000, 1, 2), np.arange(2))
    assert index.tolist() == [np.inf, np.inf], "the count has faded to nothing, without a warning"


def test_late_answers_are_discounted_from_their_own_round():
    early, late = UcbCs(gamma=0.5), UcbCs(gamma=0.5)
    one, two = early.init(2), late.init(2)
    early.observe(one, context(1, 1, 2), losses_of({0: 8.0}))
    early.observe(one, context(2, 1, 2), losses_of({0: 2.0}))
    late.observe(two, context(1, 1, 2), losses_of({}, chosen=[0]))
    late.observe(two, context(2, 1, 2), losses_of({0: 2.0}))
    late.observe(two, context(1, 1, 2), losses_of({0: 8.0}, chosen=[]))
    assert one.loss_sum.tolist() == two.loss_sum.tolist() == [8 / 2 + 2, 0]
    assert one.count.tolist() == two.count.tolist() == [1.5, 0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 1.0}, "gamma must be above 0 and below 1, got 1.0"),
        ({"gamma": 0.0}, "gamma must be above 0 and below 1, got 0.0"),
        ({"gamma": 1.5}, "gamma must be between 0 and 1, got 1.5"),
        ({"sigma": -1.0}, "sigma must be a finite number of at least 0, got -1.0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        UcbCs(**settings)
