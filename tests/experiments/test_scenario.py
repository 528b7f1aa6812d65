"""Scenarios: every shipped one is sound, every mistake is named, every change is checked."""

import json
import re

import numpy as np
import pytest

from bsfl import BSFL, Scheduler
from bsfl.errors import InvalidInput
from bsfl.experiments import (
    parse_scenario,
    read_scenario,
    shipped_scenarios,
)
from bsfl.policies import POLICIES
from bsfl.rounds import BufferPlan
from bsfl.types import RoundPlan
from small_scenario import parse


@pytest.mark.parametrize("name", shipped_scenarios())
def test_shipped_scenarios_are_sound(name):
    scenario = read_scenario(name)
    assert scenario.name == name
    clients = scenario.clients.build(seed=3)
    for label in scenario.policies:
        scenario.policy(label, clients)


def test_the_default_policy_plays_in_the_first_scenario_of_a_newcomer():
    assert POLICIES.name_of(Scheduler(cohort_size=1).policy) in read_scenario("phones").policies


def test_what_a_scenario_says_is_built():
    scenario = parse(
        clients__availability={"kind": "independent", "probability": 0.5},
        clients__drift={"at": 5, "share": 0.5, "kind": "scale", "factor": 3.0, "ramp": 2},
        clients__failures={"probability": 0.25},
        clients__data={"mean_samples": 50, "size_sigma": 0.5, "quality": [0.5, 1.0]},
    )
    clients = scenario.clients.build(seed=1)
    assert clients.n_clients == 12
    assert 0 < len(clients.available(1, 0.0)) < 12
    assert np.isinf(np.concatenate([clients.latencies(t, 0.0) for t in range(1, 20)])).any()
    assert clients.latency.phase(1) != clients.latency.phase(9)
    assert clients.samples.mean() == pytest.approx(50, rel=0.05)
    assert np.all((clients.quality >= 0.5) & (clients.quality <= 1.0))
    assert scenario.policy("bsfl", clients).tau_max == 60.0, "the deadline is the server's own"
    learning = {"dataset": "fashion-mnist-small"}
    planned = parse(policies__tifl={}, learning=learning)
    assert planned.policy("tifl", clients).rounds == planned.rounds, "and how long it plans for"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cohort_sise": 3}, "study.toml: unknown key 'cohort_sise'; did you mean 'cohort_size'?"),
        ({"rounds": None}, "study.toml: missing key 'rounds'"),
        ({"rounds": 0}, "study.toml: rounds must be a whole number of at least 1, got 0"),
        ({"cohort_size": 13}, "study.toml: cohort_size must be between 1 and the 12 clients"),
        (
            {"clients__n_client": 3},
            r"study.toml \[clients\]: unknown key 'n_client'; did you mean 'n_cl",
        ),
        (
            {"clients__tau_min": 90.0},
            r"\[clients\]: tau_min must not exceed tau_max, got 90.0 > 60.0",
        ),
        (
            {"clients__tau_min": "x"},
            r"\[clients\]: tau_min must be a finite number above 0, got 'x'",
        ),
        (
            {"clients__latency__population": "fones"},
            r"\[clients.latency\]: unknown population",
        ),
        (
            {"clients__latency": {"popualtion": "lognormal"}},
            r"\[clients.latency\]: unknown key 'popualtion'; did you mean 'population'",
        ),
        (
            {"clients__latency__sigmo": 1},
            r"\[clients.latency\]: unknown key 'sigmo'; did you mean 'sigma'",
        ),
        ({"clients__latency__sigma": -1}, r"\[clients.latency\]: sigma must be between 0 and 10"),
        (
            {"clients__availability": {"kind": "never"}},
            r"\[clients.availability\]: unknown availability 'never'; known are always, indep",
        ),
        ({"clients__availability": {"kind": "recorded"}}, r"availability\]: missing key 'path'"),
        (
            {"clients__availability": {"kind": "recorded", "path": 3}},
            "path must be the name of a file, got 3",
        ),
        (
            {"clients__availability": {"kind": "week", "path": "x"}},
            r"\[clients.availability\]: unknown key 'path'; known are kind, start_hour",
        ),
        (
            {"clients__availability": {"kind": "intervals", "path": "x.csv"}},
            r"\[clients.availability\]: x.csv cannot be read",
        ),
        (
            {"clients__availability": {"kind": "week", "start_hour": 25}},
            r"\[clients.availability\]: start_hour must be between 0 and 24, got 25",
        ),
        (
            {"clients__availability": {"start_hour": 3}},
            "unknown key 'start_hour'; known are kind",
        ),
        (
            {"clients__availability": {"kind": "week", "period_s": 9.0}},
            "unknown key 'period_s'; known are kind, start_hour",
        ),
        ({"clients__drift": {"share": 0.5}}, r"\[clients.drift\]: missing .*'at'"),
        (
            {"clients__drift": {"at": 3, "share": 2}},
            r"\[clients.drift\]: share must be between 0 and 1",
        ),
        (
            {"clients__drift": {"at": 3, "share": 0.1}},
            "share must be at least 2 of the 12 clients, got 0.1",
        ),
        (
            {"clients__drift": {"at": 3, "share": 0.5, "kind": "scale"}},
            r"\[clients.drift\]: missing key 'factor'",
        ),
        (
            {"clients__availability": {"probability": 0.5}},
            "unknown key 'probability'; known are kind",
        ),
        (
            {"clients__availability": {"kind": "recorded", "path": "x"}},
            "x cannot be read as an .npz or",
        ),
        ({"clients__availability": {"kind": "phones"}}, "missing key 'probability'"),
        (
            {"clients__availability": {"kind": "phones", "probability": 0.5}},
            "probability must be between 0 and 0.12, got 0.5",
        ),
        ({"clients__latency": {"population": "trace"}}, "missing key 'path'"),
        (
            {"clients__latency": {"population": "trace", "path": 3}},
            "path must be the name of a file, got 3",
        ),
        (
            {"clients__latency": {"population": "phones", "samples": "many"}},
            "samples must be a finite number",
        ),
        (
            {"clients__latency": {"population": "shifted-exponential", "shift": [1.0]}},
            "shift must be a range",
        ),
        ({"clients__latency": "phones"}, r"\[clients.latency\]: expected a table, got 'phones'"),
        ({"clients__data": {"quality": 0.5}}, r"quality must be a range \[low, high\], got 0.5"),
        ({"policies": 3}, "expected a table, got 3"),
        ({"policies__bsfl": 3}, r"\[policies.bsfl\]: a policy must be a table, .* got 3"),
        (
            {"policies__plain__policy": 3},
            r"\[policies.plain\]: policy must be a valid string, got 3",
        ),
        ({"title": 7}, "study.toml: title must be a text, got 7"),
        (
            {"time_s": 9.0},
            r"\[objective\]: regret is measured over a fixed number of rounds: give rounds and no time_s",
        ),
        (
            {"objective__generalization": "loss"},
            "regret cannot be measured with generalization = 'loss'",
        ),
        (
            {"learning": {"dataset": "linear", "partition": "iid"}},
            r"\[learning.partition\]: expected a table, got 'iid'",
        ),
        (
            {"learning": {"dataset": "linear", "partition": {"kind": "dirichlet"}}},
            "missing key 'alpha'",
        ),
        ({"clients__failures": {"p": 1}}, r"\[clients.failures\]: unknown key 'p'"),
        ({"clients__failures": {"share": 0.5}}, r"\[clients.failures\]: missing key 'probability'"),
        (
            {"clients__failures": {"probability": 2}},
            r"\[clients.failures\]: probability must be between 0 and 1, got 2",
        ),
        (
            {"clients__failures": {"probability": 0.5, "share": -1}},
            r"\[clients.failures\]: share must be between 0 and 1, got -1",
        ),
        (
            {"clients__failures": {"probability": 0.5, "base": 0.1}},
            r"\[clients.failures\]: base is for the clients outside a share; give the share, too",
        ),
        (
            {"clients__failures": {"probability": 0.5, "share": 0.01}},
            "share must be at least 1 of the 12 clients, got 0.01",
        ),
        (
            {"clients__data": {"quality": [0, 1]}},
            r"\[clients.data\]: quality must be a range within",
        ),
        (
            {"objective__beta": 0},
            r"\[objective\]: beta must be a whole number of at least 1, got 0",
        ),
        ({"policies__bsfl__alpha": -1}, r"\[policies.bsfl\]: alpha must be a finite number of at"),
        (
            {"policies__bsfl__alfa": 1},
            r"\[policies.bsfl\]: unknown key 'alfa'; did you mean 'alpha'",
        ),
        ({"policies__bslf": {}}, r"\[policies.bslf\]: unknown policy 'bslf'; did you mean 'bsfl'"),
        (
            {"policies": {"../x": {}}},
            "a policy's label may hold letters, digits and . _ . -, got '../x'",
        ),
        ({"policies": {"..": {}}}, "a policy's label may hold letters"),
        ({"clients": 3}, r"\[clients\]: expected a table, got 3"),
    ],
)
def test_mistakes_are_named_with_their_place(changes, message):
    with pytest.raises(InvalidInput, match=message):
        parse(**changes)


def test_a_genie_cannot_meet_drift():
    with pytest.raises(InvalidInput, match=r"\[policies.genie\]: genie knows one speed"):
        parse(clients__drift={"at": 4, "share": 0.5}, policies__genie={})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"policies__oort": {}},
            r"\[policies.oort\]: this policy needs losses, which no client reports without \[learning\]",
        ),
        (
            {"policies__weighted": {}},
            r"\[policies.weighted\]: this policy needs the clients' samples: add \[clients.data\]",
        ),
    ],
)
def test_a_policy_that_needs_what_no_client_reports_is_rejected(changes, message):
    with pytest.raises(InvalidInput, match=message):
        parse(**changes)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"kind": "synchronous", "over_selection": 0.5},
            "over_selection must be a finite number of at least 1, got 0.5",
        ),
        (
            {"kind": "synchronous", "min_responses": 4},
            "min_responses must not exceed the cohort_size of 3, got 4",
        ),
        (
            {"kind": "synchronous", "over_selectio": 1.3},
            "unknown key 'over_selectio'; did you mean 'over_selection'?",
        ),
        (
            {"kind": "synchronous", "over_selection": 4.1},
            "13 clients in flight are more than the 12 clients",
        ),
        ({"kind": "synchronous", "late": "keep"}, "late must be one of apply, drop, got 'keep'"),
        (
            {"kind": "buffered", "buffer_size": 4},
            "buffer_size must not exceed the concurrency of 3, got 4",
        ),
        ({"kind": "buffered", "concurrency": 13}, "13 clients in flight are more than the 12"),
        ({"kind": "bufferd"}, "unknown kind 'bufferd'; did you mean 'buffered'?"),
        ({"kind": 3}, "unknown kind '3'"),
        (1.3, "expected a table, got 1.3"),
    ],
)
def test_wrong_rounds_are_named_before_anything_runs(table, message):
    with pytest.raises(InvalidInput, match=re.escape(message)) as error:
        parse(round=table, objective=None)
    assert str(error.value).startswith("study.toml [round]: ")


@pytest.mark.parametrize(
    "table",
    [{"kind": "synchronous", "over_selection": 1.4}, {"kind": "buffered", "buffer_size": 2}],
)
def test_regret_is_that_of_rounds_that_wait_for_everyone(table):
    with pytest.raises(InvalidInput, match="regret is that of rounds that wait for all"):
        parse(round=table)


def test_the_rounds_of_a_scenario():
    assert parse().plan == RoundPlan(
        target_responses=3, late="drop", deadline_s=60.0, lifetime_s=60.0
    )
    late = parse(
        round={"kind": "synchronous", "over_selection": 1.5, "min_responses": 2}, objective=None
    ).plan
    assert (late.max_invited, late.min_responses, late.expiry_s()) == (5, 2, 120.0)
    free = parse(
        round={"kind": "buffered", "buffer_size": 2, "deadline_s": 9.0}, objective=None
    ).plan
    assert free == BufferPlan(concurrency=3, buffer=2, deadline_s=9.0)


def test_a_change_is_checked_as_the_file_was():
    scenario = parse()
    longer = scenario.changed(
        rounds=40, seeds=None, policies={"random": {}, "own": BSFL(alpha=3.0)}
    )
    assert (longer.name, longer.rounds, longer.seeds) == ("study", 40, 5), "None: the default"
    assert longer.policies["own"].settings["alpha"] == 3.0
    assert longer.plain()["policies"]["random"] == {"policy": "random"}
    assert (scenario.rounds, list(scenario.policies)) == (30, ["bsfl", "plain"]), "as it was"
    smaller = scenario.changed(clients=scenario.clients.changed(n_clients=5))
    assert smaller.simulated_clients(0).n_clients == 5
    for changes, message in (
        ({"rouns": 3}, "study: unknown key 'rouns'; did you mean 'rounds'?"),
        ({"cohort_size": 13}, "study: cohort_size must be between 1 and the 12 clients"),
        (
            {"policies": {"a": {"policy": "pac"}}},
            r"study \[policies.a\]: unknown policy 'pac'; did",
        ),
        ({"clients": None}, "study: missing key 'clients'"),
    ):
        with pytest.raises(InvalidInput, match=message):
            scenario.changed(**changes)
    with pytest.raises(ValueError, match="frozen"):
        scenario.rounds = 3


def test_what_is_written_down_is_the_same_scenario():
    for name in shipped_scenarios():
        scenario = read_scenario(name)
        plain = json.loads(json.dumps(scenario.plain()))
        assert parse_scenario(plain, name=name, file="x") == scenario
        assert parse_scenario(plain, name=name, file="x", is_opened=True).plain() == plain
