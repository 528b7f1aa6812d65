"""Every policy in the registry passes the public contract suite, and the suite sees what is broken."""

from dataclasses import dataclass, fields

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.policies import BSFL, POLICIES, Policy, UniformRandom, make_policy
from bsfl.records import Observation, Report
from bsfl.requirements import LOSS, needs_of
from bsfl.state import ClientState, per_client
from bsfl.testing import CHECKS, check_policy, contents, context


def example(name):
    return make_policy(name, **getattr(POLICIES[name], "example", {}))


PARTS = {
    "lognormal": {"index": {"kind": "lognormal"}},
    "bernstein": {"index": {"kind": "means", "radius": "bernstein"}},
    "discounted": {"memory": {"kind": "discounted", "gamma": 0.9}},
    "windowed": {"memory": {"kind": "windowed", "window": 6}, "index": {"kind": "lognormal"}},
    "floor": {"alpha": {"kind": "floor", "share": 0.8}},
    "max-gini": {"alpha": {"kind": "max-gini", "limit": 0.1}},
}
CASES = {name: example(name) for name in POLICIES}
CASES |= {f"bsfl-{name}": make_policy("bsfl", **settings) for name, settings in PARTS.items()}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("case", CASES)
def test_every_policy_keeps_the_contract(case, check):
    CHECKS[check](CASES[case])


@pytest.mark.parametrize("name", POLICIES)
def test_is_a_policy_that_tells_of_itself(name):
    policy = example(name)
    assert isinstance(policy, Policy)
    assert POLICIES.name_of(policy) == name
    assert set(POLICIES.settings(name)) == {f.name for f in fields(policy)}
    assert POLICIES.about(name).endswith(".")
    for settings in getattr(policy, "tuning", ()):
        assert make_policy(name, **{**getattr(policy, "example", {}), **settings})
    plain = POLICIES.plain(policy)
    assert contents(make_policy(name, **plain).init(5)) == contents(policy.init(5))


def test_what_is_missing_is_named():
    report = Report.of({2: Observation(latency=1.0)}, chosen=[2])
    for name in POLICIES:
        policy = example(name)
        if needs_of(policy) >= LOSS:
            with pytest.raises(InvalidInput, match=f"policy '{name}' needs the loss of every"):
                policy.observe(policy.init(12), context(1), report)


def test_the_suite_sees_a_policy_that_breaks_its_promises():
    @dataclass(slots=True, kw_only=True)
    class Counts(ClientState):
        selected: np.ndarray = per_client(0)

    class Wrong(UniformRandom):
        def init(self, n_clients):
            return Counts.of(n_clients)

        def observe(self, state, context, report):
            state.selected[report.chosen] += 1

    class Mutates(Wrong):
        def select(self, state, context, rng):
            state.selected += 1
            return super().select(state, context, rng)

    class Repeats(Wrong):
        def select(self, state, context, rng):
            return np.repeat(super().select(state, context, rng)[:1], context.cohort_size)

    class TouchesAll(Wrong):
        def observe(self, state, context, report):
            state.selected += 1

    class SaysItNeedsLosses(Wrong):
        needs = LOSS

    for broken, check in (
        (Mutates(), "select_without_change"),
        (Repeats(), "choose_right_cohorts"),
        (TouchesAll(), "touch_nobody_else"),
        (SaysItNeedsLosses(), "say_what_is_missing"),
    ):
        with pytest.raises(AssertionError):
            CHECKS[check](broken)
    check_policy(Wrong())


def test_a_state_of_parts_is_a_tree():
    names = set(contents(BSFL(alpha=1.0).init(3)))
    assert {"selected", "memory.mean", "memory.observed"} <= names
    assert "index.gram" not in names, "Means knows nothing beside the averages"


# --- ten faults, each named -----------------------------------------------------------------------


@dataclass
class Chosen:
    n: np.ndarray


class Sound:
    """Take those who were chosen least so far, as a user would write it."""

    def init(self, n_clients):
        return Chosen(np.zeros(n_clients, dtype=np.int64))

    def select(self, state, context, rng):
        ties = rng.random(len(context.available))
        order = np.lexsort((ties, state.n[context.available]))
        return np.sort(context.available[order[: context.cohort_size]])

    def observe(self, state, context, report):
        state.n[report.chosen] += 1


class MutatesState(Sound):
    def select(self, state, context, rng):
        cohort = super().select(state, context, rng)
        state.n[cohort] += 1
        return cohort


class ChoosesTwice(Sound):
    def select(self, state, context, rng):
        cohort = super().select(state, context, rng)
        return np.sort(np.append(cohort[1:], cohort[-1:]))


class IgnoresWhoIsThere(Sound):
    def select(self, state, context, rng):
        return np.sort(np.argsort(state.n, kind="stable")[: context.cohort_size])


class OneTooFew(Sound):
    def select(self, state, context, rng):
        return super().select(state, context, rng)[1:]


class GlobalRandomness(Sound):
    def select(self, state, context, rng):
        n = min(context.cohort_size, len(context.available))
        return np.sort(np.random.choice(context.available, n, replace=False))  # noqa: NPY002


class RandomnessOfItsOwn(Sound):
    def select(self, state, context, rng):
        return super().select(state, context, np.random.default_rng())


class NeedsAnswers(Sound):
    def observe(self, state, context, report):
        fastest = report.latency.min()  # nobody may have answered
        state.n[report.chosen] += 1 + int(fastest < 0)


class StateIsADict(Sound):
    def init(self, n_clients):
        return {"n": np.zeros(n_clients, dtype=np.int64)}

    def select(self, state, context, rng):
        return super().select(Chosen(state["n"]), context, rng)

    def observe(self, state, context, report):
        state["n"][report.chosen] += 1


class Floats(Sound):
    def select(self, state, context, rng):
        return super().select(state, context, rng).astype(float)


class CannotTakeAll(Sound):
    def select(self, state, context, rng):
        order = np.argpartition(state.n[context.available], context.cohort_size)
        return np.sort(context.available[order[: context.cohort_size]])


class LearnsInItself(Sound):
    def __init__(self):
        self.n = np.zeros(0, dtype=np.int64)

    def select(self, state, context, rng):
        self.n = np.append(self.n, np.zeros(40 - len(self.n), dtype=np.int64))
        return super().select(Chosen(self.n), context, rng)

    def observe(self, state, context, report):
        self.n[report.chosen] += 1


class RemembersInAList(Sound):
    def __init__(self):
        self.past = []

    def select(self, state, context, rng):
        late = len(self.past) % 12 // 6
        return super().select(Chosen(state.n * late), context, rng)

    def observe(self, state, context, report):
        self.past.append(context.t)
        super().observe(state, context, report)


class Cools(Sound):
    epsilon = 1.0

    def select(self, state, context, rng):
        self.epsilon *= 0.99
        return super().select(state, context, rng)


class ReturnsItsState(Sound):
    def observe(self, state, context, report):
        n = state.n.copy()
        n[report.chosen] += 1
        return Chosen(n)


class ChangesTheReport(Sound):
    def observe(self, state, context, report):
        report.latency[:] = 0.0
        super().observe(state, context, report)


class WrongSignature(Sound):
    def select(self, state, available, m, rng):
        return available[:m]


class SharesItsState(Sound):
    shared = Chosen(np.zeros(40, dtype=np.int64))

    def init(self, n_clients):
        return self.shared


class HasRoomForFifty(Sound):
    def init(self, n_clients):
        return Chosen(np.zeros(50, dtype=np.int64))


class ShufflesTheQuestion(Sound):
    def select(self, state, context, rng):
        rng.shuffle(context.available)
        return np.sort(context.available[: context.cohort_size])


FAULTS = {
    MutatesState: "select_without_change: select changed the state",
    ChoosesTwice: "choose_right_cohorts: a client was chosen twice",
    IgnoresWhoIsThere: "choose_right_cohorts: clients were chosen that are not available",
    OneTooFew: "choose_right_cohorts: 3 clients were chosen instead of 4",
    GlobalRandomness: "repeat_with_equal_generators: .* it used numpy's global generator",
    RandomnessOfItsOwn: "repeat_with_equal_generators: equal generators gave different cohorts",
    NeedsAnswers: "hear_nothing: observe cannot take a report without answers: ValueError",
    StateIsADict: "keep_a_state_that_can_be_saved: the state must be a dataclass .* got dict",
    Floats: "choose_right_cohorts: select must return whole numbers, got float64",
    CannotTakeAll: r"play_with_the_whole_fleet: ValueError: kth\(=12\) out of bounds",
    LearnsInItself: "learn_in_the_state_alone: playing changed n of the policy itself",
    RemembersInAList: "learn_in_the_state_alone: playing changed past of the policy itself",
    Cools: "learn_in_the_state_alone: playing changed epsilon of the policy itself",
    ReturnsItsState: "change_nothing_but_the_state: .* it returns is not used, got Chosen",
    ChangesTheReport: "change_nothing_but_the_state: observe changed latency of the report",
    WrongSignature: "choose_right_cohorts: TypeError: .*; the same in .* other rules",
    SharesItsState: "learn_in_the_state_alone: ",
    HasRoomForFifty: "play_with_a_large_fleet: IndexError: .* out of bounds",
    ShufflesTheQuestion: "select_without_change: select changed context.available",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_named(fault):
    with pytest.raises(AssertionError, match=FAULTS[fault]) as told:
        check_policy(fault())
    assert str(told.value).startswith(f"{fault.__name__} breaks ")


def test_a_sound_policy_passes_and_a_class_is_none():
    check_policy(Sound())
    with pytest.raises(AssertionError, match=r"got the class Sound; did you mean Sound\(\)\?"):
        check_policy(Sound)
