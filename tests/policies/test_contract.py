"""What every policy in the registry must do, whatever its rule."""

from collections import Counter
from dataclasses import fields

import numpy as np
import pytest

from bsfl import Observation, Scheduler
from bsfl.errors import InvalidInput
from bsfl.policies import POLICIES, Policy, make_policy
from bsfl.policies.registry import name_of, settings_of
from bsfl.records import Report, Roster, RoundContext

K = 12
RNG = np.random.default_rng(0)
SETTINGS = {
    "bsfl": {"alpha": 3.0},
    "cs-ucb": {"tau_max": 20.0},
    "cs-ucb-q": {"tau_max": 20.0},
    "random": {},
    "weighted": {},
    "genie": {"mean_speed": np.linspace(0.1, 0.9, 40), "alpha": 3.0},
    "rbcs-f": {
        "tau_max": 20.0,
        "compute": np.linspace(0.1, 2.0, 40),
        "transfer": np.linspace(3.0, 0.2, 40),
    },
    "ucb-cs": {},
    "power-of-choice": {},
    "fedcs": {"tau_max": 20.0},
    "oort": {"tau_max": 20.0},
    "tifl": {"tau_max": 20.0, "rounds": 30},
    "age": {"tau_max": 20.0},
    "afl": {},
}
NEEDS_LOSS = {"ucb-cs", "power-of-choice", "oort", "tifl", "afl"}
NEEDS_SAMPLES = {"weighted", "ucb-cs", "power-of-choice", "oort", "afl"}


def test_the_suite_covers_the_registry():
    assert set(SETTINGS) == set(POLICIES)


@pytest.fixture(params=sorted(SETTINGS))
def policy(request):
    return make_policy(request.param, **SETTINGS[request.param])


def context(t, *, m=4, available=None, k=K):
    return RoundContext(
        t=t,
        available=np.arange(k) if available is None else np.asarray(available),
        cohort_size=m,
        roster=Roster(n_members=k, samples=np.arange(1.0, k + 1)),
    )


def answer(k):
    """What client k shows: everything that a policy may ask for."""
    return Observation(latency=1.0 + int(k), loss=2.0 + int(k) % 3, samples=9)


def answers(cohort):
    return Report.of({int(k): answer(k) for k in cohort}, chosen=cohort)


def play(policy, state, rounds, *, first=1, **world):
    for t in range(first, first + rounds):
        here = context(t, **world)
        cohort = policy.select(state, here, np.random.default_rng(t))
        policy.observe(state, here, answers(cohort))
    return state


def contents(state):
    return {f.name: np.copy(getattr(state, f.name)).tobytes() for f in fields(state)}


def test_is_a_policy_with_a_name(policy):
    assert isinstance(policy, Policy)
    assert name_of(policy) in POLICIES
    assert set(settings_of(name_of(policy))) == {f.name for f in fields(policy)}


@pytest.mark.parametrize("rounds", [0, 1, 2, 7, 30])
def test_cohorts_are_distinct_sorted_available_and_of_the_right_size(policy, rounds):
    state = play(policy, policy.init(K), rounds)
    for available in (np.arange(K), [1, 3, 5, 7, 9, 11], [2, 4, 6, 8]):
        here = context(rounds + 1, available=available)
        cohort = policy.select(state, here, np.random.default_rng(0))
        assert len(cohort) == 4
        assert np.all(np.diff(cohort) > 0)
        assert set(cohort) <= set(np.asarray(available).tolist())


@pytest.mark.parametrize("available", [[], [5], [0, 11]])
def test_too_few_available_clients_are_all_taken(policy, available):
    state = play(policy, policy.init(K), 5)
    here = context(6, available=np.array(available, dtype=np.int64))
    assert policy.select(state, here, np.random.default_rng(0)).tolist() == available


def test_select_changes_nothing(policy):
    state = play(policy, policy.init(K), 9)
    before = contents(state)
    policy.select(state, context(10), np.random.default_rng(0))
    assert contents(state) == before


def test_equal_generators_give_equal_cohorts(policy):
    state = play(policy, policy.init(K), 9)
    first, second = (policy.select(state, context(10), np.random.default_rng(42)) for _ in range(2))
    assert first.tolist() == second.tolist()


def test_a_round_where_nobody_answers(policy):
    state = policy.init(K)
    here = context(1)
    cohort = policy.select(state, here, np.random.default_rng(0))
    policy.observe(state, here, Report.of({}, chosen=cohort))
    assert len(policy.select(state, context(2), np.random.default_rng(0))) == 4


def test_silent_clients_are_not_chosen_for_ever(policy):
    """Nobody ever answers; still every client gets its turn."""
    state, chosen = policy.init(K), set()
    for t in range(1, 80):
        here = context(t)
        cohort = policy.select(state, here, np.random.default_rng(t))
        policy.observe(state, here, Report.of({}, chosen=cohort))
        chosen |= set(cohort.tolist())
    assert chosen == set(range(K))


def test_one_client(policy):
    state = policy.init(1)
    for t in range(1, 4):
        here = context(t, m=1, k=1)
        assert policy.select(state, here, np.random.default_rng(t)).tolist() == [0]
        policy.observe(state, here, answers([0]))


def test_the_whole_fleet(policy):
    state = play(policy, policy.init(K), 3, m=K)
    cohort = policy.select(state, context(4, m=K), np.random.default_rng(0))
    assert cohort.tolist() == list(range(K))


@pytest.mark.parametrize("outcome", ["timeout", "failed"])
def test_a_client_that_never_delivers(policy, outcome):
    state = policy.init(K)
    for t in range(1, 40):
        here = context(t)
        cohort = policy.select(state, here, np.random.default_rng(t))
        good = [k for k in cohort if k != 3]
        policy.observe(state, here, answers(good))
        bad = Report.of(
            {3: Observation(latency=20.0, outcome=outcome)} if 3 in cohort else {},
            chosen=[3] if 3 in cohort else [],
        )
        policy.observe(state, here, bad)
    for field in fields(state):
        values = np.asarray(getattr(state, field.name))
        assert not np.isnan(values).any() or field.name == "loss"


def test_learning_costs_only_the_cohort(policy):
    """Nobody outside the report is touched."""
    state = play(policy, policy.init(K), 10)
    before = {f.name: np.copy(getattr(state, f.name)) for f in fields(state)}
    policy.observe(state, context(11), answers([2, 5]))
    for name, old in before.items():
        new = np.asarray(getattr(state, name))
        if old.ndim and len(old) == K:
            others = np.setdiff1d(np.arange(K), [2, 5])
            assert np.array_equal(old[others], new[others], equal_nan=True)


def test_saved_and_loaded_it_goes_on_with_the_same_cohorts(policy, tmp_path):
    scheduler = Scheduler(policy, cohort_size=3, seed=5)
    scheduler.join(range(10), samples=np.arange(1.0, 11))
    for _ in range(8):
        cohort = scheduler.select()
        scheduler.observe({k: answer(k) for k in cohort})
    scheduler.save(tmp_path / "s.bsfl")
    twin = Scheduler.load(tmp_path / "s.bsfl")
    for _ in range(5):
        cohort = scheduler.select()
        assert cohort == twin.select()
        for one in (scheduler, twin):
            one.observe({k: answer(k) for k in cohort})


def test_the_fleet_may_grow(policy):
    scheduler = Scheduler(policy, cohort_size=3, seed=5)
    scheduler.join(range(5), samples=[1.0] * 5)
    for n in range(5, 15):
        scheduler.observe({k: answer(k) for k in scheduler.select()})
        scheduler.register(n, samples=2.0)
    assert len(scheduler.select()) == 3


def test_silent_clients_do_not_take_over(policy):
    """Four of ten clients never report, not even a failure: silence must not look like promise."""
    if name_of(policy) in {"random", "weighted", "genie"}:
        pytest.skip("learns nothing of the kind")
    scheduler, chosen = Scheduler(policy, cohort_size=2, seed=3), Counter()
    scheduler.join(range(10), samples=[5.0] * 10)
    for _ in range(200):
        cohort = scheduler.select()
        chosen.update(cohort)
        scheduler.observe({k: answer(k) for k in cohort if k % 3})
    silent = sum(chosen[k] for k in range(0, 10, 3))
    assert silent < 0.45 * chosen.total()


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_what_is_missing_is_said_at_once_and_changes_nothing(name):
    policy = make_policy(name, **SETTINGS[name])
    state = policy.init(K)
    bare = RoundContext(t=1, available=np.arange(K), cohort_size=4)
    before = contents(state)
    only_latency = Report.of({2: Observation(latency=1.0)}, chosen=[2])
    only_loss = Report.of({2: Observation(latency=1.0, loss=2.0)}, chosen=[2])
    if name in NEEDS_LOSS:
        with pytest.raises(InvalidInput, match=f"policy '{name}' needs the loss of every client"):
            policy.observe(state, context(1), only_latency)
        assert contents(state) == before
    if name in NEEDS_SAMPLES:
        with pytest.raises(InvalidInput, match=r"needs (the sample count of )?every client"):
            _ = policy.select(state, bare, RNG), policy.observe(state, bare, only_loss)
        assert contents(state) == before
    if name not in NEEDS_LOSS | NEEDS_SAMPLES:
        policy.select(state, bare, np.random.default_rng(0))
        policy.observe(state, bare, only_latency)


def test_a_failed_client_owes_no_loss(policy):
    state = policy.init(K)
    policy.observe(state, context(1), Report.of({1: Observation(outcome="failed")}, chosen=[1]))
    assert len(policy.select(state, context(2), np.random.default_rng(0))) == 4


def test_an_answer_may_come_after_the_next_round_began(policy):
    state = policy.init(K)
    policy.observe(state, context(1), Report.of({0: answer(0)}, chosen=[0, 1, 2]))
    policy.observe(state, context(2), Report.of({}, chosen=[1, 2, 3]))
    for t, late in ((1, 1), (1, 2), (2, 1), (2, 3)):
        policy.observe(state, context(t), Report.of({late: answer(late)}, chosen=[]))
    assert len(policy.select(play(policy, state, 3, first=3), context(6), RNG)) == 4
