"""Power-of-Choice: how candidates are drawn, and which of them are selected."""

from itertools import combinations, permutations

import numpy as np
import pytest
from policy_rounds import after_losses, assert_frequencies, drive, losses_of

from bsfl import Scheduler
from bsfl.errors import InvalidInput
from bsfl.policies import PowerOfChoice


def test_candidates_are_drawn_by_size_one_after_another():
    """With d = m all candidates are selected, so the cohort is the draw."""
    sizes, pairs = np.array([1.0, 2.0, 3.0, 6.0]), list(combinations(range(4), 2))
    expected = dict.fromkeys(pairs, 0.0)
    for i, j in permutations(range(4), 2):  # i first, then j of the rest
        expected[min(i, j), max(i, j)] += sizes[i] / 12 * sizes[j] / (12 - sizes[i])
    driver = drive(PowerOfChoice(candidates=2), 4, 2, samples=sizes)
    here = driver.context()

    def draw(rng):
        return pairs.index(tuple(driver.select(here, rng).tolist()))

    assert_frequencies(draw, list(expected.values()), 20_000)


def test_the_largest_losses_among_the_candidates_are_selected():
    # d = K: all are candidates, so the selection is certain
    driver = drive(PowerOfChoice(candidates=5), 5, 2, samples=np.ones(5))
    driver.run_round(losses_of({0: 0.5, 1: 2.0, 2: 1.0, 3: 1.5}))
    assert driver.select().tolist() == [1, 4], "the loss of an unseen client counts as infinite"
    driver.run_round(losses_of({1: 0.1}), cohort=[1, 4])
    assert driver.select().tolist() == [2, 3]
    assert driver.select(available=[0, 1, 4]).tolist() == [0, 1], "an unresponsive client is last"


def test_how_often_a_client_is_selected_with_two_candidates():
    # m = 1, d = 2, equal sizes, losses 4 > 3 > 2 > 1: the pair's larger one is selected, so client
    # i of 4 is selected with probability (number of clients below it) / 6
    driver = after_losses(PowerOfChoice(candidates=4), [1.0, 2.0, 3.0, 4.0])
    here, policy = driver.context(target_responses=1), PowerOfChoice(candidates=2)
    expected = np.arange(4) / 6
    assert_frequencies(lambda rng: policy.select(driver.state, here, rng), expected, 8000)


def test_losses_from_ask_decide_and_reports_need_none():
    sizes = []

    def ask(candidates):
        sizes.append(len(candidates))
        return 10.0 - candidates

    scheduler = Scheduler(PowerOfChoice(ask=ask), cohort_size=2)
    scheduler.join(list("abcd"), samples=[1, 1, 1, 1])
    assert scheduler.select() == ["a", "b"]
    scheduler.observe({"a": 1.0, "b": 1.0})
    assert scheduler.select(["b", "c", "d"]) == ["b", "c"]
    assert sizes == [4, 3], "twice the cohort by default, if there are as many"


def test_candidates_must_fill_the_cohort():
    driver = drive(PowerOfChoice(candidates=2), 9, 3, samples=np.ones(9))
    with pytest.raises(InvalidInput, match="candidates must be at least the cohort size 3, got 2"):
        driver.select()


@pytest.mark.parametrize("losses", [[1.0], [np.nan] * 4])
def test_wrong_results_of_ask_are_rejected(losses):
    driver = drive(PowerOfChoice(ask=lambda candidates: losses), 9, 2, samples=np.ones(9))
    with pytest.raises(InvalidInput, match="ask must return one loss for every candidate"):
        driver.select()
