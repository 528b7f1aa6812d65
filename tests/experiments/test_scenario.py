"""Scenario files: every shipped one is sound, every mistake is named."""

import copy
import re

import numpy as np
import pytest

from bsfl import Scheduler
from bsfl.errors import InvalidInput
from bsfl.experiments import (
    find_scenario,
    parse_scenario,
    read_scenario,
    shipped_scenarios,
)
from bsfl.policies import POLICIES
from bsfl.rounds import BufferPlan
from bsfl.types import RoundPlan
from small_scenario import SMALL, parse


@pytest.mark.parametrize("name", shipped_scenarios())
def test_shipped_scenarios_are_sound(name):
    scenario = find_scenario(name)
    assert scenario.name == name
    clients = scenario.fleet.build(seed=3)
    for label in scenario.policies:
        scenario.policy(label, clients)


def test_the_default_policy_plays_in_the_first_scenario_of_a_newcomer():
    assert POLICIES.name_of(Scheduler(cohort_size=1).policy) in find_scenario("phones").policies


def test_what_a_scenario_says_is_built():
    scenario = parse(
        fleet__availability={"kind": "independent", "probability": 0.5},
        fleet__drift={"at": 5, "share": 0.5, "kind": "scale", "factor": 3.0, "ramp": 2},
        fleet__failures={"probability": 0.25},
        fleet__data={"mean_samples": 50, "size_sigma": 0.5, "quality": [0.5, 1.0]},
    )
    clients = scenario.fleet.build(seed=1)
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


def test_clients_depend_on_the_seed():
    spec = parse().fleet
    assert np.array_equal(spec.build(1).latencies(2, 0.0), spec.build(1).latencies(2, 0.0))
    assert not np.array_equal(spec.build(1).latencies(2, 0.0), spec.build(2).latencies(2, 0.0))


def test_a_drift_by_swapping_moves_the_share_it_says():
    scenario = parse(fleet__drift={"at": 4, "share": 0.5})
    latency = scenario.fleet.build(0).latency
    assert np.sum(latency.source != np.arange(12)) == 6
    assert sorted(latency.source) == list(range(12))


def test_a_few_clients_may_be_flaky():
    failures = {"probability": 1.0, "share": 0.25}
    scenario = parse(fleet__failures=failures)
    lost = [np.isinf(scenario.fleet.build(1).latencies(t, 0.0)) for t in range(1, 20)]
    assert np.all(lost == lost[0]), "the same clients in every round"
    assert np.sum(lost[0]) == 3, "a quarter of 12"
    other = scenario.fleet.build(2).latencies(1, 0.0)
    assert not np.array_equal(np.isinf(other), lost[0]), "others with another seed"
    with_base = parse(fleet__failures={**failures, "base": 0.25}).fleet.build(1).latency
    assert sorted(with_base.probability) == [0.25] * 9 + [1.0] * 3


def test_clients_may_live_as_a_file_or_a_week_says(tmp_path):
    (tmp_path / "lives.csv").write_text("client,start_s,end_s\na,3600,7200\n")
    part = 'kind = "intervals"\npath = "lives.csv"\nperiod_s = 86400\nstart_hour = 1.5'
    text = SMALL.replace("[objective]", f"[fleet.availability]\n{part}\n\n[objective]")
    (tmp_path / "own.toml").write_text(text)
    clients = read_scenario(tmp_path / "own.toml").build_fleet(0)
    # everyone follows the one record: at half past one they have been there for half an hour
    assert clients.online_s(0.0).tolist() == [1800.0] * 12
    assert len(clients.available(1, 1800.0)) == 0
    week = parse(fleet__availability={"kind": "week", "start_hour": 5.0}).fleet.build(0)
    assert week.availability.origin_s == 5 * 3600
    assert parse().fleet.build(0).online_s(0.0) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cohort_sise": 3}, "study.toml: unknown key 'cohort_sise'; did you mean 'cohort_size'?"),
        ({"rounds": None}, "study.toml: missing key 'rounds'"),
        ({"rounds": 0}, "study.toml: rounds must be a whole number of at least 1, got 0"),
        ({"cohort_size": 13}, "study.toml: cohort_size must be between 1 and the 12 clients"),
        (
            {"fleet__n_client": 3},
            r"study.toml \[fleet\]: unknown key 'n_client'; did you mean 'n_cl",
        ),
        ({"fleet__tau_min": 90.0}, r"\[fleet\]: tau_min must not exceed tau_max, got 90.0 > 60.0"),
        ({"fleet__tau_min": "x"}, r"\[fleet\]: tau_min must be a finite number above 0, got 'x'"),
        (
            {"fleet__latency__population": "fones"},
            r"\[fleet.latency\]: unknown population",
        ),
        (
            {"fleet__latency__sigmo": 1},
            r"\[fleet.latency\]: unknown key 'sigmo'; did you mean 'sigma'",
        ),
        ({"fleet__latency__sigma": -1}, r"\[fleet\]: sigma must be between 0 and 10"),
        (
            {"fleet__availability": {"kind": "never"}},
            r"\[fleet.availability\]: unknown availability 'never'; known are always, indep",
        ),
        ({"fleet__availability": {"kind": "recorded"}}, r"availability\]: missing key 'path'"),
        (
            {"fleet__availability": {"kind": "recorded", "path": 3}},
            "path must be the name of a file, got 3",
        ),
        (
            {"fleet__availability": {"kind": "week", "path": "x"}},
            r"\[fleet.availability\]: unknown key 'path'; known are kind, start_hour",
        ),
        (
            {"fleet__availability": {"kind": "intervals", "path": "x.csv"}},
            r"\[fleet\]: x.csv cannot be read",
        ),
        (
            {"fleet__availability": {"kind": "week", "start_hour": 25}},
            r"\[fleet\]: start_hour must be between 0 and 24, got 25",
        ),
        (
            {"fleet__availability": {"start_hour": 3}},
            "unknown key 'start_hour'; known are kind",
        ),
        (
            {"fleet__availability": {"kind": "week", "period_s": 9.0}},
            "unknown key 'period_s'; known are kind, start_hour",
        ),
        ({"fleet__drift": {"share": 0.5}}, r"\[fleet.drift\]: missing .*'at'"),
        (
            {"fleet__drift": {"at": 3, "share": 2}},
            r"\[fleet.drift\]: share must be between 0 and 1",
        ),
        (
            {"fleet__drift": {"at": 3, "share": 0.1}},
            "share must move at least 2 of the 12 clients, got 0.1",
        ),
        ({"fleet__drift": {"at": 3, "share": 0.5, "kind": "scale"}}, "needs a factor other than 1"),
        (
            {"fleet__availability": {"probability": 0.5}},
            "unknown key 'probability'; known are kind",
        ),
        (
            {"fleet__availability": {"kind": "recorded", "path": "x"}},
            "x cannot be read as an .npz or",
        ),
        ({"fleet__availability": {"kind": "phones"}}, "missing key 'probability'"),
        (
            {"fleet__availability": {"kind": "phones", "probability": 0.5}},
            "probability must be between 0 and 0.12, got 0.5",
        ),
        ({"fleet__latency": {"population": "trace"}}, "path must be the name of a file, got ''"),
        (
            {"fleet__latency": {"population": "trace", "path": 3}},
            "path must be the name of a file, got 3",
        ),
        (
            {"fleet__latency": {"population": "phones", "samples": "many"}},
            "samples must be a finite number",
        ),
        (
            {"fleet__latency": {"population": "shifted-exponential", "shift": [1.0]}},
            "shift must be a range",
        ),
        ({"fleet__latency": "phones"}, r"\[fleet.latency\]: expected a table, got 'phones'"),
        ({"fleet__data": {"quality": 0.5}}, r"quality must be a range \[low, high\], got 0.5"),
        ({"policies": 3}, "expected a table, got 3"),
        ({"policies__bsfl": 3}, r"\[policies.bsfl\]: expected a table, got 3"),
        ({"policies__plain__policy": 3}, "unknown policy 3"),
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
            {"learning": {"dataset": "linear", "split": "iid"}},
            r"\[learning\]: expected a table, got 'iid'",
        ),
        (
            {"learning": {"dataset": "linear", "split": {"kind": "dirichlet"}}},
            "missing key 'alpha'",
        ),
        ({"fleet__failures": {"p": 1}}, r"\[fleet.failures\]: unknown key 'p'"),
        ({"fleet__failures": {"share": 0.5}}, r"\[fleet.failures\]: missing key 'probability'"),
        (
            {"fleet__failures": {"probability": 2}},
            r"\[fleet.failures\]: probability must be between 0 and 1, got 2",
        ),
        (
            {"fleet__failures": {"probability": 0.5, "share": -1}},
            r"\[fleet.failures\]: share must be between 0 and 1, got -1",
        ),
        (
            {"fleet__failures": {"probability": 0.5, "base": 0.1}},
            r"\[fleet.failures\]: base is for the clients outside a share; give the share, too",
        ),
        (
            {"fleet__failures": {"probability": 0.5, "share": 0.01}},
            "share must make at least 1 of the 12 clients flaky, got 0.01",
        ),
        ({"fleet__data": {"quality": [0, 1]}}, r"\[fleet.data\]: quality must be a range within"),
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
        ({"policies": {}}, "study.toml: there must be at least one policy"),
        ({"fleet": 3}, r"\[fleet\]: expected a table, got 3"),
    ],
)
def test_mistakes_are_named_with_their_place(changes, message):
    with pytest.raises(InvalidInput, match=message):
        parse(**changes)


def test_a_genie_cannot_meet_drift():
    with pytest.raises(InvalidInput, match=r"\[policies.genie\]: genie knows one speed"):
        parse(fleet__drift={"at": 4, "share": 0.5}, policies__genie={})


def test_paths_are_relative_to_the_file(tmp_path, monkeypatch):
    (tmp_path / "log.csv").write_text("client,latency_s\na,1.5\nb,2.5\nc,3.0\n")
    text = SMALL.replace('population = "lognormal"', 'population = "trace"\npath = "log.csv"')
    (tmp_path / "own.toml").write_text(text)
    monkeypatch.chdir("/")
    scenario = read_scenario(tmp_path / "own.toml")
    assert scenario.source["fleet"]["latency"]["path"] == str(tmp_path / "log.csv")


def test_finding_scenarios(tmp_path):
    with pytest.raises(InvalidInput, match="unknown scenario 'demos'; did you mean 'demo'?"):
        find_scenario("demos")
    with pytest.raises(InvalidInput, match=r"there is no scenario file nowhere\.toml"):
        find_scenario("nowhere.toml")
    (tmp_path / "own.toml").write_text(SMALL)
    assert find_scenario(str(tmp_path / "own.toml")).name == "own"
    (tmp_path / "bad.toml").write_text("rounds = = 3")
    with pytest.raises(InvalidInput, match=r"bad\.toml: not a TOML file"):
        read_scenario(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"policies__oort": {}},
            r"\[policies.oort\]: this policy needs losses, which no client reports without \[learning\]",
        ),
        (
            {"policies__weighted": {}},
            r"\[policies.weighted\]: this policy needs the clients' samples: add \[fleet.data\]",
        ),
    ],
)
def test_a_policy_that_needs_what_no_client_reports_is_rejected(changes, message):
    with pytest.raises(InvalidInput, match=message):
        parse(**changes)


def test_a_policy_of_the_users_own_is_found_beside_the_file(tmp_path):
    (tmp_path / "rules.py").write_text("from bsfl import UniformRandom as Mine\n")
    text = SMALL + '\n[policies.mine]\npolicy = "rules.py:Mine"\n'
    (tmp_path / "study.toml").write_text(text)
    scenario = read_scenario(tmp_path / "study.toml")
    name, _ = scenario.policies["mine"]
    assert name == f"{tmp_path / 'rules.py'}:Mine"
    assert scenario.source["policies"]["mine"]["policy"] == name, "the manifest says where"


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
            "has no setting 'over_selectio'; did you mean 'over_selection'?",
        ),
        (
            {"kind": "synchronous", "over_selection": 4.1},
            "13 clients in flight are more than the 12 clients of the fleet",
        ),
        ({"kind": "synchronous", "late": "keep"}, "late must be one of apply, drop, got 'keep'"),
        ({"kind": "buffered", "buffer": 4}, "buffer must not exceed the concurrency of 3, got 4"),
        ({"kind": "buffered", "concurrency": 13}, "13 clients in flight are more than the 12"),
        ({"kind": "bufferd"}, "unknown round 'bufferd'; did you mean 'buffered'?"),
        ({"kind": 3}, "unknown round 3"),
        (1.3, "expected a table, got 1.3"),
    ],
)
def test_wrong_rounds_are_named_before_anything_runs(table, message):
    with pytest.raises(InvalidInput, match=re.escape(message)) as error:
        parse(round=table, objective=None)
    assert str(error.value).startswith("study.toml [round]: ")


@pytest.mark.parametrize(
    "table", [{"kind": "synchronous", "over_selection": 1.4}, {"kind": "buffered", "buffer": 2}]
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
    free = parse(round={"kind": "buffered", "buffer": 2, "deadline_s": 9.0}, objective=None).plan
    assert free == BufferPlan(concurrency=3, buffer=2, deadline_s=9.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning": {"dataset": "a" * 500}},
        {"learning": {"dataset": "a" * 500 + ".npz"}},
        {"policies": {"x": {"policy": "a" * 500 + ".py:X"}}},
    ],
)
def test_a_name_that_is_too_long_for_a_file_is_refused(wrong, tmp_path):
    content = copy.deepcopy(find_scenario("demo").source)
    for table, keys in wrong.items():
        content[table] |= keys
    with pytest.raises(InvalidInput, match="x.toml"):
        parse_scenario(content, name="x", file="x.toml")
    with pytest.raises(InvalidInput, match="there is no scenario file"):
        find_scenario("q" * 500 + ".toml")
