"""Every policy in the registry passes the public contract suite, also inside a wrapper."""

from dataclasses import fields
from inspect import signature
from unittest.mock import Mock

import numpy as np
import pytest

from bsfl import Genie, Observation, Policy, PolicyWrapper, Scheduler
from bsfl._core.events import Forget, Respond
from bsfl.errors import InvalidInput
from bsfl.policies import POLICIES, make_policy
from bsfl.policy import LOSS
from bsfl.testing import CHECKS, PolicyDriver, check_policy, contents

COMPONENTS = {
    "lognormal": {"index": {"kind": "lognormal"}},
    "bernstein": {"index": {"kind": "ucb", "confidence_width": "bernstein"}},
    "discounted": {"memory": {"kind": "discounted", "gamma": 0.9}},
    "sliding-window": {
        "memory": {"kind": "sliding-window", "window": 6},
        "index": {"kind": "lognormal"},
    },
    "min-participation": {"alpha": {"kind": "min-participation", "share": 0.8}},
    "max-gini": {"alpha": {"kind": "max-gini", "limit": 0.1}},
}


def example(name):
    return make_policy(name, **POLICIES[name].example)


CASES = {name: example(name) for name in POLICIES}
CASES |= {f"bsfl-{name}": make_policy("bsfl", **settings) for name, settings in COMPONENTS.items()}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("case", CASES)
def test_every_policy_keeps_the_contract(case, check):
    CHECKS[check](CASES[case])


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_describes_itself(name):
    policy = example(name)
    assert isinstance(policy, Policy)
    assert POLICIES.name_of(policy) == name
    assert set(POLICIES.settings(name)) == {f.name for f in fields(policy)}
    assert POLICIES.about(name).endswith(".")
    assert ">>>" in type(policy).__doc__, "an example that runs, see --doctest-modules"
    for settings in policy.search_space:
        assert make_policy(name, **{**policy.example, **settings})
    assert contents(make_policy(name, **POLICIES.plain(policy)).init(5)) == contents(policy.init(5))


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case].needs >= LOSS])
def test_missing_losses_are_rejected_and_the_policy_is_named(case):
    policy = CASES[case]
    driver = PolicyDriver(policy, n_clients=6, target_responses=2, samples=np.ones(6))
    driver.open([2, 4])
    before = contents(driver.state)
    report = {2: Observation(latency_s=1.0, samples=3)}
    with pytest.raises(InvalidInput, match=f"^{type(policy).__name__} needs the loss of every"):
        driver.engine.decide(Respond(round=1, report=report), 0.0)
    assert contents(driver.state) == before


LIMITS = {
    "afl": {"drop": (0.0, 1.0), "temperature": (0.0, None), "uniform": (0.0, 1.0)},
    "bsfl": {"alpha": (0.0, None), "beta": (1, None)},
    "cs-ucb": {"exploration": (0.0, None)},
    "cs-ucb-q": {"beta": (0.0, 1.0), "phi": (0.0, 1.0), "exploration": (0.0, None)},
    "f3ast": {"step": (0.0, 1.0)},
    "fedcs": {"candidates": (1, None)},
    "genie": {"alpha": (0.0, None), "beta": (1, None)},
    "luo": {"speed": (0.0, 10.0), "least": (None, 1.0)},
    "oort": {
        **dict.fromkeys(("percentile", "pacer_step", "penalty"), (0.0, 100.0)),
        **dict.fromkeys(("clip", "cut_off"), (0.0, 1.0)),
        **dict.fromkeys(("explore", "explore_decay", "explore_min"), (0.0, 1.0)),
        "pacer_rounds": (1, None),
    },
    "pace": {"fairness": (0.0, 5.0), "min_participation": (0.0, 1.0)},
    "pisces": {"penalty": (0.0, 100.0)},
    "power-of-choice": {"candidates": (1, None)},
    "rbcs-f": {
        **dict.fromkeys(("latency_weight", "exploration"), (0.0, None)),
        "ridge": (1e-12, None),
        "phi": (0.0, float(np.nextafter(1.0, 0.0))),
    },
    "refl": {"history": (0.0, 1.0)},
    "tifl": {"rounds": (1, None), "tiers": (1, 10_000), "interval": (1, None)},
    "ucb-cs": {"sigma": (0.0, None)},
}
"""Smallest and largest number that a setting may be; None: there is none, or it is excluded."""
WRONG = {
    "age": {"tau_max": 0},
    "bsfl": {"alpha": "x", "beta": 1.5, "tau_max": -2, "generalization": "fair", "solver": "magic"},
    "cs-ucb": {"tau_max": 0},
    "fedcs": {"tau_max": -1, "latency_s": [np.inf], "upload_s": [0.0]},
    "genie": {"mean_speed": [0.5, -1.0], "generalization": "fair", "solver": "magic"},
    "luo": {"tau_max": 0, "least": 0.0},
    "oort": {"tau_max": 0, "expected_s": [0.0]},
    "pace": {"tau_max": 0},
    "power-of-choice": {"ask": "me"},
    "rbcs-f": {"tau_max": 0.0, "phi": 1.5, "compute": None, "transfer": [0.0]},
    "refl": {"stay": 0.0},
    "tifl": {"tau_max": 0, "interval": 1.5},
    "ucb-cs": {"gamma": 1.0},
}


def made_with(name, setting, value):
    return make_policy(name, **{**POLICIES[name].example, setting: value})


def rejects(name, setting, value):
    with pytest.raises(InvalidInput, match=rf"\b{setting}\b.* must "):
        made_with(name, setting, value)


def beyond(limit, direction):
    """Return the next number beyond a limit; direction is -1 or 1."""
    if isinstance(limit, int):
        return limit + direction
    return float(np.nextafter(limit, direction * np.inf))


@pytest.mark.parametrize("name", LIMITS)
def test_settings_at_their_limits_are_accepted_and_beyond_them_rejected(name):
    for setting, limits in LIMITS[name].items():
        for limit, direction in zip(limits, (-1, 1), strict=True):
            if limit is not None:
                assert getattr(made_with(name, setting, limit), setting) == limit
                rejects(name, setting, beyond(limit, direction))
        rejects(name, setting, np.nan)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_settings_are_rejected_and_named(name):
    for setting, value in WRONG[name].items():
        rejects(name, setting, value)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        *(("fedcs", "latency_s"), ("fedcs", "upload_s"), ("genie", "mean_speed")),
        *(("oort", "expected_s"), ("rbcs-f", "transfer")),
    ],
)
def test_settings_by_client_must_cover_all_clients(name, setting):
    policy = made_with(name, setting, [1.0] * 39)
    with pytest.raises(InvalidInput, match=f"{setting} must cover all 40 clients, got 39"):
        policy.init(40)


# --- wrappers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["genie", "fedcs", "luo", "pisces", "bsfl-max-gini"])
def test_a_wrapped_policy_keeps_the_contract(case):
    check_policy(PolicyWrapper(PolicyWrapper(CASES[case])))


def test_a_wrapper_forwards_every_method():
    policy, public = Mock(), {name for name in vars(Policy) if not name.startswith("_")}
    methods = {name for name in public if callable(getattr(Policy, name))}
    for name in methods:
        arguments = list(signature(getattr(Policy, name)).parameters)[1:]
        found = getattr(PolicyWrapper(policy), name)(*arguments)
        getattr(policy, name).assert_called_once_with(*arguments)
        assert found is getattr(policy, name).return_value or name in ("observe", "close")
    for name in public - methods:
        assert getattr(PolicyWrapper(policy), name) is getattr(policy, name)


def test_a_wrapped_policy_with_settings_by_dense_index_forgets_no_client():
    policy = PolicyWrapper(Genie(mean_speed=[0.1, 0.2, 0.3]))
    driver = PolicyDriver(policy, n_clients=3, target_responses=1)
    with pytest.raises(InvalidInput, match=r"Genie knows clients by their position \(mean_speed\)"):
        driver.engine.decide(Forget(kept=np.array([True, False, True])), 0.0)


def test_another_wrapped_policy_does_not_read_the_state(tmp_path):
    """Equal wrappers around different policies: the second starts from what is known of clients."""
    scheduler = Scheduler(PolicyWrapper(example("age")), cohort_size=2)
    scheduler.observe(dict.fromkeys(scheduler.select(["ann", "bob", "cem"]), 3.0))
    scheduler.save(tmp_path / "s")
    same = Scheduler.load(tmp_path / "s", policy=PolicyWrapper(example("age")))
    other = Scheduler.load(tmp_path / "s", policy=PolicyWrapper(example("cs-ucb")))
    assert contents(same.state) == contents(scheduler.state)
    assert set(contents(other.state)) == {"observed", "mean"}
    assert len(other.select()) == 2
