"""Which policy reads the state in a file, and which one starts from what is known."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bsfl import (
    BSFL,
    Discounted,
    Lognormal,
    Observation,
    PolicyWrapper,
    Scheduler,
    SlidingWindow,
    UCBIndex,
)
from bsfl._core.state import leaves
from bsfl.errors import StateFileError
from bsfl.persistence.saved_policy import described_policy, policy_of
from bsfl.policies import POLICIES, CsUcb, CsUcbQ, FedCS, RbcsF, TiFL


def saved(policy, path):
    """Save a scheduler of five clients after five rounds."""
    scheduler = Scheduler(policy, cohort_size=2)
    scheduler.join(range(5))
    for _ in range(5):
        scheduler.observe({k: 1.0 + k for k in scheduler.select()})
    scheduler.save(path)
    return scheduler


def contents(state):
    return {name: np.asarray(leaf).tobytes() for name, leaf in leaves(state)}


@pytest.mark.parametrize(
    ("settings", "others"),
    [
        ({}, {"index": Lognormal()}),
        ({"index": Lognormal()}, {}),
        ({}, {"memory": Discounted(0.98)}),
        ({}, {"memory": SlidingWindow(50)}),
        ({"memory": SlidingWindow(50)}, {"memory": SlidingWindow(20)}),
    ],
)
def test_a_state_is_only_read_under_the_settings_that_give_it_a_meaning(tmp_path, settings, others):
    scheduler = saved(BSFL(**settings), tmp_path / "s")
    same = Scheduler.load(tmp_path / "s", policy=BSFL(alpha=7.0, **settings))
    assert same.policy.alpha == 7.0
    assert contents(same.state) == contents(scheduler.state)
    other = Scheduler.load(tmp_path / "s", policy=BSFL(**others))
    assert other.state.memory.observed.max() == 1  # one response of each client: its median
    assert len(other.select()) == 2


@pytest.mark.parametrize(
    ("policy", "other"),
    [
        (CsUcb(tau_max=10.0), CsUcb(tau_max=20.0)),
        (CsUcbQ(tau_max=10.0), CsUcbQ(tau_max=20.0)),
        (FedCS(tau_max=10.0), FedCS(tau_max=20.0)),
        (TiFL(tau_max=10.0), TiFL(tau_max=10.0, tiers=3)),
        (RbcsF(tau_max=9.0), RbcsF(tau_max=9.0, compute=[1.0], transfer=[1.0])),
    ],
)
def test_state_keys_say_which_settings_these_are(policy, other):
    header = described_policy(policy)
    assert policy_of(header, "file", policy) == (policy, True)
    assert policy_of(header, "file", other) == (other, False)


@pytest.mark.parametrize("name", POLICIES)
def test_a_wrapped_policy_is_saved_and_loaded(tmp_path, name):
    policy = PolicyWrapper(POLICIES.make(name, **POLICIES[name].example))
    scheduler = Scheduler(policy, cohort_size=2)
    scheduler.join(range(9), samples=[1.0 + k for k in range(9)])
    for _ in range(5):
        seen = {k: Observation(latency_s=1.0 + k, loss=1.0) for k in scheduler.select()}
        scheduler.observe(seen)
    scheduler.save(tmp_path / "s")
    with pytest.raises(StateFileError, match="custom"):
        Scheduler.load(tmp_path / "s")
    again = Scheduler.load(tmp_path / "s", policy=policy)
    assert contents(again.state) == contents(scheduler.state)
    assert again.select() == scheduler.select()


class Scaled(PolicyWrapper):
    """Shows a policy latencies in another unit."""

    state_keys = ("unit_s",)

    def __init__(self, policy, unit_s):
        super().__init__(policy)
        self.unit_s = unit_s

    def observe(self, state, context, report):
        super().observe(state, context, replace(report, latency_s=report.latency_s / self.unit_s))


class Minutes(Scaled):
    state_keys = property(lambda self: ("unit_s", *self.policy.state_keys))


@pytest.mark.parametrize("wrapper", [Scaled, Minutes])
@pytest.mark.parametrize("name", POLICIES)
def test_the_settings_of_a_wrapper_may_give_a_state_its_meaning_too(wrapper, name):
    policy = POLICIES.make(name, **POLICIES[name].example)
    header = json.loads(json.dumps(described_policy(wrapper(policy, 60.0))))
    for unit_s in (60.0, 1.0):
        given = wrapper(policy, unit_s)
        assert policy_of(header, "file", given) == (given, unit_s == 60.0)
    assert not policy_of(header, "file", PolicyWrapper(policy))[1]


def test_a_policy_with_custom_functions_must_be_given(tmp_path):
    def wide(count, *, t, m, variance):
        return 2.0 / np.maximum(count, 1)

    policy = BSFL(index=UCBIndex(confidence_width=wide), memory=Discounted(0.9))
    scheduler = saved(policy, tmp_path / "s")
    with pytest.raises(StateFileError, match=r"custom policy or custom functions \(bsfl\)"):
        Scheduler.load(tmp_path / "s")
    loaded = Scheduler.load(tmp_path / "s", policy=policy)
    assert contents(loaded.state) == contents(scheduler.state)
