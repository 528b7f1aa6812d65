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
