"""Scenarios: every shipped one is sound, every mistake is named, every change is checked."""

import json

import pytest

from bsfl import BSFL, Scheduler
from bsfl.errors import InvalidInput
from bsfl.experiments import parse_scenario, read_scenario, shipped_scenarios
from bsfl.policies import POLICIES
from bsfl.rounds import BufferPlan
from bsfl.types import RoundPlan
from small_scenario import parse


@pytest.mark.parametrize("name", shipped_scenarios())
def test_shipped_scenarios_are_sound_and_the_same_when_written_and_read(name):
    scenario = read_scenario(name)
    assert scenario.name == name
    clients = scenario.clients.build(seed=3)
    for label in scenario.policies:
        scenario.policy(label, clients)
    plain = json.loads(json.dumps(scenario.plain()))
    assert parse_scenario(plain, name=name, file="x") == scenario
    assert parse_scenario(plain, name=name, file="x", is_opened=True).plain() == plain


def test_the_default_policy_is_in_the_first_scenario_of_a_newcomer():
    assert POLICIES.name_of(Scheduler(cohort_size=1).policy) in read_scenario("phones").policies


def test_policies_get_the_deadline_and_the_number_of_rounds():
    scenario = parse(policies__tifl={}, learning={"dataset": "fashion-mnist-small"})
    clients = scenario.clients.build(seed=1)
    assert scenario.policy("bsfl", clients).tau_max == 60.0
    assert scenario.policy("tifl", clients).rounds == 30


def test_the_rounds_of_a_scenario():
    def plan(**table):
        return parse(round=table, objective=None).plan

    assert parse().plan == RoundPlan(
        target_responses=3, late="drop", deadline_s=60.0, lifetime_s=60.0
    )
    late = plan(kind="synchronous", over_selection=1.5, min_responses=2)
    assert (late.max_invited, late.min_responses, late.expiry_s()) == (5, 2, 120.0)
    buffered = plan(kind="buffered", buffer_size=2, deadline_s=9.0)
    assert buffered == BufferPlan(concurrency=3, buffer=2, deadline_s=9.0)
    assert plan(kind="buffered", buffer_size=2).deadline_s == 60.0


NO_SAMPLES = "this policy needs the clients' samples: add [clients.data]"
NO_LOSSES = "this policy needs losses, which no client reports without [learning]"
ALL_INVITED = ": regret is that of rounds that wait for all invited clients"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("cohort_sise", 3, ": unknown key 'cohort_sise'; did you mean 'cohort_size'?"),
        ("rounds", None, ": missing key 'rounds'"),
        ("rounds", 0, ": rounds must be a whole number of at least 1, got 0"),
        ("rounds", 10**9, ": rounds must be a whole number of at most 100,000,000"),
        ("seeds", 10**9, ": seeds must be a whole number of at most 100,000"),
        ("cohort_size", 13, ": cohort_size must be between 1 and the 12 clients"),
        ("title", 7, ": title must be a text, got 7"),
        ("title", "two\nlines", ": title must be one line of text, got 'two"),
        ("title", "\ud800", ": title must be one line of text, got '"),
        ("clients", 3, " [clients]: expected a table, got 3"),
        ("time_s", 9.0, " [objective]: regret is measured over a fixed number of rounds"),
        ("objective", 3, " [objective]: expected a table, got 3"),
        ("objective__beta", 0, " [objective]: beta must be a whole number of at least 1, got 0"),
        ("objective__beto", 1, " [objective]: unknown key 'beto'; did you mean 'beta'?"),
        ("objective__generalization", "loss", "regret cannot be measured with generalization"),
        ("policies", 3, " [policies]: expected a table, got 3"),
        ("policies__bsfl", 3, " [policies.bsfl]: a policy must be a table"),
        ("policies__plain__policy", 3, " [policies.plain]: policy must be a valid string, got 3"),
        ("policies__bsfl__alpha", -1, " [policies.bsfl]: alpha must be a finite number of at"),
        ("policies__bsfl__alfa", 1, " [policies.bsfl]: unknown key 'alfa'; did you mean 'alpha'"),
        ("policies__bslf", {}, " [policies.bslf]: unknown policy 'bslf'; did you mean 'bsfl'"),
        ("policies__oort", {}, f" [policies.oort]: {NO_LOSSES}"),
        ("policies__weighted", {}, f" [policies.weighted]: {NO_SAMPLES}"),
        ("policies__../x", {}, "a policy's label may hold letters, digits and . _ + -, got '../x'"),
        ("policies__..", {}, "a policy's label may hold letters"),
        ("policies__a\nb", {}, "a policy's label may hold letters"),
        ("policies__" + "a" * 101, {}, "a policy's label may have 100 characters, got 101"),
        ("round", {"kind": "synchronous", "over_selection": 1.4}, ALL_INVITED),
        ("round", {"kind": "buffered", "buffer_size": 2}, ALL_INVITED),
    ],
)
def test_mistakes_are_named_with_their_place(key, value, message):
    with pytest.raises(InvalidInput, match=r"^study.toml") as caught:
        parse(**{key: value})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "bufferd"}, "unknown kind 'bufferd'; did you mean 'buffered'?"),
        ({"kind": 3}, "unknown kind '3'"),
        (1.3, "expected a table, got 1.3"),
        ({"over_selection": 0.5}, "over_selection must be a finite number of at least 1, got 0.5"),
        ({"over_selectio": 1.3}, "unknown key 'over_selectio'; did you mean 'over_selection'?"),
        ({"over_selection": 4.1}, "13 clients in flight are more than the 12 clients"),
        ({"min_responses": 4}, "min_responses must not exceed the cohort_size of 3, got 4"),
        ({"late": "keep"}, "late must be one of apply, drop, got 'keep'"),
        ({"kind": "buffered", "buffer_size": 4}, "buffer_size must not exceed the concurrency"),
        ({"kind": "buffered", "concurrency": 13}, "13 clients in flight are more than the 12"),
    ],
)
def test_wrong_rounds_are_named_before_anything_runs(table, message):
    with pytest.raises(InvalidInput) as caught:
        parse(round=table, objective=None)
    assert str(caught.value).startswith(f"study.toml [round]: {message}")


def test_a_genie_cannot_follow_drift():
    with pytest.raises(InvalidInput, match=r"\[policies.genie\]: genie knows one speed"):
        parse(clients__drift={"at": 4, "share": 0.5}, policies__genie={})


def test_a_change_is_checked_as_the_file_was():
    scenario = parse()
    policies = {"random": {}, "own": BSFL(alpha=3.0)}
    longer = scenario.changed(rounds=40, seeds=None, policies=policies)
    assert (longer.name, longer.rounds, longer.seeds) == ("study", 40, 5), "None: the default"
    assert longer.policies["own"].settings["alpha"] == 3.0
    assert longer.plain()["policies"]["random"] == {"policy": "random"}
    assert (scenario.rounds, list(scenario.policies)) == (30, ["bsfl", "plain"]), "as it was"
    smaller = scenario.changed(clients=scenario.clients.changed(n_clients=5))
    assert smaller.simulated_clients(0).n_clients == 5
    for changes, message in (
        ({"rouns": 3}, "study: unknown key 'rouns'; did you mean 'rounds'?"),
        ({"cohort_size": 13}, "study: cohort_size must be between 1 and the 12 clients"),
        ({"policies": {"a": {"policy": "pac"}}}, r"study \[policies.a\]: unknown policy 'pac'"),
        ({"clients": None}, "study: missing key 'clients'"),
    ):
        with pytest.raises(InvalidInput, match=message):
            scenario.changed(**changes)
    with pytest.raises(ValueError, match="frozen"):
        scenario.rounds = 3
