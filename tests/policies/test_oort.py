"""Oort step by step: utilities, percentiles, penalty, exploration, pacer, and the public traps."""

from math import log, sqrt

import numpy as np
import pytest
from policy_rounds import context, losses_of, report

from bsfl import Observation, Scheduler
from bsfl.errors import InvalidInput
from bsfl.policies import Oort
from bsfl.policies.oort import (
    clipped_and_scaled,
    preferred_duration,
    rank_quantile,
    speed_penalty,
    statistical_utility,
)

RNG = np.random.default_rng(0)


def test_utility_is_samples_times_loss():
    utility = statistical_utility(np.array([10.0, 3.0]), np.array([0.5, -2.0]))
    assert utility.tolist() == [5.0, 6.0]


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
    # percentile 50 of durations 10, 20, 40: T = 20; utilities 8, 2, 5; last chosen in 1, 2, 4; t = 9
    policy = Oort(percentile=50.0, clip=1.0)
    state = policy.init(4)
    for t, k, seconds, loss in ((1, 0, 10.0, 8.0), (2, 1, 20.0, 2.0), (4, 2, 40.0, 5.0)):
        policy.observe(
            state, context(t, 1, 4), report({k: seconds}, losses={k: loss}, samples={k: 1})
        )
    bonus = [sqrt(0.1 * log(9) / last) for last in (1, 2, 4)]
    assert policy.scores(state, context(9, 1, 4), np.arange(3)) == pytest.approx(
        [1.0 + bonus[0], 0.0 + bonus[1], (0.5 + bonus[2]) / 4]
    )


def test_exploration_decays_step_by_step():
    policy = Oort()
    assert [policy.exploration(t) for t in (1, 2, 3)] == pytest.approx([0.9, 0.882, 0.86436])
    # 0.9 * 0.98^74 = 0.2018 > 0.2 >= 0.9 * 0.98^75 = 0.1978
    assert policy.exploration(75) == pytest.approx(0.9 * 0.98**74)
    assert policy.exploration(75) > 0.2
    assert policy.exploration(76) == policy.exploration(5000) == 0.2


def test_how_many_are_new_follows_the_exploration():
    # m = 10 and plenty of both kinds: floor(10 (1 - eps)) are known, the rest new
    policy = Oort()
    state = policy.init(100)
    policy.observe(
        state, context(1, 50, 100), losses_of({k: 1.0 + k for k in range(50)}, samples=[1] * 50)
    )
    for t, n_known in ((1, 1), (2, 1), (12, 2), (30, 4), (76, 8), (500, 8)):
        # eps .9, .882, .7206, .5010, .2, .2
        cohort = policy.select(state, context(t, 10, 100), np.random.default_rng(t))
        assert np.sum(cohort < 50) == n_known, t


def test_one_kind_fills_up_for_the_other():
    policy = Oort()
    state = policy.init(12)
    known = dict.fromkeys(range(9), 1.0)
    policy.observe(state, context(1, 9, 12), losses_of(known, samples=dict.fromkeys(known, 1)))
    cohort = policy.select(state, context(2, 8, 12), RNG)
    assert set(cohort.tolist()) >= {9, 10, 11}, "only three are new, though seven are wanted"
    rest = policy.select(state, context(2, 4, 12, available=range(9)), RNG)
    assert len(rest) == 4


def test_only_scores_near_the_top_are_drawn():
    # m = 2, all known; scaled utilities 1, 0.97, 0.94, 0.5, 0 and equal bonuses near 0: the second
    # score is 0.97, the cut 0.95 * 0.97 = 0.92: the third may be drawn, the fourth never
    policy = Oort(clip=1.0, percentile=100.0)
    state = policy.init(5)
    state.last_chosen[:] = 10**9
    state.duration[:] = 1.0
    state.utility[:] = [1.0, 0.97, 0.94, 0.5, 0.0]
    rng, hits, draws = np.random.default_rng(6), np.zeros(5), 6000
    for _ in range(draws):
        hits[policy.select(state, context(2, 2, 5), rng)] += 1
    assert hits[3] == hits[4] == 0
    # two of three, drawn one after another in proportion to the score
    w = np.array([1.0, 0.97, 0.94]) / 2.91
    missed = sum(w[i] * w[j] / (1 - w[i]) for i, j in ((0, 1), (1, 0)))  # 0 and 1, so 2 is missed
    assert abs(hits[2] / draws - (1 - missed)) < 4 * np.sqrt(missed * (1 - missed) / draws)


def test_scores_weigh_the_draw():
    # a cut-off share of 0 lets everyone in: scores 3/4 + b, 0 + b with b = sqrt(0.1 ln 3 / 1)
    policy, draws = Oort(clip=1.0, percentile=100.0, cut_off=0.0), 8000
    state = policy.init(3)
    policy.observe(state, context(1, 3, 3), losses_of({0: 4.0, 1: 1.0, 2: 3.25}, samples=[1, 1, 1]))
    b = sqrt(0.1 * log(3))
    p = np.array([1 + b, b, 0.75 + b]) / (1.75 + 3 * b)
    rng, hits = np.random.default_rng(7), np.zeros(3)
    for _ in range(draws):
        hits[policy.select(state, context(3, 1, 3), rng)] += 1
    assert np.all(np.abs(hits / draws - p) < 4 * np.sqrt(p * (1 - p) / draws))


def test_new_clients_come_quickest_first_when_that_is_known():
    policy = Oort(expected_s=[9.0, 1.0, 5.0, 2.0, 7.0])
    assert policy.select(policy.init(5), context(1, 2, 5), RNG).tolist() == [1, 3]
    plain = {
        tuple(Oort().select(Oort().init(5), context(1, 2, 5), np.random.default_rng(s)))
        for s in range(100)
    }
    assert len(plain) == 10, "else at random"


def test_the_pacer_step_by_step():
    # windows of 3 rounds, one report of utility u per round
    policy = Oort(percentile=90.0, pacer_rounds=3, pacer_step=4.0)
    state, percentiles = policy.init(1), []
    sums = [(0, 0, 0), (2, 2, 2), (2, 2, 2), (1, 2, 2), (9, 0, 0), (0, 0, 0), (0, 0, 0)]
    for t, utility in enumerate([u for window in sums for u in window], start=1):
        policy.observe(state, context(t, 1, 1), losses_of({0: float(utility)}, samples=[1]))
        percentiles.append(state.percentile)
    assert percentiles[0:6] == [90.0] * 6, "two windows must be complete"
    assert percentiles[6:9] == [90.0] * 3, "6 after 0: it grew"
    assert percentiles[9:12] == [94.0] * 3, "6 after 6: it stalled"
    assert percentiles[12:15] == [98.0] * 3, "5 after 6: it fell"
    assert percentiles[15:18] == [98.0] * 3, "9 after 5: it grew"
    assert percentiles[18:21] == [100.0] * 3, "0 after 9: and 100 is the end"


def test_a_late_answer_counts_for_its_own_window():
    policy = Oort(pacer_rounds=2)
    state = policy.init(2)
    policy.observe(state, context(1, 1, 2), losses_of({0: 5.0}, samples=[1, 1], chosen=[0, 1]))
    policy.observe(state, context(3, 1, 2), losses_of({0: 1.0}, samples=[1, 1]))
    policy.observe(state, context(2, 1, 2), losses_of({1: 2.0}, samples=[1, 1], chosen=[]))
    assert (state.window, state.utility_before, state.utility_now) == (1, 7.0, 1.0)


def test_before_any_answer_and_with_the_whole_fleet():
    """The public code fails before the first feedback and when everyone is wanted."""
    scheduler = Scheduler(Oort(), cohort_size=4)
    names = ["anna", "bert", "carl", "dora", "emil"]
    assert len(scheduler.select(names)) == 4
    assert len(scheduler.select(names)) == 4
    everyone = Scheduler(Oort(), cohort_size=5)
    for _ in range(3):
        cohort = everyone.select(names)
        assert cohort == names
        everyone.observe({k: Observation(latency=1.0, loss=0.5, samples=3) for k in cohort})


def test_the_global_generator_is_left_alone():
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].tobytes()  # noqa: NPY002
    scheduler = Scheduler(Oort(), cohort_size=2)
    scheduler.select(list("abcdef"))
    assert np.random.get_state()[1].tobytes() == before  # noqa: NPY002


def test_the_pace_is_saved(tmp_path):
    scheduler = Scheduler(Oort(pacer_rounds=1), cohort_size=1)
    for _ in range(5):
        cohort = scheduler.select(["a", "b"])
        scheduler.observe({k: Observation(latency=1.0, loss=1.0, samples=1) for k in cohort})
    scheduler.save(tmp_path / "s.bsfl")
    twin = Scheduler.load(tmp_path / "s.bsfl")
    # equal utilities stall: windows 2, 3 and 4 each add five points to 30
    assert twin.state.percentile == scheduler.state.percentile == 45.0
    scheduler.join(["c"], samples=[1])
    scheduler.select()
    assert scheduler.state.percentile == 45.0, "a fleet that grows keeps it, too"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tau_max": 0}, "tau_max must be a finite number above 0, got 0"),
        ({"percentile": 101}, "percentile must be between 0 and 100, got 101"),
        ({"pacer_step": -5}, "pacer_step must be between 0 and 100, got -5"),
        ({"pacer_rounds": 0}, "pacer_rounds must be a whole number of at least 1, got 0"),
        ({"penalty": -1}, "penalty must be between 0 and 100, got -1"),
        ({"clip": 2}, "clip must be between 0 and 1, got 2"),
        ({"cut_off": 2}, "cut_off must be between 0 and 1, got 2"),
        ({"explore": 2}, "explore must be between 0 and 1, got 2"),
        ({"expected_s": [0.0]}, "expected_s must be finite and above 0, got 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        Oort(**settings)


def test_expected_latencies_must_cover_the_fleet():
    with pytest.raises(InvalidInput, match="expected_s must cover the fleet of 2 clients, got 1"):
        Oort(expected_s=[1.0]).init(2)
