"""F3AST: rates against the plain recursion, and updates that are right on average."""

from itertools import combinations

import numpy as np
import pytest
from policy_rounds import context, report

from bsfl.errors import InvalidInput
from bsfl.policies import F3ast


def chosen_only(*clients):
    return report({}, chosen=list(clients))


def test_who_took_part_less_comes_first():
    # K = 4, m = 2, b = 0.1, equal data: r = 1/2 for all; {0, 1} chosen: 0.9 / 2 + 0.1 = 0.55 and
    # 0.9 / 2 = 0.45; then {2, 3}: 0.9 x 0.55 = 0.495 and 0.9 x 0.45 + 0.1 = 0.505
    policy, rng = F3ast(step=0.1), np.random.default_rng(0)
    state = policy.init(4)
    everyone = np.arange(4)
    policy.observe(state, context(1, 2, 4), chosen_only(0, 1))
    rate = policy.rates_by_share(state, context(2, 2, 4), everyone) / 4
    assert rate == pytest.approx([0.55, 0.55, 0.45, 0.45])
    assert policy.select(state, context(2, 2, 4), rng).tolist() == [2, 3]
    policy.observe(state, context(2, 2, 4), chosen_only(2, 3))
    rate = policy.rates_by_share(state, context(3, 2, 4), everyone) / 4
    assert rate == pytest.approx([0.495, 0.495, 0.505, 0.505])
    assert policy.select(state, context(3, 2, 4), rng).tolist() == [0, 1]


def test_weights_count_the_choice_of_the_round():
    # n = 1, 1, 2, 4: p = 1/8, 1/8, 1/4, 1/2; m = 2: r starts at 1/4, 1/4, 1/2 and 1.
    # Chosen now, with b = 0.1: r = 0.9 x 0.25 + 0.1 = 0.325 and 0.9 x 0.5 + 0.1 = 0.55
    policy = F3ast(step=0.1)
    here = context(1, 2, 4, samples=np.array([1.0, 1.0, 2.0, 4.0]))
    weights = policy.weights(policy.init(4), here, np.array([1, 2]))
    assert weights == pytest.approx([0.125 / 0.325, 0.25 / 0.55])


def test_weights_do_not_count_a_choice_twice():
    # without a barrier a client is not available when its answer is applied, and booked before:
    # K = 4, m = 1: r = 0.9 / 4 + 0.1 = 0.325
    policy = F3ast(step=0.1)
    state = policy.init(4)
    policy.observe(state, context(1, 1, 4), chosen_only(2))
    weights = policy.weights(state, context(2, 1, 4, available=[]), np.array([2]))
    assert weights == pytest.approx([0.25 / 0.325])


def test_the_plain_recursion_chooses_and_weighs_the_same():
    k, m, b = 9, 3, 0.05
    policy, rng = F3ast(step=b), np.random.default_rng(1)
    sizes = rng.uniform(1.0, 2.0, k)
    p = sizes / sizes.sum()
    state, rate = policy.init(k), m * p
    for t in range(1, 200):
        available = np.flatnonzero(rng.random(k) < 0.6)
        here = context(t, m, k, available=available, samples=sizes)
        cohort = policy.select(state, here, rng)
        score = p / rate
        best = np.sort(score[available])[-m:]
        assert np.sort(score[cohort]) == pytest.approx(best)
        rate = (1 - b) * rate
        rate[cohort] += b
        assert policy.weights(state, here, cohort) == pytest.approx(p[cohort] / rate[cohort])
        policy.observe(state, here, chosen_only(*cohort))


@pytest.mark.slow
def test_updates_are_right_on_average_whoever_is_rarely_there():
    # client 0 can be reached in a tenth of the rounds, the others in all: per round the weights of
    # client k add up to p_k all the same
    k, m, rounds = 6, 2, 8000
    policy, rng = F3ast(), np.random.default_rng(2)
    sizes = np.array([2.0, 1.0, 1.0, 1.0, 2.0, 3.0])
    state, moved = policy.init(k), np.zeros(k)
    for t in range(1, rounds + 1):
        available = np.arange(0 if rng.random() < 0.1 else 1, k)
        here = context(t, m, k, available=available, samples=sizes)
        cohort = policy.select(state, here, rng)
        if t > rounds // 2:
            moved[cohort] += policy.weights(state, here, cohort)
        policy.observe(state, here, chosen_only(*cohort))
    assert moved / (rounds // 2) == pytest.approx(sizes / 10, rel=0.07)


def test_a_late_answer_gives_its_round_back():
    # K = 4, m = 2, b = 0.1: in round 4 a client never chosen has r = 0.9^3 / 2 = 0.3645
    policy = F3ast(step=0.1)
    state = policy.init(4)
    policy.observe(state, context(1, 2, 4), chosen_only(0, 1))
    policy.observe(state, context(2, 2, 4), report({3: 5.0}, chosen=[2, 3], outcome="late"))
    policy.observe(state, context(1, 2, 4), report({1: 9.0}, chosen=[], outcome="late"))
    rate = policy.rates_by_share(state, context(4, 2, 4), np.arange(4)) / 4
    expected = [0.3645 + 0.1 * 0.9**2, 0.3645, 0.3645 + 0.1 * 0.9, 0.3645]
    assert rate == pytest.approx(expected)


def test_who_joined_later_starts_at_its_share():
    policy = F3ast(step=0.1)
    here = context(11, 2, 4, since=np.array([1, 1, 1, 11]))
    rate = policy.rates_by_share(policy.init(4), here, np.arange(4)) / 4
    assert rate == pytest.approx([0.5 * 0.9**10] * 3 + [0.5])


def test_clients_that_are_level_are_drawn_at_random():
    policy, here = F3ast(), context(7, 2, 5, samples=np.array([1.0, 2.0, 3.0, 5.0, 7.0]))
    state = policy.init(5)
    cohorts = {
        tuple(policy.select(state, here, np.random.default_rng(s)).tolist()) for s in range(200)
    }
    # m p = 14/18 at most: nobody's start is capped
    assert cohorts == set(combinations(range(5), 2))


def test_a_bad_step_is_refused():
    with pytest.raises(InvalidInput, match="step must be between 0 and 1, got 1.5"):
        F3ast(step=1.5)
