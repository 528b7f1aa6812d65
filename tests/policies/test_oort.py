"""Oort step by step: utilities, percentiles, penalty, exploration and pacer."""

from itertools import combinations
from math import log, sqrt

import numpy as np
import pytest
from policy_rounds import after_losses, assert_frequencies, cohorts_of, drive, losses_of, responses

from bsfl.policies import Oort
from bsfl.policies.oort import (
    clipped_and_scaled,
    preferred_duration,
    rank_quantile,
    speed_penalty,
)


def test_clipping_step_by_step():
    # 20 utilities 1 .. 20: position floor(20 * 0.95) = 19 is the largest: nothing is clipped
    utility = np.arange(1.0, 21.0)
    assert clipped_and_scaled(utility, 0.95).tolist() == ((utility - 1) / 19).tolist()
    # 21 with an outlier: position floor(21 * 0.95) = 19 holds 20, which the outlier is cut to
    scaled = clipped_and_scaled(np.append(utility, 1e6), 0.95)
    assert scaled[-2:].tolist() == [1.0, 1.0]
    assert scaled[9] == pytest.approx(9 / 19)
    assert clipped_and_scaled(np.full(3, 7.0), 0.95).tolist() == [0, 0, 0]


def test_preferred_duration_step_by_step():
    durations = np.array([50.0, 10.0, np.inf, 40.0, 20.0, 30.0])
    # of the five known ones, position floor(5 p / 100)
    for percentile, expected in ((0, 10), (19, 10), (20, 20), (30, 20), (60, 40), (99, 50)):
        assert preferred_duration(durations, percentile) == expected
    assert preferred_duration(durations, 100) == np.inf
    assert preferred_duration(np.full(3, np.inf), 30) == np.inf
    assert rank_quantile(np.array([3.0]), 1.0) == 3.0


def test_only_slower_clients_are_penalised():
    duration = np.array([5.0, 10.0, 20.0, 40.0, np.inf])
    assert speed_penalty(duration, 10.0, 2.0).tolist() == [1, 1, 1 / 4, 1 / 16, 0]
    assert speed_penalty(duration, 10.0, 0.0).tolist() == [1, 1, 1, 1, 0]
    assert speed_penalty(duration, np.inf, 2.0).tolist() == [1, 1, 1, 1, 0]


def test_scores_by_hand():
    # percentile 50 of durations 10, 20, 40: T = 20; utilities 2 x 4, 1, 2.5; last selected in 1, 2, 4;
    # t = 9
    driver = drive(Oort(percentile=50.0, clip=1.0), 4, 1)
    for t, k, seconds, loss in ((1, 0, 10.0, 4.0), (2, 1, 20.0, -1.0), (4, 2, 40.0, 2.5)):
        driver.task.round = t - 1
        driver.run_round(responses({k: seconds}, losses={k: loss}, samples={k: 2}))
    driver.task.round = 8
    bonus = [sqrt(0.1 * log(9) / last) for last in (1, 2, 4)]
    scores = driver.policy.scores(driver.state, driver.context(), np.arange(3))
    assert scores == pytest.approx([1.0 + bonus[0], 0.0 + bonus[1], (0.5 + bonus[2]) / 4])


def test_exploration_decays_step_by_step():
    policy = Oort()
    assert [policy.exploration(t) for t in (1, 2, 3)] == pytest.approx([0.9, 0.882, 0.86436])
    # 0.9 * 0.98^74 = 0.2018 > 0.2 >= 0.9 * 0.98^75 = 0.1978
    assert policy.exploration(75) == pytest.approx(0.2018, abs=1e-4)
    assert policy.exploration(76) == policy.exploration(5000) == 0.2


def test_how_many_are_unseen_follows_the_exploration():
    # m = 10 and plenty of both kinds: floor(10 (1 - eps)) are known, the rest unseen
    driver = after_losses(Oort(), 1.0 + np.arange(50.0), n_clients=100)
    for t, n_known in ((1, 1), (2, 1), (12, 2), (30, 4), (76, 8), (500, 8)):
        # eps .9, .882, .7206, .5010, .2, .2
        driver.task.round = t - 1
        assert np.sum(driver.select(target_responses=10) < 50) == n_known, t


def test_one_kind_fills_up_for_the_other():
    driver = after_losses(Oort(), np.ones(9), n_clients=12)
    cohort = driver.select(target_responses=8)
    assert set(cohort.tolist()) >= {9, 10, 11}, "only three are unseen, though seven are wanted"
    assert len(driver.select(target_responses=4, available=range(9))) == 4


def test_only_scores_near_the_top_are_drawn():
    # m = 2, all known; scaled utilities 1, 0.97, 0.94, 0.5, 0 and equal bonuses near 0: the second
    # score is 0.97, the cut 0.95 * 0.97 = 0.92: the third may be drawn, the fourth never
    driver = drive(Oort(clip=1.0, percentile=100.0), 5, 2)
    driver.task.round, driver.task.last_selected[:5] = 1, 10**9
    driver.state.duration[:], driver.state.utility[:] = 1.0, [1.0, 0.97, 0.94, 0.5, 0.0]
    here = driver.context()
    # two of three, drawn one after another in proportion to the score
    w = np.array([1.0, 0.97, 0.94]) / 2.91
    expected = [w[i] + sum(w[j] * w[i] / (1 - w[j]) for j in range(3) if j != i) for i in range(3)]
    assert_frequencies(lambda rng: driver.select(here, rng), [*expected, 0, 0], 6000)


def test_scores_weigh_the_draw():
    # a cut-off of 0 lets every client in: scores 3/4 + b, 0 + b with b = sqrt(0.1 ln 3 / 1)
    driver = after_losses(Oort(clip=1.0, percentile=100.0, cut_off=0.0), [4.0, 1.0, 3.25])
    driver.task.round = 2
    b = sqrt(0.1 * log(3))
    expected = np.array([1 + b, b, 0.75 + b]) / (1.75 + 3 * b)
    here = driver.context(target_responses=1)
    assert_frequencies(lambda rng: driver.select(here, rng), expected, 8000)


def test_unseen_clients_come_fastest_first_if_that_is_known():
    driver = drive(Oort(expected_s=[9.0, 1.0, 5.0, 2.0, 7.0]), 5, 2)
    assert driver.select().tolist() == [1, 3]
    assert cohorts_of(drive(Oort(), 5, 2)) == set(combinations(range(5), 2)), "else at random"


def test_the_pacer_step_by_step():
    # windows of 3 rounds, one report of utility u per round
    driver = drive(Oort(percentile=90.0, pacer_rounds=3, pacer_step=4.0), 1, 1, samples=[1])
    windows = []
    for sums in ((0, 0, 0), (2, 2, 2), (2, 2, 2), (1, 2, 2), (9, 0, 0), (0, 0, 0), (0, 0, 0)):
        percentiles = set()
        for utility in sums:
            driver.run_round(losses_of({0: float(utility)}))
            percentiles.add(driver.state.percentile)
        windows.append(percentiles)
    # two windows must be complete; 6 after 0: it grew; 6 after 6: it stalled; 5 after 6: it fell;
    # 9 after 5: it grew; 0 after 9: and 100 is the end
    assert windows == [{90}, {90}, {90}, {94}, {98}, {98}, {100}]


@pytest.mark.parametrize("late", ["apply", "drop"])
def test_a_late_response_counts_for_its_own_window(late):
    driver = drive(Oort(pacer_rounds=2), 2, 1, samples=[1, 1], late=late)
    driver.run_round(losses_of({0: 5.0}), cohort=[0, 1])
    driver.run_round({}, cohort=[1])
    driver.run_round(losses_of({0: 1.0}))
    driver.respond(losses_of({1: 2.0}), 2)
    state = driver.state
    assert (state.window, state.utility_before, state.utility_now) == (1, 7.0, 1.0)
