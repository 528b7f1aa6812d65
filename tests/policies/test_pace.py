"""Pace: its objective by brute force, what it learns, and what it promises without any setting."""

from itertools import combinations

import numpy as np
import pytest
from policy_rounds import cohorts_of, drive, responses, timeouts

from bsfl import Observation, Pace, Scheduler, UniformRandom
from bsfl.estimators.fairness import gini


def learned(policy, n_clients=8, n_rounds=12, seed=0, n_seen=8):
    """Return a driver after rounds of three random ones of the first clients."""
    rng, driver = np.random.default_rng(seed), drive(policy, n_clients, 3)
    for _ in range(n_rounds):
        cohort = np.sort(rng.choice(n_seen, 3, replace=False))
        seconds = np.exp(0.4 * cohort + 0.2 * rng.normal(size=3))
        driver.run_round(dict(zip(cohort.tolist(), seconds, strict=True)))
    return driver


def expected_latency(driver, **numbers):
    return driver.policy.expected_latency(driver.state, driver.context(**numbers))


def reserved(driver, seed=0, **numbers):
    """Return the unseen clients that places were reserved for."""
    return driver.selection(rng=np.random.default_rng(seed), **numbers).reserved.tolist()


# --- the objective --------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rounds", [12, 60])
def test_the_cohort_is_the_best_of_all_by_value_less_the_value_of_its_time(n_rounds):
    for seed in range(20):
        driver = learned(Pace(fairness=1.0), n_rounds=n_rounds, seed=seed, n_seen=7)
        driver.task.invitations[7] = 1  # client 7 has a participation deficit after 60 rounds
        state, fair, count = driver.state, n_rounds * 3 / 8, driver.task.invitations[:8]
        value = np.exp(state.usual) * (fair + 1) / (count + 1)
        seconds, per_second = expected_latency(driver), state.rate.gain / state.rate.time_s
        deficit = np.clip(2 * (0.1 * fair - count) - 1, 0, 3)
        assert (deficit[7] > 0) == (n_rounds == 60)
        value += deficit * per_second * seconds.max() / 3

        cohorts = np.array(list(combinations(range(8), 3)))
        worth = value[cohorts].sum(axis=1) - per_second * seconds[cohorts].max(axis=1)
        selected = driver.select()
        own = value[selected].sum() - per_second * seconds[selected].max()
        assert own == pytest.approx(worth.max(), rel=1e-6)


def test_places_that_need_no_waiting_go_to_unseen_clients():
    driver = learned(Pace(fairness=0.0), n_seen=6)  # of eight; the fastest are the first
    spare = {"n_invited": 4, "target_responses": 3}

    def select(**numbers):
        return [driver.selection(rng=np.random.default_rng(seed), **numbers) for seed in range(9)]

    found = select(**spare)
    assert {tuple(one.reserved) for one in found} == {(6,), (7,)}, "without features, either"
    assert all(set(one.clients) == {0, 1, 2, *one.reserved} for one in found)
    waiting = select(target_responses=4)
    assert all(len(one.reserved) == 0 for one in waiting), "clients that are waited for are weighed"
    for _ in (13, 14):
        driver.run_round({6: 9.0, 7: 11.0}, target_responses=2)
    assert all(one.clients.tolist() == [0, 1, 2, 3] for one in select(**spare)), "none is unseen"


@pytest.mark.parametrize(("n_lost", "n_unseen"), [(0, 8), (3, 6), (6, 5), (20, 0)])
def test_if_responses_get_lost_fewer_places_are_for_unseen_clients(n_lost, n_unseen):
    driver = drive(Pace(), 200, 60)
    driver.run_round(dict.fromkeys(range(60), 1.0))
    driver.open(range(60))
    driver.respond(dict.fromkeys(range(n_lost, 60), 1.0))
    driver.respond(timeouts(dict.fromkeys(range(n_lost), 30.0)))
    assert len(reserved(driver, n_invited=33, target_responses=25)) == n_unseen


def test_lost_responses_of_unseen_clients_do_not_count_for_known_ones():
    driver = drive(Pace(), 100, 20)
    for t in (1, 2):
        unseen = range(20 * t, 20 * t + 20)
        driver.open([*range(20), *unseen], n_invited=40)
        driver.respond(dict.fromkeys(range(20), 1.0))
        driver.respond(timeouts(dict.fromkeys(unseen, 30.0)))
    assert len(reserved(driver, n_invited=13, target_responses=10)) == 3


def test_with_many_known_clients_fewer_places_are_for_unseen_ones():
    driver = drive(Pace(), 9000, 10)
    for n_known, n_unseen in ((260, 3.0), (1040, 0.75), (4160, 0.1875)):
        driver.run_round(dict.fromkeys(range(n_known), 1.0))
        found = [len(reserved(driver, seed, n_invited=13)) for seed in range(99)]
        assert np.mean(found) == pytest.approx(n_unseen, abs=0.15)


def test_the_latency_of_an_unseen_client_is_optimistic_only_if_it_is_waited_for():
    driver = learned(Pace(), n_seen=6)
    waited = expected_latency(driver, target_responses=4)
    spare = expected_latency(driver, n_invited=4, target_responses=3)
    assert waited[7] < np.median(waited[:6]), "so that it is explored"
    assert spare[7] > np.median(spare[:6]), "there are reserved places to explore it"


# --- the value per second -------------------------------------------------------------------------


def rate(driver):
    return driver.state.rate.gain, driver.state.rate.time_s


def test_the_value_per_second_is_what_seconds_have_brought():
    driver = drive(Pace(fairness=0.0), 4, 2)  # every response is worth 1
    driver.run_round({0: 2.0, 1: 5.0})
    assert rate(driver) == (2.0, 5.0), "a round lasts as long as its slowest client"
    driver.open([2, 3])
    driver.respond({2: 3.0})
    driver.respond({3: 4.0})
    # reports may come one at a time
    assert rate(driver) == pytest.approx((2.0 * 0.99 + 2.0, 5.0 * 0.99 + 4.0))
    per_second = driver.policy.diagnostics(driver.state, driver.context())["value_per_second"]
    assert per_second == pytest.approx(3.98 / 8.95)


def test_a_dropped_response_makes_no_round_longer_and_has_no_value():
    driver = drive(Pace(fairness=0.0), 4, 3)
    first = driver.run_round({0: 2.0}, cohort=[0, 1, 2])
    driver.respond({1: 9.0}, first)
    driver.run_round({3: 1.0})
    driver.respond(timeouts({2: 30.0}), first)
    fade = 1 - 3 / 200  # rounds of three
    assert rate(driver) == pytest.approx((1 * fade + 1, 2.0 * fade + 1.0))
    assert driver.state.moments.mean[1] == pytest.approx(np.log(9.0)), "but its latency is learned"


@pytest.mark.parametrize("outcome", ["failed", "timeout"])
def test_failures_make_no_round_longer_that_has_enough_responses(outcome):
    driver = drive(Pace(fairness=0.0), 6, 3)
    lost = responses({3: 60.0, 4: 60.0}, outcome=outcome)
    driver.run_round({**dict.fromkeys(range(3), 1.0), **lost}, n_invited=5)
    assert rate(driver) == (3.0, 1.0)


def test_a_lost_response_makes_a_client_slow_only_if_it_is_waited_for():
    waited, spare = drive(Pace(), 4, 2), drive(Pace(), 4, 2)
    waited.run_round(timeouts({0: 30.0}), cohort=[0, 1])
    spare.run_round(timeouts({0: 30.0}), cohort=[0, 1], n_invited=2, target_responses=1)
    assert waited.state.moments.observed.tolist() == [1, 0, 0, 0]
    assert spare.state.moments.observed.tolist() == [0, 0, 0, 0]
    assert expected_latency(spare)[0] == 30.0, "until its first response"


def test_in_buffered_rounds_a_client_takes_its_own_seconds():
    driver = drive(Pace(fairness=0.0), 4, 1, max_open_rounds=2)
    for client in (1, 2):
        driver.open([client])
        driver.respond({})
    driver.respond({2: 3.0}, 2)
    driver.respond({1: 8.0}, 1)
    assert driver.state.rate.time_s == pytest.approx(0.99 * 0.0 + 3.0 + 8.0)


def test_the_order_of_responses_makes_no_difference():
    states = []
    for step in (1, -1):
        scheduler = Scheduler(cohort_size=4, seed=0)
        scheduler.join(list("abcd"))
        for t in range(12):
            cohort = scheduler.select(available=list("abcd" if t % 2 else "ab"))
            seen = {k: Observation(latency_s=ord(k) - 96.0, loss=9.0 - t / 2) for k in cohort}
            scheduler.observe(dict(list(seen.items())[::step]), round=cohort)
        states.append(scheduler.state)
    one, other = states
    assert one.population.spread == other.population.spread
    assert one.population.errors == other.population.errors
    assert one.trend == other.trend


# --- what it promises -----------------------------------------------------------------------------


def test_the_first_cohort_is_random():
    assert len(cohorts_of(drive(Pace(), 9, 3), seeds=30)) > 15


def play(policy, report, *, n, m=4, rounds=300, seed=0, available=None):
    """Run rounds in which client k responds with report(t, k, count, rng).

    Returns:
        The scheduler, the mean round in seconds, and how often each client was selected: `count`.
    """
    rng, scheduler = np.random.default_rng(seed), Scheduler(policy, cohort_size=m, seed=seed)
    count, seconds = np.zeros(n), 0.0
    for t in range(rounds):
        cohort = scheduler.select(available=range(n) if available is None else available(t))
        reported = {k: report(t, k, count[k], rng) for k in cohort}
        scheduler.observe(reported)
        seconds += max(one.latency_s for one in reported.values())
        count[list(cohort)] += 1
    return scheduler, seconds / rounds, count


def test_in_a_short_run_it_is_much_faster_than_random_and_leaves_no_client_out():
    def report(t, k, count, rng):
        usual_s = (0.8, 1.6, 3.2, 6.0, 10.0, 16.0)[k]
        return Observation(latency_s=usual_s * np.exp(0.05 * rng.normal()))

    def mean_of(policy):
        runs = [play(policy, report, n=6, m=2, rounds=20, seed=seed) for seed in range(20)]
        return np.mean([(mean_s, count[5]) for _, mean_s, count in runs], axis=0)

    mean_s, n_slowest = mean_of(Pace())
    assert mean_s <= 0.65 * mean_of(UniformRandom())[0]
    assert n_slowest >= 0.4 * 20 * 2 / 6


def with_losses(loss_of):
    """Return what reports a loss, loss_of(t, count), of one of 40 clients."""
    usual_s = np.exp(np.random.default_rng(0).normal(1.0, 0.7, 40))

    def report(t, k, count, rng):
        latency_s, loss = usual_s[k] * np.exp(0.2 * rng.normal()), loss_of(t, count)
        return Observation(latency_s=latency_s, loss=loss and loss * np.exp(0.3 * rng.normal()))

    return report


def test_a_larger_fairness_exponent_is_fairer_and_slower():
    report = with_losses(lambda t, count: None)
    runs = [play(Pace(fairness=f), report, n=40)[1:] for f in (0.3, 1, 3, 5)]
    seconds, ginis = np.array([(mean_s, gini(count)) for mean_s, count in runs]).T
    assert (np.diff(seconds) > 0).all()
    assert (np.diff(ginis) < 0).all()


def test_the_exponent_grows_if_the_model_fits_frequent_clients_better():
    memorised = with_losses(lambda t, count: 2.0 * np.exp(-t / 200) * (count + 1) ** -0.5)
    alike = with_losses(lambda t, count: 2.0 * np.exp(-t / 200))
    one, _, fair = play(Pace(), memorised, n=40)
    other, _, unfair = play(Pace(), alike, n=40)
    assert one.policy.exponent(one.state) > 0.5
    assert other.policy.exponent(other.state) < 0.2
    assert gini(fair) < gini(unfair)


@pytest.mark.parametrize("slow", [1, 2, 6])
@pytest.mark.parametrize("once", [True, False], ids=["timed out once", "always slow"])
def test_no_client_is_left_out_for_ever_if_losses_favour_speed_alone(slow, once):
    """Losses fall equally for all: slow clients take part in a tenth of their fair count.

    In 400 rounds that is 400 x 4 / 15 / 10 = 10.7; a single slow client is selected once its
    deficit is 2.5 responses.
    """

    def report(t, k, count, rng):
        if once and k < slow and count == 0:
            return Observation(latency_s=30.0, outcome="timeout")
        usual_s = 30.0 if k < slow and not once else 2.0 + k / 5
        latency_s = usual_s * np.exp(0.1 * rng.normal())
        return Observation(latency_s=latency_s, loss=2 / (1 + t / 10))

    count, fair = play(Pace(), report, n=15, rounds=400, seed=1)[2], 400 * 4 / 15
    assert count[:slow].min() >= 0.1 * fair - 2.5
    if not once:
        assert count[:slow].max() <= 0.2 * fair, "and not much more, as they cost much"


def test_min_participation_holds_by_the_rounds_in_which_a_client_was_available():
    def counts(policy):
        return play(
            policy,
            lambda t, k, count, rng: Observation(latency_s=1.0 + k),
            n=20,
            available=lambda t: range(20 if t % 10 == 0 else 19),
        )[2]

    fair, count = 300 * 4 / 20, counts(Pace(fairness=0.0, min_participation=0.6))
    assert count[:19].min() >= 0.6 * fair - 2
    assert count[19] <= 0.6 * fair / 10 + 2
    assert counts(Pace(fairness=0.0))[:19].min() < 0.2 * fair, "it makes the difference"


def test_the_slowest_clients_are_not_selected_in_every_round():
    """Their responses are dropped, so their participations stay behind."""
    rng = np.random.default_rng(0)
    scheduler = Scheduler(cohort_size=10, over_selection=1.3, late="drop", seed=0)
    delays, selected = np.exp(rng.normal(1.0, 0.8, 60)), np.zeros(60)
    for _ in range(300):
        cohort = scheduler.select(available=range(60))
        selected[list(cohort)] += 1
        seconds = {k: delays[k] * np.exp(0.2 * rng.normal()) for k in cohort}
        in_order = sorted(cohort, key=seconds.get)
        for reported in (in_order[:10], in_order[10:]):
            scheduler.observe({k: seconds[k] for k in reported}, round=cohort)
    assert selected.max() < 200, "of 300 rounds"


# --- edges ----------------------------------------------------------------------------------------


def test_it_resumes_after_a_very_long_time_without_responses():
    driver = drive(Pace(), 9, 2)
    driver.run_round({0: 2.0, 1: 3.0})
    driver.state.rate.gain = 5e-324  # what is left of it after some 70,000 rounds
    driver.task.round = 8
    assert len(driver.select()) == 2


def test_values_of_any_size_leave_ties_to_chance():
    """With f = 5 a client that has always waited has the value (1e12)^5, beyond single precision."""
    driver = learned(Pace(fairness=5.0))
    driver.task.fair_count[:8] = 1e12
    made = driver.selection()
    assert np.isfinite(made.g).all()
    assert len(set(made.clients.tolist())) == 3
