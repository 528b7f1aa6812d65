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


BAD_SETTINGS = {
    "afl": [{"drop": 1.1}, {"uniform": 1.1}, {"temperature": -0.1}],
    "age": [{"tau_max": 0}],
    "bsfl": [
        *({"alpha": -1.0}, {"alpha": np.nan}, {"alpha": "x"}, {"beta": 0}, {"beta": 1.5}),
        *({"tau_min": 0.0}, {"tau_max": -2}, {"generalization": "fair"}, {"solver": "magic"}),
    ],
    "cs-ucb": [{"tau_max": 0}, {"exploration": -1.0}],
    "cs-ucb-q": [{"beta": 1.5}, {"phi": -0.1}, {"exploration": -1.0}],
    "f3ast": [{"step": 1.5}],
    "fedcs": [{"tau_max": -1}, {"latency_s": [np.inf]}, {"upload_s": [0.0]}, {"candidates": 0}],
    "genie": [{"mean_speed": [0.5, -1.0]}],
    "luo": [{"tau_max": 0}, {"speed": -1}, {"least": 0}, {"least": 2}],
    "oort": [
        *({"tau_max": 0}, {"percentile": 101}, {"pacer_step": -5}, {"pacer_rounds": 0}),
        *({"penalty": -1}, {"clip": 2}, {"cut_off": 2}, {"explore": 2}, {"expected_s": [0.0]}),
    ],
    "pace": [{"fairness": -1.0}, {"fairness": 6.0}, {"min_participation": 1.1}, {"tau_max": 0}],
    "pisces": [{"penalty": -1}],
    "power-of-choice": [{"candidates": 0}, {"ask": "me"}],
    "rbcs-f": [
        *({"tau_max": 0.0}, {"phi": 1.0}, {"phi": -0.1}, {"ridge": 0}, {"latency_weight": -1}),
        *({"exploration": np.nan}, {"compute": None}, {"transfer": [0.0]}),
    ],
    "refl": [{"history": 1.1}, {"stay": 0}],
    "tifl": [{"tau_max": 0}, {"rounds": 0}, {"tiers": 0}, {"interval": 1.5}],
    "ucb-cs": [{"gamma": 1.0}, {"gamma": 0.0}, {"gamma": 1.5}, {"sigma": -1.0}],
}


@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_bad_settings_are_rejected_and_named(name):
    for settings in BAD_SETTINGS[name]:
        with pytest.raises(InvalidInput, match=rf"\b{next(iter(settings))}\b.* must "):
            make_policy(name, **{**POLICIES[name].example, **settings})


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        *(("fedcs", "latency_s"), ("fedcs", "upload_s"), ("genie", "mean_speed")),
        *(("oort", "expected_s"), ("rbcs-f", "transfer")),
    ],
)
def test_settings_by_client_must_cover_all_clients(name, setting):
    policy = make_policy(name, **{**POLICIES[name].example, setting: [1.0] * 39})
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
