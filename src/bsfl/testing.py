"""What every policy must do, whatever its rule; run it on a policy of your own.

    from bsfl.testing import check_policy

    def test_my_policy():
        check_policy(LeastServed())

`CHECKS` holds the checks by name, for a test of its own each. A check raises AssertionError. A
policy that is given numbers by client must have them for 40.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.policies import Policy
from bsfl.records import IntArray, Observation, Outcome, Report, Roster, RoundContext
from bsfl.requirements import LOSS, SAMPLES, needs_of
from bsfl.scheduler import Scheduler
from bsfl.state import State, leaves

K, M = 12, 4
"""Clients and cohort of the fleet that the checks play with."""


def check_policy(policy: Policy) -> None:
    """Run every check."""
    for check in CHECKS.values():
        check(policy)


def context(
    t: int, *, m: int = M, k: int = K, available: Iterable[int] | None = None
) -> RoundContext:
    """Return a round of a fleet whose clients hold 1, 2, 3, ... samples."""
    return RoundContext(
        t=t,
        available=np.arange(k) if available is None else np.array(available, dtype=np.int64),
        cohort_size=m,
        roster=Roster(n_members=k, samples=np.arange(1.0, k + 1)),
    )


def answer(client: Any) -> Observation:
    """Return what a client shows: everything that a policy may ask for."""
    return Observation(latency=1.0 + int(client), loss=2.0 + int(client) % 3, samples=9)


def answers(cohort: Iterable[Any]) -> Report:
    """Return the report of a cohort that answered."""
    chosen = [int(k) for k in cohort]
    return Report.of({k: answer(k) for k in chosen}, chosen=chosen)


def play(policy: Policy, state: State, rounds: int, *, first: int = 1, **world: Any) -> State:
    """Play rounds in which everybody answers, and return the state."""
    for t in range(first, first + rounds):
        here = context(t, **world)
        policy.observe(state, here, answers(choose(policy, state, here)))
    return state


def choose(policy: Policy, state: State, here: RoundContext) -> IntArray:
    """Return the cohort of a round, with a generator of the round's own."""
    return policy.select(state, here, np.random.default_rng(here.t))


def contents(state: State) -> dict[str, bytes]:
    """Return every byte of a state."""
    return {name: np.copy(leaf).tobytes() for name, leaf in leaves(state)}


def choose_right_cohorts(policy: Policy) -> None:
    """Cohorts are distinct, sorted, available and of the right size."""
    for rounds in (0, 1, 2, 7, 30):
        state = play(policy, policy.init(K), rounds)
        for available in (range(K), range(1, K, 2), (2, 4, 6, 8)):
            cohort = choose(policy, state, context(rounds + 1, available=available))
            assert len(cohort) == M, f"{len(cohort)} clients instead of {M}"
            assert np.all(np.diff(cohort) > 0), f"not sorted and distinct: {cohort}"
            assert set(cohort.tolist()) <= set(available), f"not available: {cohort}"


def take_all_of_too_few(policy: Policy) -> None:
    """Too few available clients are all taken."""
    state = play(policy, policy.init(K), 5)
    for available in ([], [5], [0, 11]):
        assert choose(policy, state, context(6, available=available)).tolist() == available


def select_without_change(policy: Policy) -> None:
    """Selecting changes nothing, and equal generators give equal cohorts."""
    state = play(policy, policy.init(K), 9)
    before = contents(state)
    first = choose(policy, state, context(10))
    assert contents(state) == before, "select changed the state"
    assert choose(policy, state, context(10)).tolist() == first.tolist()


def survive_silence(policy: Policy) -> None:
    """Where nobody ever answers, every client still gets its turn."""
    state, chosen = policy.init(K), set()
    for t in range(1, 80):
        cohort = choose(policy, state, context(t))
        policy.observe(state, context(t), Report.of({}, chosen=cohort))
        chosen |= set(cohort.tolist())
    assert chosen == set(range(K)), f"never chosen: {set(range(K)) - chosen}"


def play_with_one_client(policy: Policy) -> None:
    """A fleet may have one client."""
    state = policy.init(1)
    for t in range(1, 4):
        assert choose(policy, state, context(t, m=1, k=1)).tolist() == [0]
        policy.observe(state, context(t, m=1, k=1), answers([0]))


def play_with_the_whole_fleet(policy: Policy) -> None:
    """A cohort may be the whole fleet."""
    state = play(policy, policy.init(K), 3, m=K)
    assert choose(policy, state, context(4, m=K)).tolist() == list(range(K))


def survive_a_broken_client(policy: Policy) -> None:
    """A client that never delivers leaves no number in the state that is none."""
    outcomes: tuple[Outcome, ...] = ("timeout", "failed")
    for outcome in outcomes:
        state = policy.init(K)
        for t in range(1, 40):
            here = context(t)
            cohort = choose(policy, state, here).tolist()
            policy.observe(state, here, answers(k for k in cohort if k != 3))
            broken = [k for k in cohort if k == 3]
            failure = Observation(latency=20.0, outcome=outcome)
            policy.observe(state, here, Report.of(dict.fromkeys(broken, failure), chosen=broken))
        for name, leaf in leaves(state):
            assert not np.isnan(leaf).any() or name == "loss", f"{name} holds a NaN"


def touch_nobody_else(policy: Policy) -> None:
    """Learning costs only the cohort: nobody outside the report is touched."""
    state = play(policy, policy.init(K), 10)
    before = {name: np.copy(leaf) for name, leaf in leaves(state)}
    policy.observe(state, context(11), answers([2, 5]))
    others = np.setdiff1d(np.arange(K), [2, 5])
    for name, leaf in leaves(state):
        old, new = before[name], np.asarray(leaf)
        if old.ndim and len(old) == K:
            assert np.array_equal(old[others], new[others], equal_nan=True), f"{name} changed"


def save_and_load(policy: Policy) -> None:
    """Saved and loaded, it goes on with the same cohorts."""
    scheduler = Scheduler(policy, cohort_size=3, seed=5)
    scheduler.join(range(10), samples=np.arange(1.0, 11).tolist())
    for _ in range(8):
        scheduler.observe({k: answer(k) for k in scheduler.select()})
    with TemporaryDirectory() as folder:
        scheduler.save(f"{folder}/scheduler.bsfl")
        twin = Scheduler.load(f"{folder}/scheduler.bsfl", policy=policy)
    for _ in range(5):
        cohort = scheduler.select()
        assert cohort == twin.select(), "the loaded one chooses another cohort"
        for one in (scheduler, twin):
            one.observe({k: answer(k) for k in cohort})


def let_the_fleet_grow(policy: Policy) -> None:
    """Clients may join at any time."""
    scheduler = Scheduler(policy, cohort_size=3, seed=5)
    scheduler.join(range(5), samples=[1.0] * 5)
    for newcomer in range(5, 15):
        scheduler.observe({k: answer(k) for k in scheduler.select()})
        scheduler.register(newcomer, samples=2.0)
    assert len(scheduler.select()) == 3


def doubt_the_silent(policy: Policy) -> None:
    """Four of ten clients never report, not even a failure: silence must not look like promise."""
    if getattr(policy, "knows_truth", False) or not contents(policy.init(K)):
        return  # it learns nothing of the kind
    scheduler, chosen = Scheduler(policy, cohort_size=2, seed=3), Counter[int]()
    scheduler.join(range(10), samples=[5.0] * 10)
    for _ in range(200):
        cohort = scheduler.select()
        chosen.update(cohort)
        scheduler.observe({k: answer(k) for k in cohort if k % 3})
    silent = sum(chosen[k] for k in range(0, 10, 3))
    assert silent < 0.45 * chosen.total(), f"the silent were chosen {silent} times of 400"


def say_what_is_missing(policy: Policy) -> None:
    """What is needed and not given is an error at once, and changes nothing; nothing else is."""
    needs, state = needs_of(policy), policy.init(K)
    bare = RoundContext(t=1, available=np.arange(K), cohort_size=M)
    before = contents(state)
    without = {"loss": Observation(latency=1.0), "samples": Observation(latency=1.0, loss=2.0)}
    for word in sorted(needs & (LOSS | SAMPLES)):
        here = context(1) if word == "loss" else bare
        try:
            choose(policy, state, here)
            policy.observe(state, here, Report.of({2: without[word]}, chosen=[2]))
        except InvalidInput:
            assert contents(state) == before, "an error changed the state"
        else:
            raise AssertionError(f"it needs {word} and does not say so when there is none")
    if not needs:
        choose(policy, state, bare)
        policy.observe(state, bare, Report.of({2: without["loss"]}, chosen=[2]))


def excuse_the_failed(policy: Policy) -> None:
    """A failed client owes no loss."""
    state = policy.init(K)
    failure = Report.of({1: Observation(outcome="failed")}, chosen=[1])
    policy.observe(state, context(1), failure)
    assert len(choose(policy, state, context(2))) == M


def take_late_answers(policy: Policy) -> None:
    """An answer may come after the next round began."""
    state = policy.init(K)
    policy.observe(state, context(1), Report.of({0: answer(0)}, chosen=[0, 1, 2]))
    policy.observe(state, context(2), Report.of({}, chosen=[1, 2, 3]))
    for t, late in ((1, 1), (1, 2), (2, 1), (2, 3)):
        policy.observe(state, context(t), Report.of({late: answer(late)}, chosen=[]))
    assert len(choose(policy, play(policy, state, 3, first=3), context(6))) == M


def tell_what_they_chose(policy: Policy) -> None:
    """What a policy tells of a choice is that choice, and stays as it is when the state moves."""
    if not hasattr(policy, "choice"):
        return
    for rounds in (0, 2, 9):
        state, here = play(policy, policy.init(K), rounds), context(rounds + 1)
        told = policy.choice(state, here, np.random.default_rng(here.t))
        assert told.cohort.tolist() == choose(policy, state, here).tolist(), "another cohort"
        arrays = (leaf for _, leaf in leaves(state) if isinstance(leaf, np.ndarray))
        for leaf in arrays:
            for mine in (told.u, told.g):
                assert not np.shares_memory(leaf, mine), "the choice would change with the state"


CHECKS: dict[str, Callable[[Policy], None]] = {
    check.__name__: check
    for check in (
        choose_right_cohorts,
        take_all_of_too_few,
        select_without_change,
        survive_silence,
        play_with_one_client,
        play_with_the_whole_fleet,
        survive_a_broken_client,
        touch_nobody_else,
        save_and_load,
        let_the_fleet_grow,
        doubt_the_silent,
        say_what_is_missing,
        excuse_the_failed,
        take_late_answers,
        tell_what_they_chose,
    )
}
"""Every check by name."""
