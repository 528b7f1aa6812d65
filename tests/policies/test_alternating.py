"""Alternating policies: random order within pairs, one selects, both learn."""

import numpy as np
import pytest

from bsfl import BSFL, Alternating, CsUcb, Oort, Pace, Scheduler, UniformRandom
from bsfl.errors import InvalidInput
from bsfl.estimators.switchback import first_or_second, randomization_interval
from bsfl.policies import POLICIES, make_policy
from bsfl.testing import CHECKS, PolicyDriver, contents

CASES = {
    "pace-random": Alternating(Pace(), UniformRandom(), block=2),
    "oort-bsfl": Alternating(Oort(), BSFL(), block=3, washout=0),
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("case", CASES)
def test_it_keeps_the_contract(case, check):
    CHECKS[check](CASES[case])


def test_each_pair_of_blocks_has_both_policies_in_random_order():
    order = np.array([[first_or_second(2 * p + i, seed=3) for i in (0, 1)] for p in range(400)])
    assert (order.sum(axis=1) == 1).all()
    assert 160 < order[:, 0].sum() < 240  # 200 +- 4 standard deviations of 10
    assert order.tolist() != [
        [first_or_second(2 * p + i, seed=4) for i in (0, 1)] for p in range(400)
    ]


def test_one_policy_selects_and_both_learn():
    fast = CsUcb(tau_max=10.0)
    policy = Alternating(fast, UniformRandom(), block=2)
    driver = PolicyDriver(policy, n_clients=4, target_responses=2)
    alone = PolicyDriver(fast, n_clients=4, target_responses=2)
    for t in range(1, 9):
        which = policy.arm(t)
        cohort = driver.select()
        if which == 0:
            assert cohort.tolist() == alone.select().tolist()
        responses = {int(k): 1.0 + k for k in cohort}
        driver.run_round(responses)
        alone.run_round(responses)
        assert contents(driver.state.first) == contents(alone.state)
    assert {policy.arm(t) for t in range(1, 5)} == {0, 1}


def test_needs_are_those_of_both_and_settings_are_checked():
    assert CASES["oort-bsfl"].needs == Oort().needs
    with pytest.raises(InvalidInput, match="washout must be below the block of 2 rounds, got 2"):
        Alternating(Pace(), UniformRandom(), block=2, washout=2)
    with pytest.raises(InvalidInput, match="second"):
        Alternating(Pace())


def test_it_is_made_by_name_saved_and_loaded_but_not_listed_among_the_competitors(tmp_path):
    assert "alternating" not in list(POLICIES)
    policy = make_policy("alternating", first={"kind": "pace"}, second={"kind": "random"}, block=3)
    assert policy == Alternating(Pace(), UniformRandom(), block=3)
    scheduler = Scheduler(policy, cohort_size=2)
    for _ in range(20):
        cohort = scheduler.select(available=range(6))
        scheduler.observe({client: 1.0 + client for client in cohort}, round=cohort)
    scheduler.save(tmp_path / "a")
    loaded = Scheduler.load(tmp_path / "a")
    assert loaded.policy == policy
    assert loaded.effect() == scheduler.effect()
    assert loaded.select() == scheduler.select()


def test_clients_are_forgotten_in_both_states():
    """Pisces counts clients in flight, and again when some of them are forgotten."""
    scheduler = Scheduler(Alternating(make_policy("pisces"), UniformRandom()), cohort_size=2)
    scheduler.join(range(4))
    cohort = scheduler.select()
    scheduler.observe({}, round=cohort)
    state = scheduler._engine.policy_state.first
    assert (state.n_in_flight, state.in_flight.sum()) == (2, 2)
    scheduler.forget(cohort[:1])
    state = scheduler._engine.policy_state.first
    assert state.n_in_flight == state.in_flight.sum()


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: rng.normal(1.0, 1.0, n),
        lambda rng, n: 1.0 + rng.standard_t(3, n),
        lambda rng, n: 1.0 + rng.normal(size=n) * rng.choice([0.2, 3.0], n),
    ],
    ids=["normal", "heavy tails", "unequal spread"],
)
@pytest.mark.parametrize("n", [6, 20])
def test_the_interval_covers_the_true_effect(draw, n):
    """95 % of 400 runs is 380, with a standard deviation of 4.4."""
    rng = np.random.default_rng(n)
    intervals = np.array([randomization_interval(draw(rng, n)) for _ in range(400)])
    n_covered = np.count_nonzero((intervals[:, 0] <= 1.0) & (intervals[:, 1] >= 1.0))
    assert n_covered >= 362
    assert np.isinf(randomization_interval(np.ones(5))).all()
