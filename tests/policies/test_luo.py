"""Luo et al.: probabilities and weights by hand, and the statistics of the draw."""

import numpy as np
import pytest
from policy_rounds import context, losses_of, report

from bsfl.errors import InvalidInput
from bsfl.policies import Luo

SIZES = np.array([1.0, 2.0, 3.0, 4.0])
LOSSES = {0: 1.0, 1: 2.0, 2: 1.0, 3: 0.5}
LATENCIES = {0: 1.0, 1: 4.0, 2: 9.0, 3: 16.0}
# p = 0.1, 0.2, 0.3, 0.4; p G / sqrt(tau) = 0.1 x 1 / 1, 0.2 x 2 / 2, 0.3 x 1 / 3, 0.4 x 0.5 / 4
# = 0.1, 0.2, 0.1, 0.05, in all 0.45: q = 2/9, 4/9, 2/9, 1/9
Q = np.array([2, 4, 2, 1]) / 9
P = SIZES / 10


def here(m, available=None, t=2):
    return context(t, m, 4, available=available, samples=SIZES)


def learned(policy, losses=LOSSES, latencies=LATENCIES):
    state = policy.init(4)
    policy.observe(state, here(4, t=1), report(latencies, losses=losses))
    return state


@pytest.mark.parametrize(
    ("m", "inclusion"),
    [
        (1, Q),
        (2, 2 * Q),
        # 3 q_1 = 4/3: client 1 is certain, the others share two places by 0.1, 0.1, 0.05
        (3, np.array([0.8, 1.0, 0.8, 0.4])),
        (4, np.ones(4)),
    ],
)
def test_probabilities_and_weights_by_hand(m, inclusion):
    policy = Luo(tau_max=60.0)
    state = learned(policy)
    rng, hits, moved, draws = np.random.default_rng(m), np.zeros(4), np.zeros(4), 1500
    for _ in range(draws):
        cohort = policy.select(state, here(m), rng)
        weights = policy.weights(state, here(m), cohort)
        assert np.allclose(weights, (P / inclusion)[cohort])
        hits[cohort] += 1
        moved[cohort] += weights
    margin = 4 * np.sqrt(inclusion * (1 - inclusion) / draws) + 1e-12
    assert np.all(np.abs(hits / draws - inclusion) < margin)
    assert moved / draws == pytest.approx(P, rel=0.25), "right on average"


def test_the_unknown_count_as_the_mean_of_the_others():
    # client 3 unknown: G = (1 + 2 + 1) / 3, tau = (1 + 4 + 9) / 3
    policy = Luo(tau_max=60.0)
    known = dict.fromkeys((0, 1, 2))
    state = learned(policy, LOSSES, {k: LATENCIES[k] for k in known})
    assert policy.gains(state) == pytest.approx([1, 1, 1 / 3, (4 / 3) / np.sqrt(14 / 3)])
    assert policy.gains(policy.init(4)).tolist() == [1, 1, 1, 1]


def test_latencies_are_averaged_and_never_beyond_the_deadline():
    policy = Luo(tau_max=9.0, speed=1.0)
    state = learned(policy, dict.fromkeys(range(4), 1.0), {0: 2.0, 1: 99.0})
    policy.observe(state, here(2), report({0: 4.0}, losses=[1.0]))
    policy.observe(state, here(2), report({2: 5.0}, outcome="timeout"))
    policy.observe(state, here(2), report({3: 4.0}, outcome="late"))
    assert policy.gains(state) == pytest.approx([1 / 3, 1 / 9, 1 / 9, 1 / 4])


def test_a_loss_of_0_leaves_a_chance():
    # mean of 0, 1, 1, 2 is 1: G_0 is a tenth of it; if all are 0, all are alike
    policy = Luo(tau_max=9.0)
    state = policy.init(4)
    policy.observe(state, here(4, t=1), losses_of({0: 0.0, 1: 1.0, 2: -1.0, 3: 2.0}))
    assert policy.gains(state).tolist() == [0.1, 1, 1, 2]
    policy.observe(state, here(4), losses_of(dict.fromkeys(range(4), 0.0)))
    assert policy.gains(state).tolist() == [1, 1, 1, 1]


def test_shares_are_those_of_the_clients_that_could_be_drawn():
    policy = Luo(tau_max=60.0)
    state = learned(policy)
    # 0 and 1 available, m = 1: p = 1/3, 2/3 and q = 1/3, 2/3
    weights = policy.weights(state, here(1, available=[0, 1]), np.array([1]))
    assert weights == pytest.approx([1.0])
    # 3 was chosen before: p = 1/7, 2/7, 4/7 and q = 2/7, 4/7, 1/7, and two came for one
    weights = policy.weights(state, here(1, available=[0, 1]), np.array([0, 3]))
    assert weights == pytest.approx([0.5 / 2, 4.0 / 2])
    # without a barrier nobody is said to be available: everyone counts
    weights = policy.weights(state, here(1, available=[]), np.array([3, 0]))
    assert weights == pytest.approx([0.4 * 9, 0.1 * 9 / 2])


def test_who_comes_stands_for_those_who_do_not():
    # 2 are invited and 1 answer is enough: each is in the model half as often as it is invited
    policy = Luo(tau_max=60.0)
    weights = policy.weights(learned(policy), here(2), np.array([3]))
    assert weights == pytest.approx([P[3] / Q[3]])
    assert len(policy.weights(learned(policy), here(2), np.array([], dtype=np.int64))) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tau_max": 0}, "tau_max must be a finite number above 0, got 0"),
        ({"speed": -1}, "speed must be between 0 and 10, got -1"),
        ({"least": 0}, "least must be a finite number above 0, got 0"),
        ({"least": 2}, "least must be between 0 and 1, got 2"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        Luo(**{"tau_max": 1.0, **settings})
