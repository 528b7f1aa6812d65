"""Pace: its objective by brute force, what it learns, and what it promises without any setting."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from policy_rounds import context, report

from bsfl import BSFL, Lognormal, Observation, Pace, Scheduler, UniformRandom
from bsfl.errors import InvalidInput
from bsfl.estimation import evenness
from bsfl.fairness import gini
from bsfl.records import Report, Roster, RoundContext

DELAYS = np.array([0.8, 1.6, 3.2, 6.0, 10.0, 16.0])


def learned(policy, n_clients=8, rounds=12, seed=0, n_met=8):
    """Return a state after rounds of random cohorts of the first clients."""
    rng, state = np.random.default_rng(seed), policy.init(n_clients)
    for t in range(1, rounds + 1):
        cohort = np.sort(rng.choice(n_met, 3, replace=False))
        seconds = np.exp(0.4 * cohort + 0.2 * rng.normal(size=3))
        policy.observe(
            state, context(t, 3, n_clients), report(dict(zip(cohort, seconds, strict=True)))
        )
    return state


def test_the_cohort_is_the_best_of_all_by_value_less_the_price_of_its_time():
    for seed in range(20):
        policy = Pace(evenness=1.0)
        state = learned(policy, seed=seed)
        here = context(13, 3, 8)
        fair = 13 * 3 / 8
        value = np.exp(state.usual) * (fair + 1) / (state.selected + 1)
        seconds, price = policy.seconds(state, here), state.gain / state.time_s
        unheard = np.clip(2 * (0.1 * fair - state.selected) - 1, 0, 1)
        value += unheard * price * seconds.max() / 3

        cohorts = np.array(list(combinations(range(8), 3)))
        worth = value[cohorts].sum(axis=1) - price * seconds[cohorts].max(axis=1)
        chosen = policy.select(state, here, np.random.default_rng(seed))
        own = value[chosen].sum() - price * seconds[chosen].max()
        assert own == pytest.approx(worth.max(), rel=1e-6)


def test_places_that_nobody_waits_for_go_to_strangers():
    policy = Pace(evenness=0.0)
    state = learned(policy, n_met=6)  # of eight; the quickest are the first
    waits = context(13, 4, 8)
    here = replace(waits, enough=3)

    def choose(here):
        return [policy.choice(state, here, np.random.default_rng(seed)) for seed in range(9)]

    found = choose(here)
    assert {tuple(one.first) for one in found} == {(6,), (7,)}, "of those who know nothing, either"
    assert all(set(one.cohort) == {0, 1, 2, *one.first} for one in found), "three are waited for"
    assert all(len(one.first) == 0 for one in choose(waits)), "who is waited for must be weighed"
    for t in (13, 14):
        policy.observe(state, context(t, 2, 8), report({6: 9.0, 7: 11.0}))
    assert all(one.cohort.tolist() == [0, 1, 2, 3] for one in choose(here)), "nobody is new"


@pytest.mark.parametrize(("n_lost", "n_strangers"), [(0, 8), (3, 6), (6, 5), (20, 0)])
def test_where_answers_get_lost_fewer_places_are_for_strangers(n_lost, n_strangers):
    policy, state = Pace(), Pace().init(200)
    policy.observe(state, context(1, 60, 200), report(dict.fromkeys(range(60), 1.0)))
    policy.observe(state, context(2, 60, 200), report(dict.fromkeys(range(n_lost, 60), 1.0)))
    lost = report(dict.fromkeys(range(n_lost), 30.0), outcome="timeout")
    policy.observe(state, context(2, 60, 200), lost)
    here = replace(context(3, 33, 200), enough=25)
    assert len(policy.choice(state, here, np.random.default_rng(0)).first) == n_strangers


def test_lost_answers_of_strangers_say_nothing_of_those_who_are_known():
    policy, state = Pace(), Pace().init(100)
    for t in (1, 2):
        policy.observe(state, context(t, 20, 100), report(dict.fromkeys(range(20), 1.0)))
        lost = report(dict.fromkeys(range(20 * t, 20 * t + 20), 30.0), outcome="timeout")
        policy.observe(state, replace(context(t, 20, 100), enough=10), lost)
    here = replace(context(3, 13, 100), enough=10)
    assert len(policy.choice(state, here, np.random.default_rng(0)).first) == 3


def test_who_knows_many_clients_asks_fewer_strangers():
    policy, state = Pace(), Pace().init(9000)
    here = replace(context(2, 13, 9000), enough=10)
    for n_known, n_strangers in ((260, 3.0), (1040, 0.75), (4160, 0.1875)):
        policy.observe(state, context(1, 1, 9000), report(dict.fromkeys(range(n_known), 1.0)))
        found = [len(policy.choice(state, here, np.random.default_rng(i)).first) for i in range(99)]
        assert np.mean(found) == pytest.approx(n_strangers, abs=0.15)


def test_a_stranger_is_taken_for_what_it_may_be():
    policy = Pace()
    state = learned(policy, n_met=6)
    waits = policy.seconds(state, context(13, 4, 8))
    spare = policy.seconds(state, replace(context(13, 4, 8), enough=3))
    assert waits[7] < np.median(waits[:6]), "hoped for, where it has to be waited for to know it"
    assert spare[7] > np.median(spare[:6]), "and not where there are places to get to know it"


def test_the_price_of_a_second_is_what_seconds_have_brought():
    policy = Pace(evenness=0.0)  # every answer is worth 1
    state = policy.init(4)
    policy.observe(state, context(1, 2, 4), report({0: 2.0, 1: 5.0}))
    assert (state.gain, state.time_s) == (2.0, 5.0), "a round lasts as long as its slowest"
    policy.observe(state, context(2, 2, 4), report({2: 3.0}, chosen=[2, 3]))
    policy.observe(state, context(2, 2, 4), report({3: 4.0}, chosen=[]))
    assert state.gain == pytest.approx(2.0 * 0.99 + 2.0)
    assert state.time_s == pytest.approx(5.0 * 0.99 + 4.0), "reports may come one by one"


def test_who_comes_late_makes_no_round_longer_and_brings_nothing():
    policy = Pace(evenness=0.0)
    state = policy.init(4)
    policy.observe(state, context(1, 3, 4), report({0: 2.0}, chosen=[0, 1, 2]))
    policy.observe(state, context(1, 3, 4), report({1: 9.0}, chosen=[], outcome="late"))
    policy.observe(state, context(2, 3, 4), report({3: 1.0}, chosen=[3]))
    policy.observe(state, context(1, 3, 4), report({2: 30.0}, chosen=[], outcome="timeout"))
    fade = 1 - 3 / 200  # rounds of three
    assert (state.gain, state.time_s) == pytest.approx((1 * fade + 1, 2.0 * fade + 1.0))
    assert state.memory.mean[1] == pytest.approx(np.log(9.0)), "but its latency is learned"


def test_a_lost_answer_makes_a_client_slow_only_where_it_is_waited_for():
    policy, lost = Pace(), report({0: 30.0}, chosen=[0, 1], outcome="timeout")
    waited, spared = policy.init(4), policy.init(4)
    policy.observe(waited, context(1, 2, 4), lost)
    policy.observe(spared, replace(context(1, 2, 4), enough=1), lost)
    assert waited.memory.observed.tolist() == [1, 0, 0, 0]
    assert spared.memory.observed.tolist() == [0, 0, 0, 0]
    assert policy.seconds(spared, context(2, 2, 4))[0] == 30.0, "until it has answered once"


def test_without_a_barrier_a_client_costs_its_own_seconds():
    policy = Pace(evenness=0.0)
    state = policy.init(4)
    for t in (1, 2):
        policy.observe(state, context(t, 1, 4), report({}, chosen=[t]))
    policy.observe(state, context(2, 1, 4), report({2: 3.0}, chosen=[]))
    policy.observe(state, context(1, 1, 4), report({1: 8.0}, chosen=[]))
    assert state.time_s == pytest.approx(0.99 * 0.0 + 3.0 + 8.0)


@pytest.mark.parametrize("settings", [{}, {"evenness": 3.0}])
def test_a_cold_start_knows_nobody_and_chooses_at_random(settings):
    policy = Pace(**settings)
    first = {
        tuple(policy.select(policy.init(9), context(1, 3, 9), np.random.default_rng(seed)))
        for seed in range(30)
    }
    assert len(first) > 15


def test_features_tell_who_is_fast_before_it_is_met():
    policy, rng = Pace(evenness=0.0), np.random.default_rng(0)
    features = np.arange(40.0).reshape(-1, 1) / 10
    roster = Roster(n_members=40, features=features)
    state = policy.init(40)
    for t in range(1, 11):
        met = rng.choice(20, 4, replace=False) * 2  # nobody with an odd number
        here = RoundContext(t=t, available=np.arange(40), cohort_size=4, roster=roster)
        policy.observe(state, here, report({k: float(np.exp(features[k, 0])) for k in met}))
    here = RoundContext(t=11, available=np.arange(1, 40, 2), cohort_size=4, roster=roster)
    assert policy.select(state, here, rng).max() <= 11


def small_fleet(policy, seed):
    """Return mean round and the slowest client's part of its fair number of rounds."""
    rng, scheduler = np.random.default_rng(seed), Scheduler(policy, cohort_size=2, seed=seed)
    total, chosen = 0.0, np.zeros(6)
    for _ in range(20):
        cohort = scheduler.select(available=range(6))
        latency = DELAYS[cohort] * np.exp(0.05 * rng.normal(size=2))
        scheduler.observe(dict(zip(cohort, latency, strict=True)))
        total += latency.max()
        chosen[cohort] += 1
    return total / 20, chosen[-1] / (20 * 2 / 6)


def test_in_a_short_run_it_is_much_faster_than_random_and_leaves_nobody_out():
    own = np.mean([small_fleet(Pace(), seed) for seed in range(20)], axis=0)
    random = np.mean([small_fleet(UniformRandom(), seed) for seed in range(20)], axis=0)
    assert own[0] <= 0.65 * random[0]
    assert own[1] >= 0.4


def test_more_evenness_is_more_even_and_slower():
    played = [rounds_with_losses(lambda *_: None, policy=Pace(evenness=f)) for f in (0.3, 1, 3, 5)]
    seconds, ginis = np.array([(mean_s, uneven) for _, mean_s, uneven in played]).T
    assert (np.diff(seconds) > 0).all()
    assert (np.diff(ginis) < 0).all()


@pytest.mark.parametrize("slow", [1, 2, 6])
@pytest.mark.parametrize("once", [True, False], ids=["timed out once", "always slow"])
def test_nobody_is_left_out_for_ever_where_losses_ask_for_speed_alone(slow, once):
    """Losses fall, and are the same for all: slow ones are heard in a tenth of their fair number.

    In 400 rounds that is 400 x 4 / 15 / 10 = 10.7; one alone comes when it is 2.5 answers behind.
    """
    rng, scheduler = np.random.default_rng(1), Scheduler(cohort_size=4, seed=1)
    chosen, n_rounds = np.zeros(15, dtype=int), 400
    for t in range(n_rounds):
        answers = {}
        for k in scheduler.select(available=range(15)):
            chosen[k] += 1
            if once and k < slow and chosen[k] == 1:
                answers[k] = Observation(latency=30.0, outcome="timeout")
            else:
                usual_s = 30.0 if k < slow and not once else 2.0 + k / 5
                latency = usual_s * np.exp(0.1 * rng.normal())
                answers[k] = Observation(latency=latency, loss=2 / (1 + t / 10))
        scheduler.observe(answers)
    fair = n_rounds * 4 / 15
    assert chosen[:slow].min() >= 0.1 * fair - 2.5
    if not once:
        assert chosen[:slow].max() <= 0.2 * fair, "and not much more, as they cost much"


def test_a_client_that_was_away_is_not_chosen_more_than_usual():
    usual, after = 0.0, 0.0
    for seed in range(10):
        rng, scheduler = np.random.default_rng(seed), Scheduler(cohort_size=3, seed=seed)
        delays = np.sort(np.exp(rng.normal(1.0, 0.8, 30)))
        chosen = []
        for t in range(440):
            away = 300 <= t < 400
            cohort = scheduler.select(available=range(29 if away else 30))
            scheduler.observe({k: delays[k] * np.exp(0.1 * rng.normal()) for k in cohort})
            chosen.append(29 in cohort)
        usual += np.mean(chosen[100:300]) * 40
        after += np.sum(chosen[400:])
    assert after <= 1.5 * usual


def test_a_floor_holds_and_ends_where_a_client_cannot_be_reached():
    scheduler = Scheduler(Pace(evenness=0.0, least_share=0.6), cohort_size=4, seed=1)
    for t in range(300):
        cohort = scheduler.select(available=[k for k in range(20) if k != 19 or t % 10 == 0])
        scheduler.observe({k: 1.0 + k for k in cohort})
    fair = 300 * 4 / 20
    selected = scheduler.state.selected
    assert selected[:19].min() >= 0.6 * fair - 2
    assert selected[19] <= 0.6 * fair / 10 + 2, "it was there in every tenth round"
    free = Scheduler(Pace(evenness=0.0), cohort_size=4, seed=1)
    for _ in range(300):
        free.observe({k: 1.0 + k for k in free.select(available=range(20))})
    assert free.state.selected.min() < 0.2 * fair, "the floor does it"


def rounds_with_losses(loss_of, rounds=300, n=40, seed=0, policy=None):
    rng, scheduler = np.random.default_rng(seed), Scheduler(policy, cohort_size=4, seed=seed)
    delays, count, seconds = np.exp(rng.normal(1.0, 0.7, n)), np.zeros(n), 0.0
    for t in range(rounds):
        cohort = scheduler.select(available=range(n))
        latency = {k: float(delays[k] * np.exp(0.2 * rng.normal())) for k in cohort}
        seconds += max(latency.values())
        scheduler.observe(
            {k: Observation(latency=latency[k], loss=loss_of(t, count[k], rng)) for k in cohort}
        )
        count[cohort] += 1
    return scheduler, seconds / rounds, gini(count)


def test_evenness_rises_where_the_model_knows_its_regulars_by_heart():
    def memorised(t, count, rng):
        return float(2.0 * np.exp(-t / 200) * (count + 1) ** -0.5 * np.exp(0.3 * rng.normal()))

    def alike(t, count, rng):
        return float(2.0 * np.exp(-t / 200) * np.exp(0.3 * rng.normal()))

    (one, _, even), (other, _, uneven) = rounds_with_losses(memorised), rounds_with_losses(alike)
    assert one.policy.exponent(one.state) > 0.5
    assert other.policy.exponent(other.state) < 0.2
    assert even < uneven


@pytest.mark.parametrize("loss", ["none", "noise"])
def test_where_losses_say_nothing_it_is_no_worse_than_bsfl_made_even(loss):
    def noise(t, count, rng):
        return float(np.exp(rng.normal())) if loss == "noise" else None

    own = np.array([rounds_with_losses(noise, seed=seed)[1:] for seed in range(5)])
    bsfl = BSFL(alpha=10.0, index=Lognormal())
    other = np.array([rounds_with_losses(noise, seed=seed, policy=bsfl)[1:] for seed in range(5)])
    assert own[:, 0].mean() <= other[:, 0].mean(), "mean round"
    assert own[:, 1].mean() <= 0.2, "Gini; random selection has 0.1 after so many rounds"


def test_answers_may_come_after_others_have_overtaken_them():
    scheduler = Scheduler(cohort_size=2, seed=0)
    waiting = [scheduler.select(available=range(8)) for _ in range(3)]
    for _ in range(30):
        scheduler.observe({k: 1.0 + k for k in waiting.pop(0)}, strict=False)
        waiting.append(scheduler.select())
    state = scheduler.state
    price = state.gain / state.time_s
    assert 0.1 < price < 2.0, "two answers take one to eight seconds"


def test_the_order_of_answers_makes_no_difference():
    both = [Scheduler(cohort_size=4, seed=0) for _ in range(2)]
    for scheduler in both:
        scheduler.join(list("abcd"))
    for t in range(12):
        for scheduler, step in zip(both, (1, -1), strict=True):
            cohort = scheduler.select(available=list("abcd" if t % 2 else "ab"))
            answers = {k: Observation(latency=ord(k) - 96.0, loss=9.0 - t / 2) for k in cohort}
            scheduler.observe(dict(list(answers.items())[::step]))
    one, other = (scheduler.state for scheduler in both)
    assert np.array_equal(one.population.pooled, other.population.pooled)
    assert one.trend == other.trend


@pytest.mark.parametrize("outcome", ["failed", "timeout", "late"])
def test_those_who_are_not_waited_for_make_no_round_longer(outcome):
    scheduler = Scheduler(Pace(evenness=0.0), cohort_size=3, invite=1.7, seed=0)
    for _ in range(20):
        cohort = scheduler.select(available=range(12))
        scheduler.observe(
            {
                k: 1.0 if i < 3 else Observation(latency=60.0, outcome=outcome)
                for i, k in enumerate(cohort)
            }
        )
    assert scheduler.state.time_s == pytest.approx(sum((1 - 3 / 200) ** i for i in range(20)))


def test_the_slowest_are_not_asked_again_and_again_in_vain():
    rng, scheduler = np.random.default_rng(0), Scheduler(cohort_size=10, invite=1.3, seed=0)
    delays, asked = np.exp(rng.normal(1.0, 0.8, 60)), np.zeros(60)
    for _ in range(300):
        cohort = np.array(scheduler.select(available=range(60)))
        asked[cohort] += 1
        seconds = delays[cohort] * np.exp(0.2 * rng.normal(size=13))
        last = np.sort(seconds)[9]
        scheduler.observe(
            {
                k: s if s <= last else Observation(latency=s, outcome="late")
                for k, s in zip(cohort.tolist(), seconds.tolist(), strict=True)
            }
        )
    assert asked.max() < 200, "of 300 rounds"


def test_bad_settings_are_refused():
    for settings in ({"evenness": -1.0}, {"evenness": 6.0}, {"least_share": 1.1}, {"tau_max": 0}):
        with pytest.raises(InvalidInput, match=next(iter(settings))):
            Pace(**settings)


def test_it_goes_on_where_nobody_has_answered_for_a_very_long_time():
    policy = Pace()
    state = policy.init(9)
    policy.observe(state, context(1, 2, 9), report({0: 2.0, 1: 3.0}))
    state.gain = 5e-324  # what is left of it after some 70,000 rounds
    assert len(policy.select(state, context(9, 2, 9), np.random.default_rng(0))) == 2


def test_only_failures_so_far_is_no_fault():
    policy = Pace()
    state = policy.init(5)
    gone = {k: Observation(outcome="failed") for k in (0, 1)}
    policy.observe(state, context(1, 2, 5), Report.of(gone, chosen=[0, 1]))
    assert len(policy.select(state, context(2, 2, 5), np.random.default_rng(0))) == 2
    assert evenness.exponent(state.trend) == evenness.EVEN


def test_values_of_any_size_leave_ties_to_chance():
    """With evenness 5 a client that waits since ever is worth (1e12)^5, beyond single precision."""
    policy, state = Pace(evenness=5.0), learned(Pace(evenness=5.0))
    here = replace(context(13, 3, 8), opportunity=np.full(8, 1e12))
    chosen = policy.choice(state, here, np.random.default_rng(0))
    assert np.isfinite(chosen.g).all()
    assert len(set(chosen.cohort.tolist())) == 3
