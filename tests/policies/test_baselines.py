"""The paper's comparison methods: worked cases and the statistics of the random ones."""

from math import log, sqrt

import numpy as np
import pytest
from policy_rounds import context, report

from bsfl.errors import InvalidInput
from bsfl.estimation import Means
from bsfl.policies import BSFL, CsUcb, CsUcbQ, Genie, UniformRandom, WeightedRandom, make_policy
from bsfl.policies.base import top_m
from bsfl.policies.weighted_random import systematic_sample

RNG = np.random.default_rng(0)


def test_cs_ucb_by_hand():
    policy = CsUcb(tau_max=10.0)
    state = policy.init(3)
    policy.observe(state, context(1, 2, 3), report({0: 2.0, 1: 5.0}))
    assert state.mean.tolist() == [0.8, 0.5, 0.0]
    cohort = policy.select(state, context(2, 2, 3), RNG).tolist()
    assert cohort == [0, 2], "the unexplored client first, then the better mean"
    policy.observe(state, context(2, 2, 3), report({0: 4.0, 2: 30.0}))
    assert state.mean == pytest.approx([0.7, 0.5, 0.0]), "beyond tau_max earns 0, not less"
    # t = 3: 0.7 + sqrt(3 ln 3 / 2) = 1.98; 0.5 + sqrt(3 ln 3) = 2.32; 0 + 1.82
    assert policy.select(state, context(3, 1, 3), RNG).tolist() == [1]


@pytest.mark.parametrize(("policy", "slow"), [(CsUcb, 5.0), (CsUcbQ, 8.0)])
def test_less_exploration_lets_speed_count_earlier(policy, slow):
    published, eager = policy(tau_max=10.0), policy(tau_max=10.0, exploration=0.01)
    state = published.init(2)
    published.observe(state, context(1, 2, 2), report({0: 2.0, 1: slow}))
    published.observe(state, context(2, 1, 2), report({0: 2.0}))
    # round 3, chosen twice and once. CS-UCB: 0.8 + sqrt(2 ln 3 / 2) = 1.85 is below
    # 0.5 + sqrt(2 ln 3) = 1.98, with a hundredth 0.90 is above 0.65. CS-UCB-Q: both indices are
    # cut to 1 and the queue decides, with a hundredth they are 0.90 and 0.35
    assert published.select(state, context(3, 1, 2), RNG).tolist() == [1]
    assert eager.select(state, context(3, 1, 2), RNG).tolist() == [0]
    with pytest.raises(InvalidInput, match="exploration must be"):
        policy(tau_max=10.0, exploration=-1.0)


def test_cs_ucb_meets_everyone_in_the_first_rounds():
    policy, met = CsUcb(tau_max=10.0), set()
    state = policy.init(10)
    for t in range(1, 5):  # ceil(10 / 3)
        cohort = policy.select(state, context(t, 3, 10), np.random.default_rng(t))
        policy.observe(state, context(t, 3, 10), report({int(k): 1.0 + k for k in cohort}))
        met |= set(cohort.tolist())
    assert met == set(range(10))


def test_cs_ucb_q_by_hand():
    # K = 3, m = 1, sizes 2, 1, 1: share = 0.5 * 1 * n / 4 = 1/4, 1/8, 1/8
    policy, sizes = CsUcbQ(tau_max=10.0), np.array([2.0, 1.0, 1.0])
    state = policy.init(3)

    def here(t, **more):
        return context(t, 1, 3, samples=sizes, **more)

    everyone = np.arange(3)
    assert policy.queues(state, here(1), everyone).tolist() == [0, 0, 0]
    policy.observe(state, here(1), report({0: 1.0}))
    # D(2) = max(0 + 1/4 - 1, 0), 1/8, 1/8
    assert policy.queues(state, here(2), everyone) == pytest.approx([0, 1 / 8, 1 / 8])
    # index: min(1, 0.9 + sqrt(2 ln 2)) = 1 for all; the queue decides between 1 and 2
    assert policy.select(state, here(2, available=[0, 1]), RNG).tolist() == [1]
    policy.observe(state, here(2), report({1: 10.0}))
    # D(3) = 1/4, max(1/8 + 1/8 - 1, 0), 2/8
    assert policy.queues(state, here(3), everyone) == pytest.approx([1 / 4, 0, 1 / 4])
    # and it keeps growing while nobody serves it
    assert policy.queues(state, here(13), everyone) == pytest.approx(
        [1 / 4 + 10 / 4, 10 / 8, 1 / 4 + 10 / 8]
    )


def test_cs_ucb_q_queues_equal_the_recursion():
    policy, rng = CsUcbQ(tau_max=10.0, phi=1.0), np.random.default_rng(4)
    sizes = rng.uniform(1, 5, 6)
    state, queue = policy.init(6), np.zeros(6)
    share = 2 * sizes / sizes.sum()
    for t in range(1, 60):
        here = context(t, 2, 6, samples=sizes)
        assert policy.queues(state, here, np.arange(6)) == pytest.approx(queue)
        cohort = policy.select(state, here, rng)
        policy.observe(state, here, report({int(k): 1.0 for k in cohort}))
        queue = np.maximum(queue + share - np.isin(np.arange(6), cohort), 0)


def test_cs_ucb_q_index_is_capped_at_one():
    policy = CsUcbQ(tau_max=1.0, beta=0.0)
    state = policy.init(2)
    state.observed[:], state.mean[:] = [1000, 1000], [0.2, 0.9]
    state.selected[:] = 1000
    # t = 100: 0.2 + sqrt(2 ln 100 / 1000) = 0.296; 0.9 + 0.096 = 0.996
    assert policy.select(state, context(100, 1, 2), RNG).tolist() == [1]
    state.selected[0] = state.observed[0] = (
        2  # 0.2 + sqrt(ln 100) > 1: both near the cap, the optimist wins
    )
    assert 0.2 + sqrt(log(100)) > 1
    assert policy.select(state, context(100, 1, 2), RNG).tolist() == [0]


def test_uniform_random_includes_everyone_equally():
    policy, draws, k, m = UniformRandom(), 6000, 8, 3
    rng = np.random.default_rng(1)
    hits = np.zeros(k)
    for _ in range(draws):
        hits[policy.select(policy.init(k), context(1, m, k), rng)] += 1
    expected = m / k
    assert np.all(np.abs(hits / draws - expected) < 4 * sqrt(expected * (1 - expected) / draws))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[1, 2, 3, 4, 5, 6, 7, 8], [50, 1, 1, 2, 3, 3, 4, 40]])
def test_weighted_random_has_the_promised_inclusion_probabilities(sizes):
    sizes, m, draws = np.array(sizes, dtype=float), 3, 20_000
    rng = np.random.default_rng(2)
    hits = np.zeros(8)
    for _ in range(draws):
        cohort = WeightedRandom().select(None, context(1, m, 8, samples=sizes), rng)
        assert len(set(cohort.tolist())) == m
        hits[cohort] += 1
    target = m * sizes / sizes.sum()
    while target.max() > 1:  # cap one after another, the slow way
        capped = target >= 1
        target = np.where(capped, 1.0, (m - capped.sum()) * sizes / sizes[~capped].sum())
    margin = 4 * np.sqrt(target * (1 - target) / draws) + 1e-12
    assert np.all(np.abs(hits / draws - target) < margin)


@pytest.mark.slow
def test_drawing_one_after_another_would_miss_those_probabilities():
    """The margin above is tight enough to tell the methods apart."""
    sizes, m, draws = np.arange(1.0, 9.0), 3, 20_000
    rng = np.random.default_rng(2)
    hits = np.zeros(8)
    for _ in range(draws):
        hits[rng.choice(8, m, replace=False, p=sizes / sizes.sum())] += 1
    target = m * sizes / sizes.sum()
    assert np.any(np.abs(hits / draws - target) > 4 * np.sqrt(target * (1 - target) / draws))


def test_systematic_sample_survives_rounding():
    rng = np.random.default_rng(0)
    inclusion = np.full(3, 1 / 3)
    inclusion = np.concatenate([inclusion, np.full(10, 0.1), np.ones(2)])
    for _ in range(2000):
        drawn = systematic_sample(inclusion, rng)
        assert len(drawn) == len(set(drawn.tolist())) == 4
        assert {13, 14} <= set(drawn.tolist())


def test_weighted_random_needs_samples():
    with pytest.raises(InvalidInput, match="needs every client's samples"):
        WeightedRandom().select(None, context(1, 2, 4), RNG)


def test_genie_maximises_with_the_truth():
    # m = 2: E{0,1} = 0.8 + g0 + g1 ..., with alpha / m = 1
    genie = Genie(mean_speed=[0.9, 0.8, 0.2, 0.1], alpha=2.0)
    state = genie.init(4)
    state.selected[:] = [5, 5, 0, 0]
    # t = 11: g = 1/2 - 5/11 = 0.045 and 1/2: E{0,1} = 0.89, E{2,3} = 0.1 + 1.0 = 1.1
    assert genie.select(state, context(11, 2, 4), RNG).tolist() == [2, 3]
    genie.observe(state, context(11, 2, 4), report({2: 1.0, 3: 1.0}))
    assert state.selected.tolist() == [5, 5, 1, 1]


def test_genie_equals_bsfl_that_knows_everything():
    mean = np.random.default_rng(3).uniform(0.1, 1.0, 15)
    genie = Genie(mean_speed=mean, alpha=4.0)
    bsfl = BSFL(alpha=4.0, tau_min=1.0, index=Means(radius="none"))
    told, learned = genie.init(15), bsfl.init(15)
    learned.memory.observed[:], learned.memory.mean[:] = 1, mean
    learned.selected[:] = told.selected[:] = 1
    for t in range(5, 40):
        here = context(t, 4, 15)
        cohort = genie.select(told, here, RNG)
        assert cohort.tolist() == bsfl.select(learned, here, RNG).tolist()
        for state in (told, learned):
            state.selected[cohort] += 1


def test_top_m_breaks_ties_at_random():
    score = np.array([1.0, 1.0, 1.0, 0.0, 2.0])
    seen = {tuple(top_m(score, 2, np.random.default_rng(s)).tolist()) for s in range(50)}
    assert seen == {(0, 4), (1, 4), (2, 4)}


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("bslf", {}, "unknown policy 'bslf'; did you mean 'bsfl'"),
        ("cs-ucb", {}, "policy 'cs-ucb' needs a value for tau_max"),
        ("cs-ucb", {"tau_max": 0}, "tau_max must be a finite number above 0, got 0"),
        (
            "cs-ucb",
            {"tau_mx": 1},
            "policy 'cs-ucb' has no setting 'tau_mx'; did you mean 'tau_max'",
        ),
        ("cs-ucb-q", {"tau_max": 1, "beta": 1.5}, "beta must be between 0 and 1, got 1.5"),
        ("cs-ucb-q", {"tau_max": 1, "phi": -0.1}, "phi must be between 0 and 1, got -0.1"),
        ("genie", {"mean_speed": [0.5, -1.0]}, "mean_speed must be finite and above 0, got -1"),
    ],
)
def test_bad_settings_are_refused(name, settings, message):
    with pytest.raises(InvalidInput, match=message):
        make_policy(name, **settings)


def test_genie_refuses_a_fleet_it_was_not_told_about():
    with pytest.raises(InvalidInput, match="mean_speed must cover the fleet of 3 clients, got 2"):
        Genie(mean_speed=[0.5, 0.5]).init(3)
