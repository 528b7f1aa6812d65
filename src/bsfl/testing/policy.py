"""What every policy must do, whatever its rule."""

import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.policies import Policy
from bsfl.policies.base import check_places, check_policy_object
from bsfl.records import IntArray, Observation, Outcome, Report, Roster, RoundContext
from bsfl.requirements import LOSS, SAMPLES, needs_of
from bsfl.scheduler import Scheduler
from bsfl.state import State, leaves

K, M = 12, 4
"""Clients and cohort of the fleet that the checks play with."""
MANY = 1000
"""Clients of a large fleet."""


def check_policy(policy: Policy) -> None:
    """Check that a policy keeps the contract; an AssertionError names every rule that it breaks."""
    name = type(policy).__name__
    try:
        check_policy_object(policy)
    except InvalidInput as error:
        raise AssertionError(str(error)) from None
    broken: dict[str, list[str]] = {}  # rules by what was seen
    for check in CHECKS.values():
        try:
            check(policy)
        except AssertionError as fault:
            broken.setdefault(f"{fault}", []).append(check.__name__)
        except Exception as fault:  # a policy may fail in any way
            broken.setdefault(f"{type(fault).__name__}: {fault}", []).append(check.__name__)
    if broken:
        lines = "".join(f"\n  {_line(seen, rules)}" for seen, rules in broken.items())
        n_broken = sum(map(len, broken.values()))
        raise AssertionError(f"{name} breaks {n_broken} of {len(CHECKS)} rules:{lines}")


def _line(seen: str, rules: list[str]) -> str:
    """Return what was seen, and what the first rule says that it breaks."""
    about = (CHECKS[rules[0]].__doc__ or "").partition("\n")[0]
    n_more = len(rules) - 1
    others = f"; the same in {n_more} other rule{'s' * (n_more > 1)}" if n_more else ""
    return f"{rules[0]}: {seen} ({about.removesuffix('.')}{others})"


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


def cohort_of(policy: Policy, state: State, here: RoundContext) -> list[int]:
    """Return the cohort of a round as numbers, after checking that it is an array of them."""
    cohort: Any = choose(policy, state, here)
    is_array = isinstance(cohort, np.ndarray)
    kind = cohort.dtype if is_array else type(cohort).__name__
    assert is_array, f"select must return a numpy array of whole numbers, got {kind}"
    assert cohort.dtype.kind in "iu", f"select must return whole numbers, got {kind}"
    return [int(k) for k in cohort]


def contents(state: State) -> dict[str, bytes]:
    """Return every byte of a state."""
    return {name: np.copy(leaf).tobytes() for name, leaf in leaves(state)}


def choose_right_cohorts(policy: Policy) -> None:
    """Cohorts are whole numbers, distinct, sorted, available and of the right size."""
    for rounds in (0, 1, 2, 7, 30):
        state = play(policy, policy.init(K), rounds)
        for available in (range(K), range(1, K, 2), (2, 4, 6, 8)):
            cohort = cohort_of(policy, state, context(rounds + 1, available=available))
            assert len(set(cohort)) == len(cohort), f"a client was chosen twice: {cohort}"
            strangers = sorted(set(cohort) - set(available))
            assert not strangers, f"clients were chosen that are not available: {strangers}"
            assert len(cohort) == M, f"{len(cohort)} clients were chosen instead of {M}"
            assert cohort == sorted(cohort), f"the cohort is not sorted: {cohort}"


def take_all_of_too_few(policy: Policy) -> None:
    """Too few available clients are all taken."""
    state = play(policy, policy.init(K), 5)
    for available in ([], [5], [0, 11]):
        cohort = cohort_of(policy, state, context(6, available=available))
        assert cohort == available, f"of too few, {available}, all must be chosen, got {cohort}"


def select_without_change(policy: Policy) -> None:
    """Selecting changes neither the state nor what it is asked."""
    state, here = play(policy, policy.init(K), 9), context(10)
    before, asked = contents(state), here.available.tobytes()
    choose(policy, state, here)
    assert contents(state) == before, "select changed the state"
    assert here.available.tobytes() == asked, "select changed context.available"


def repeat_with_equal_generators(policy: Policy) -> None:
    """Equal generators give equal cohorts, and no other randomness is used."""
    state, here = play(policy, policy.init(K), 9), context(10)
    of_numpy, of_python = _global_numpy(), random.getstate()
    cohorts = [cohort_of(policy, state, here) for _ in range(5)]
    policy.observe(policy.init(K), here, answers(cohorts[0]))
    drew = "a policy must draw from rng alone: it used"
    assert _global_numpy() == of_numpy, f"{drew} numpy's global generator, np.random"
    assert random.getstate() == of_python, f"{drew} Python's global generator, random"
    assert cohorts == cohorts[:1] * 5, "equal generators gave different cohorts"


def _global_numpy() -> str:
    return repr(np.random.get_state(legacy=False))  # noqa: NPY002  (to see whether it is used)


def learn_in_the_state_alone(policy: Policy) -> None:
    """What is learned is in the state: a second run from a fresh one is like the first."""
    before = _attributes(policy)
    first, second = (
        [cohort_of(policy, play(policy, policy.init(K), n), context(n + 1)) for n in (0, 3, 10)]
        for _ in range(2)
    )
    after = _attributes(policy)
    changed = sorted(name for name in after if after[name] != before.get(name))
    assert not changed, (
        f"playing changed {', '.join(changed)} of the policy itself: what is learned belongs into "
        "the state"
    )
    assert first == second, (
        "a run from a fresh state differs from the one before: something is learned outside the "
        "state"
    )
    one, other = policy.init(K), policy.init(K)
    arrays = [leaf for _, leaf in leaves(one) if isinstance(leaf, np.ndarray)]
    for name, leaf in leaves(other):
        if isinstance(leaf, np.ndarray):
            shared = any(np.shares_memory(leaf, mine) for mine in arrays)
            assert not shared, f"init gave the same array twice: {name}"


def _attributes(policy: Policy) -> dict[str, bytes | str]:
    """Return what a policy holds itself, to be compared."""
    slots = (name for kind in type(policy).__mro__ for name in getattr(kind, "__slots__", ()))
    names = {*slots, *getattr(policy, "__dict__", ())}
    held = {name: getattr(policy, name) for name in names if hasattr(policy, name)}
    found: dict[str, bytes | str] = {}
    for name, value in held.items():
        try:
            found[name] = pickle.dumps(value)
        except Exception:  # such as a lambda: it is compared by its looks
            found[name] = repr(value)
    return found


def change_nothing_but_the_state(policy: Policy) -> None:
    """Learning changes the state that is given, and nothing else: not the report either."""
    state, report = play(policy, policy.init(K), 3), answers([1, 4, 7, 9])
    columns = ("clients", "latency", "outcome", "loss", "samples", "chosen")
    before = {name: getattr(report, name).tobytes() for name in columns}
    returned: Any = policy.observe(state, context(4), report)  # type: ignore[func-returns-value]
    assert returned is None, (
        "observe must change the state that it is given; what it returns is not used, "
        f"got {type(returned).__name__}"
    )
    changed = [name for name in columns if getattr(report, name).tobytes() != before[name]]
    assert not changed, f"observe changed {', '.join(changed)} of the report"


def keep_a_state_that_can_be_saved(policy: Policy) -> None:
    """The state is a dataclass of arrays and numbers."""
    state = play(policy, policy.init(K), 5)
    kind = type(state).__name__
    assert is_dataclass(state), f"the state must be a dataclass of arrays and numbers, got {kind}"
    for name, leaf in leaves(state):
        is_number = isinstance(leaf, bool | int | float | np.generic)
        is_array = isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biuf"
        assert is_number or is_array, (
            f"{name} of the state must be an array of numbers or a number, "
            f"got {type(leaf).__name__}"
        )


def hear_nothing(policy: Policy) -> None:
    """A report may be empty: nobody answered, or nobody was asked."""
    state = play(policy, policy.init(K), 3)
    for chosen in ([], [1, 2]):
        try:
            policy.observe(state, context(4), Report.of({}, chosen=chosen))
        except Exception as fault:
            raise AssertionError(
                f"observe cannot take a report without answers: {type(fault).__name__}: {fault}"
            ) from fault
    assert len(cohort_of(policy, state, context(5))) == M, "the next cohort is not whole"


def survive_silence(policy: Policy) -> None:
    """Where nobody ever answers, every client still gets its turn."""
    state, chosen = policy.init(K), set()
    for t in range(1, 80):
        cohort = cohort_of(policy, state, context(t))
        policy.observe(state, context(t), Report.of({}, chosen=cohort))
        chosen |= set(cohort)
    never = set(range(K)) - chosen
    assert not never, f"where nobody answers, these are never chosen: {sorted(never)}"


def play_with_one_client(policy: Policy) -> None:
    """A fleet may have one client."""
    state = policy.init(1)
    for t in range(1, 4):
        cohort = cohort_of(policy, state, context(t, m=1, k=1))
        assert cohort == [0], f"the only client must be chosen, got {cohort}"
        policy.observe(state, context(t, m=1, k=1), answers([0]))


def play_with_the_whole_fleet(policy: Policy) -> None:
    """A cohort may be the whole fleet, m = K."""
    state = play(policy, policy.init(K), 3, m=K)
    cohort = cohort_of(policy, state, context(4, m=K))
    assert cohort == list(range(K)), f"with m = K everybody must be chosen, got {cohort}"


def play_with_a_large_fleet(policy: Policy) -> None:
    """A fleet may have a thousand clients: whatever is held of each has as many rows."""
    try:
        check_places(policy)
    except InvalidInput:
        return  # it was told of so many clients, and of no more
    state = play(policy, policy.init(MANY), 3, k=MANY)
    cohort = cohort_of(policy, state, context(4, k=MANY))
    assert len(cohort) == M, f"{len(cohort)} of {MANY} clients were chosen instead of {M}"
    policy.observe(state, context(4, k=MANY), answers(range(MANY - M, MANY)))


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
            same = np.array_equal(old[others], new[others], equal_nan=True)
            assert same, f"observe changed {name} of clients that are not in the report"


def save_and_load(policy: Policy) -> None:
    """Saved and loaded, it goes on with the same cohorts."""
    if not is_dataclass(policy.init(1)):
        return  # which is a fault of its own
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
    assert len(scheduler.select()) == 3, "the cohort of a fleet that has grown is not whole"


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
    assert silent < 0.45 * chosen.total(), (
        f"clients that never report had {silent} of 400 places, {0.4 * 400:.0f} would be their part"
    )


def say_what_is_missing(policy: Policy) -> None:
    """Who `needs` losses or samples raises InvalidInput where there are none; nobody else."""
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
    assert len(choose(policy, state, context(2))) == M, "the next cohort is not whole"


def take_late_answers(policy: Policy) -> None:
    """An answer may come after the next round began."""
    state = policy.init(K)
    policy.observe(state, context(1), Report.of({0: answer(0)}, chosen=[0, 1, 2]))
    policy.observe(state, context(2), Report.of({}, chosen=[1, 2, 3]))
    for t, late in ((1, 1), (1, 2), (2, 1), (2, 3)):
        policy.observe(state, context(t), Report.of({late: answer(late)}, chosen=[]))
    n_chosen = len(choose(policy, play(policy, state, 3, first=3), context(6)))
    assert n_chosen == M, f"after late answers {n_chosen} clients were chosen instead of {M}"


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
        repeat_with_equal_generators,
        learn_in_the_state_alone,
        change_nothing_but_the_state,
        keep_a_state_that_can_be_saved,
        hear_nothing,
        survive_silence,
        play_with_one_client,
        play_with_the_whole_fleet,
        play_with_a_large_fleet,
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
