"""Power-of-Choice: how candidates are drawn, and which of them are kept."""

from itertools import combinations, permutations

import numpy as np
import pytest
from policy_rounds import context, losses_of

from bsfl import Scheduler
from bsfl.errors import InvalidInput
from bsfl.policies import PowerOfChoice


def test_candidates_are_drawn_by_size_one_after_another():
    """With d = m all candidates are kept, so the cohort is the draw."""
    sizes, draws = np.array([1.0, 2.0, 3.0, 6.0]), 20_000
    expected = dict.fromkeys(combinations(range(4), 2), 0.0)
    for i, j in permutations(range(4), 2):  # i first, then j of the rest
        expected[min(i, j), max(i, j)] += sizes[i] / 12 * sizes[j] / (12 - sizes[i])
    policy, here = PowerOfChoice(candidates=2), context(1, 2, 4, samples=sizes)
    state, rng, hits = policy.init(4), np.random.default_rng(1), dict.fromkeys(expected, 0)
    for _ in range(draws):
        hits[tuple(policy.select(state, here, rng).tolist())] += 1
    for pair, p in expected.items():
        assert abs(hits[pair] / draws - p) < 4 * np.sqrt(p * (1 - p) / draws), pair


def test_the_largest_losses_among_the_candidates_are_kept():
    # d = K: all are candidates, so the choice is certain
    policy = PowerOfChoice(candidates=5)
    state = policy.init(5)
    policy.observe(state, context(1, 4, 5), losses_of({0: 0.5, 1: 2.0, 2: 1.0, 3: 1.5}))
    here = context(2, 2, 5, samples=np.ones(5))
    rng = np.random.default_rng(0)
    assert policy.select(state, here, rng).tolist() == [1, 4], "never chosen counts as infinite"
    policy.observe(state, context(2, 2, 5), losses_of({1: 0.1, 4: 0.2}))
    assert policy.select(state, context(3, 2, 5, samples=np.ones(5)), rng).tolist() == [2, 3]


def test_how_often_a_client_is_chosen_with_two_candidates():
    # m = 1, d = 2, equal sizes, losses 4 > 3 > 2 > 1: the pair's larger one is kept, so client i of
    # 4 is kept with probability (number of clients below it) / 6
    policy, draws = PowerOfChoice(candidates=2), 8000
    state = policy.init(4)
    policy.observe(state, context(1, 4, 4), losses_of({0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}))
    here, hits, rng = context(2, 1, 4, samples=np.ones(4)), np.zeros(4), np.random.default_rng(5)
    for _ in range(draws):
        hits[policy.select(state, here, rng)] += 1
    for i in range(4):
        assert abs(hits[i] / draws - i / 6) < 4 * np.sqrt(i / 6 * (1 - i / 6) / draws) + 1e-12


def test_twice_the_cohort_are_candidates_by_default():
    seen = []

    def ask(candidates):
        seen.append(len(candidates))
        return np.arange(len(candidates), dtype=float)

    policy = PowerOfChoice(ask=ask)
    for m, k in ((3, 20), (3, 5)):
        cohort = policy.select(
            policy.init(k), context(1, m, k, samples=np.ones(k)), np.random.default_rng(0)
        )
        assert len(cohort) == m
    assert seen == [6, 5]


def test_asked_losses_decide_and_reports_need_none():
    policy = PowerOfChoice(candidates=4, ask=lambda who: 10.0 - who)
    scheduler = Scheduler(policy, cohort_size=2)
    scheduler.join(list("abcd"), samples=[1, 1, 1, 1])
    assert scheduler.select() == ["a", "b"]
    scheduler.observe({"a": 1.0, "b": 1.0})
    assert scheduler.select(["b", "c", "d"]) == ["b", "c"]


def test_a_silent_client_comes_last():
    policy = PowerOfChoice(candidates=3)
    state = policy.init(3)
    policy.observe(state, context(1, 2, 3), losses_of({0: 0.1}, chosen=[0, 1]))
    here = context(2, 2, 3, samples=np.ones(3))
    assert policy.select(state, here, np.random.default_rng(0)).tolist() == [0, 2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"candidates": 0}, "candidates must be a whole number of at least 1, got 0"),
        ({"ask": "me"}, "ask must be a function of the candidates, got 'me'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        PowerOfChoice(**settings)


def test_candidates_must_fill_the_cohort():
    policy = PowerOfChoice(candidates=2)
    with pytest.raises(InvalidInput, match="candidates must be at least the cohort size 3, got 2"):
        policy.select(policy.init(9), context(1, 3, 9, samples=np.ones(9)), None)


@pytest.mark.parametrize("losses", [[1.0], [np.nan] * 4])
def test_odd_answers_to_ask_are_refused(losses):
    policy = PowerOfChoice(ask=lambda who: losses)
    here = context(1, 2, 9, samples=np.ones(9))
    with pytest.raises(InvalidInput, match="ask must return one loss for every candidate"):
        policy.select(policy.init(9), here, np.random.default_rng(0))
