"""Power-of-Choice: how candidates are drawn, and which of them are selected."""

from itertools import combinations, permutations

import numpy as np
import pytest
from policy_rounds import drive, losses_of

from bsfl import Scheduler
from bsfl.errors import InvalidInput
from bsfl.policies import PowerOfChoice


def test_candidates_are_drawn_by_size_one_after_another():
    """With d = m all candidates are selected, so the cohort is the draw."""
    sizes, draws = np.array([1.0, 2.0, 3.0, 6.0]), 20_000
    expected = dict.fromkeys(combinations(range(4), 2), 0.0)
    for i, j in permutations(range(4), 2):  # i first, then j of the rest
        expected[min(i, j), max(i, j)] += sizes[i] / 12 * sizes[j] / (12 - sizes[i])
    driver = drive(PowerOfChoice(candidates=2), 4, 2, samples=sizes)
    here, rng, hits = driver.context(), np.random.default_rng(1), dict.fromkeys(expected, 0)
    for _ in range(draws):
        hits[tuple(driver.select(here, rng).tolist())] += 1
    for pair, p in expected.items():
        assert abs(hits[pair] / draws - p) < 4 * np.sqrt(p * (1 - p) / draws), pair


def test_the_largest_losses_among_the_candidates_are_selected():
    # d = K: all are candidates, so the selection is certain
    driver = drive(PowerOfChoice(candidates=5), 5, 2, samples=np.ones(5))
    driver.run_round(losses_of({0: 0.5, 1: 2.0, 2: 1.0, 3: 1.5}))
    assert driver.select().tolist() == [1, 4], "the loss of an unseen client counts as infinite"
    driver.run_round(losses_of({1: 0.1, 4: 0.2}))
    assert driver.select().tolist() == [2, 3]


def test_how_often_a_client_is_selected_with_two_candidates():
    # m = 1, d = 2, equal sizes, losses 4 > 3 > 2 > 1: the pair's larger one is selected, so client
    # i of 4 is selected with probability (number of clients below it) / 6
    driver, draws = drive(PowerOfChoice(candidates=2), 4, 1, samples=np.ones(4)), 8000
    driver.run_round(losses_of({0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}))
    here, hits, rng = driver.context(), np.zeros(4), np.random.default_rng(5)
    for _ in range(draws):
        hits[driver.select(here, rng)] += 1
    for i in range(4):
        assert abs(hits[i] / draws - i / 6) < 4 * np.sqrt(i / 6 * (1 - i / 6) / draws) + 1e-12


def test_twice_the_cohort_are_candidates_by_default():
    sizes = []

    def ask(candidates):
        sizes.append(len(candidates))
        return np.arange(len(candidates), dtype=float)

    for k in (20, 5):
        assert len(drive(PowerOfChoice(ask=ask), k, 3, samples=np.ones(k)).select()) == 3
    assert sizes == [6, 5]


def test_losses_from_ask_decide_and_reports_need_none():
    policy = PowerOfChoice(candidates=4, ask=lambda candidates: 10.0 - candidates)
    scheduler = Scheduler(policy, cohort_size=2)
    scheduler.join(list("abcd"), samples=[1, 1, 1, 1])
    assert scheduler.select() == ["a", "b"]
    scheduler.observe({"a": 1.0, "b": 1.0})
    assert scheduler.select(["b", "c", "d"]) == ["b", "c"]


def test_an_unresponsive_client_comes_last():
    driver = drive(PowerOfChoice(candidates=3), 3, 2, samples=np.ones(3))
    driver.run_round(losses_of({0: 0.1}), cohort=[0, 1])
    assert driver.select().tolist() == [0, 2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"candidates": 0}, "candidates must be a whole number of at least 1, got 0"),
        ({"ask": "me"}, "ask must be a function of the candidates, got 'me'"),
    ],
)
def test_bad_settings_are_rejected(settings, message):
    with pytest.raises(InvalidInput, match=message):
        PowerOfChoice(**settings)


def test_candidates_must_fill_the_cohort():
    driver = drive(PowerOfChoice(candidates=2), 9, 3, samples=np.ones(9))
    with pytest.raises(InvalidInput, match="candidates must be at least the cohort size 3, got 2"):
        driver.select()


@pytest.mark.parametrize("losses", [[1.0], [np.nan] * 4])
def test_wrong_results_of_ask_are_rejected(losses):
    driver = drive(PowerOfChoice(ask=lambda candidates: losses), 9, 2, samples=np.ones(9))
    with pytest.raises(InvalidInput, match="ask must return one loss for every candidate"):
        driver.select()
