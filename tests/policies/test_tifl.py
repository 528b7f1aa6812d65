"""TiFL: profiling, tiers, credits and probabilities, one step after another."""

import numpy as np
import pytest
from policy_rounds import assert_frequencies, cohorts_of, drive, responses

from bsfl import Observation, Scheduler
from bsfl._core.events import Join
from bsfl._core.state import validate
from bsfl.errors import InvalidInput
from bsfl.policies import TiFL
from bsfl.policies.tifl import rank_probabilities, tier_losses


def run_round(driver, latency, loss=None, cohort=None, rng=None):
    """Run a round in which client k takes latency[k] and reports loss[k]; return the cohort."""
    loss = np.ones(len(latency)) if loss is None else loss
    driver.open(cohort, rng=rng)
    reported = responses(
        {k: float(latency[k]) for k in driver.cohort},
        losses={k: float(loss[k]) for k in driver.cohort},
    )
    driver.respond(reported)
    driver.close()
    return np.array(driver.cohort)


def profiled(policy, k, m, latency, loss=None):
    """Return a driver after every client was profiled."""
    driver = drive(policy, k, m)
    while (driver.task.invitations[:k] == 0).any():
        assert np.all(driver.task.invitations[driver.select()] == 0), "no client is profiled twice"
        run_round(driver, latency, loss)
    return driver


def tiers(driver):
    """Return the tier of every client."""
    clients = np.arange(len(driver.state.mean))
    return driver.policy.tiers_of(driver.state, clients, driver.state.bound_s)


def test_every_client_is_profiled_once_and_then_sorted_into_tiers_of_equal_size():
    latency = np.random.default_rng(0).permutation(np.arange(1.0, 21.0))
    driver = profiled(TiFL(tau_max=100.0, rounds=50), 20, 4, latency)
    assert driver.task.round == 5
    assert not driver.state.formed, "until a tier is first needed"
    run_round(driver, latency)
    assert tiers(driver).tolist() == ((latency - 1) // 4).astype(int).tolist()
    assert driver.state.bound_s == pytest.approx([5.0, 9.0, 13.0, 17.0])


def test_a_round_is_drawn_from_one_tier_and_costs_it_one_credit():
    # 23 rounds are planned: each of 5 tiers gets ceil(23 / 5) = 5 credits
    policy, latency = TiFL(tau_max=100.0, rounds=23, interval=10**6), np.arange(1.0, 31.0)
    driver, left = profiled(policy, 30, 6, latency), np.full(5, 5)
    for _ in range(25):
        assert policy.credits(driver.state).tolist() == left.tolist()
        (tier,) = set((run_round(driver, latency) // 6).tolist())
        assert left[tier] > 0, "no tier is drawn without a credit"
        left[tier] -= 1
    assert driver.state.spent.tolist() == [5] * 5
    assert policy.credits(driver.state).tolist() == [5] * 5, "all are spent: they start over"


def test_a_tier_without_credits_is_not_drawn():
    policy = TiFL(tau_max=100.0, rounds=10)  # two credits each
    state = profiled(policy, 30, 6, np.arange(1.0, 31.0)).state
    state.spent[:] = [2, 2, 0, 2, 2]
    tier, rng = np.arange(30) // 6, np.random.default_rng(0)
    assert {policy.draw_tier(state, tier, 6, rng) for _ in range(50)} == {2}


def test_probabilities_change_every_interval():
    policy = TiFL(tau_max=100.0, rounds=1000, interval=10)
    latency, loss = np.arange(1.0, 31.0), np.repeat([0.3, 0.9, 0.1, 0.5, 0.7], 6)
    driver = profiled(policy, 30, 6, latency, loss)
    while driver.task.round < 99:
        run_round(driver, latency, loss)
        found = (driver.state.probability * 15).tolist()
        if driver.task.round < 10:
            assert found == [3] * 5
        elif driver.task.round < 20:
            # losses .3 .9 .1 .5 .7: the largest gets 5/15, the smallest 1/15
            assert found == pytest.approx([2, 5, 1, 3, 4])
        if driver.task.round == 12:
            loss = loss[::-1]
    assert found == pytest.approx([4, 3, 1, 5, 2])


def test_tiers_are_equally_likely_until_they_have_losses():
    policy, latency = TiFL(tau_max=100.0, rounds=50, interval=2), np.arange(1.0, 21.0)
    driver = profiled(policy, 20, 4, latency, loss=latency)
    assert driver.task.round >= policy.interval, "probabilities were due while profiling went on"
    assert driver.state.probability.tolist() == [0.2] * 5
    for _ in range(2):
        run_round(driver, latency, loss=latency, rng=np.random.default_rng(0))
    assert driver.state.probability.argmax() == 4, "the slowest tier has the largest losses"


def test_tiers_are_drawn_as_the_probabilities_say():
    policy, tier = TiFL(tau_max=100.0, rounds=1000), np.arange(30) // 6
    state = profiled(policy, 30, 6, np.arange(1.0, 31.0)).state
    state.probability[:] = p = np.array([2, 5, 1, 3, 4]) / 15
    assert_frequencies(lambda rng: policy.draw_tier(state, tier, 6, rng), p, 6000)


def test_rank_probabilities_and_tier_losses():
    assert rank_probabilities(np.array([1.0, -np.inf])) == pytest.approx([2 / 3, 1 / 3])
    losses = tier_losses(np.array([0, 0, 2]), np.array([1.0, 3.0, 9.0]), 4)
    assert losses.tolist() == [2.0, -np.inf, 9.0, -np.inf]


def test_new_clients_are_profiled_and_then_belong_to_a_tier():
    latency = np.append(np.arange(1.0, 31.0), [2.5, 99.0])
    driver = profiled(TiFL(tau_max=100.0, rounds=1000), 30, 6, latency)
    run_round(driver, latency)
    driver.engine.run(Join(n_new=2))
    cohort = driver.select()
    assert {30, 31} <= set(cohort.tolist())
    assert len(set((cohort[:4] // 6).tolist())) == 1, "the other places go to one tier"
    driver.open(cohort)
    driver.respond({})
    assert tiers(driver)[30:].tolist() == [4, 4], "no response so far: the slowest tier"
    driver.respond(responses({30: 2.5}, losses={30: 1.0}))
    assert tiers(driver)[30:].tolist() == [0, 4]


def test_tiers_are_divided_anew_every_interval():
    # two tiers, m = 1; clients 0 .. 3 take 1 .. 4 s, then client 0 takes 9 s
    driver = drive(TiFL(tau_max=10.0, rounds=1000, tiers=2, interval=10), 4, 1)
    latency = np.arange(1.0, 5.0)
    for k in (0, 1, 2, 3, 0):
        run_round(driver, latency, cohort=[k])
    assert tiers(driver).tolist() == [0, 0, 1, 1]
    latency[0] = 9.0
    for t in range(6, 11):
        run_round(driver, latency, cohort=[0])
        if t == 7:  # mean (1 + 1 + 9 + 9) / 4 = 5 is beyond the bound of 3 s, the others stay
            assert tiers(driver).tolist() == [1, 0, 1, 1]
    # round 10: means 47/7, 2, 3, 4, so that client 2 is one of the two fastest now
    assert tiers(driver).tolist() == [1, 0, 0, 1]
    assert driver.state.bound_s == pytest.approx([4.0])


def test_when_every_profiled_client_is_forgotten_there_are_no_tiers():
    """The tiers are due in every round, and the last round closes without a client."""
    scheduler = Scheduler(TiFL(tau_max=10.0, tiers=2, interval=1), cohort_size=1)
    scheduler.join(["ann", "bob", "cem"])
    for _ in range(4):
        scheduler.observe({k: Observation(latency_s=1.0, loss=1.0) for k in scheduler.select()})
    assert scheduler.state.formed
    scheduler.select()
    scheduler.forget(["ann", "bob", "cem"])
    assert scheduler.state.bound_s.tolist() == [np.inf], "all clients belong to the fastest tier"
    assert len(scheduler.select(["dan", "eve"])) == 1


def test_a_tier_with_too_few_available_clients_is_not_drawn():
    driver = profiled(TiFL(tau_max=100.0, rounds=1000), 30, 6, np.arange(1.0, 31.0))

    def tiers_drawn(available):
        here = driver.context(target_responses=4, available=available)
        return {tuple(sorted(k // 6 for k in cohort)) for cohort in cohorts_of(driver, here, 30)}

    assert tiers_drawn([0, 1, 2, 12, 13, 14, 15, 16, 25]) == {(2, 2, 2, 2)}
    # where none has enough: a tier of two, and the nearest other one
    assert tiers_drawn([0, 1, 7, 8, 19, 20, 25, 26]) == {(0, 0, 1, 1), (3, 3, 4, 4)}


def test_means_that_no_latency_can_have_are_rejected():
    state = profiled(TiFL(tau_max=100.0, rounds=50), 20, 4, np.arange(1.0, 21.0)).state
    validate(state)
    state.mean[3] = 1e100
    with pytest.raises(InvalidInput, match="mean holds 1e\\+100"):
        validate(state)
