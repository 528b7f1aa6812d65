"""The leaderboard: same worlds for all, tuning in another one, and fair columns."""

import json

import numpy as np
import pytest

pytest.importorskip("jax", reason="training needs the extra sim")

from bsfl.errors import InvalidInput
from bsfl.policies import POLICIES, make_policy
from bsfl.runs.results import Results, open_results
from bsfl.runs.run import run_scenario
from bsfl.scenario.scenario import find_scenario, parse_scenario
from bsfl.studies import leaderboard as lb
from bsfl.studies.leaderboard_page import COLUMNS, cells, markdown, ranked, write_leaderboard

CONTENT = {
    "title": "a small <arena>",
    "time_s": 120.0,
    "cohort_size": 3,
    "seeds": 2,
    "fleet": {
        "n_clients": 15,
        "tau_min": 1.0,
        "tau_max": 60.0,
        "latency": {"population": "lognormal"},
    },
    "learning": {"dataset": "fashion-mnist-small", "split": {"kind": "iid", "samples": 20}},
    "policies": {"random": {}},
}


@pytest.fixture(scope="module")
def scenario():
    return parse_scenario(CONTENT, name="small", file="small.toml")


@pytest.fixture(scope="module")
def board(scenario, tmp_path_factory):
    folder = tmp_path_factory.mktemp("board")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lb, "CANDIDATES", {"bsfl": ({}, {"alpha": 50.0}, {"alpha": 9.0})})
        made = lb.run_leaderboard(
            [scenario], folder, policies=["bsfl", "random", "genie"], tune=2, jobs=1
        )
    write_leaderboard(made, folder)
    return made, folder


@pytest.mark.slow
def test_every_policy_has_every_column(board):
    made, folder = board
    rows = made["scenarios"]["small"]["policies"]
    assert set(rows) == {"bsfl", "random", "genie"}
    for row in rows.values():
        assert 0 < row["accuracy"]["mean"] < 1
        assert 0 <= row["worst_label_accuracy"]["mean"] <= row["accuracy"]["mean"]
        assert row["selection_s"] > 0
    assert rows["bsfl"]["blind"]
    assert not rows["genie"]["blind"]
    assert json.loads((folder / "leaderboard.json").read_text()) == made


@pytest.mark.slow
def test_tuning_tries_the_budget_in_a_world_that_does_not_count(board, scenario):
    made, folder = board
    trials = open_results(folder / "tuning" / "small")
    assert set(trials.scenario.policies) == {"bsfl.0", "bsfl.1"}, "random has nothing to tune"
    tuning_world = trials.scenario.world(0).latencies(1)
    for seed in range(2):
        assert not np.array_equal(tuning_world, scenario.world(seed).latencies(1))
    ends = {}
    for label in ("bsfl.0", "bsfl.1"):
        time = lb.time_to(trials, label, lb.find_target(trials))[0]
        ends[label] = (time, -lb.evaluated(trials.records(label)[0])["test_accuracy"][-1])
    better = min(ends, key=ends.get)
    assert made["scenarios"]["small"]["settings"]["bsfl"] == (
        {} if better == "bsfl.0" else {"alpha": 50.0}
    )


@pytest.mark.slow
def test_accuracy_is_compared_at_equal_time(board):
    _, folder = board
    results = open_results(folder / "small")
    times = lb.equal_times(results)
    for seed in range(2):
        ends = [results.records(k)[seed]["clock_s"][-1] for k in results.scenario.policies]
        assert times[seed] == min(ends)
    values = lb.value_at(results, "random", "test_accuracy", times)
    for value, records, time_s in zip(values, results.records("random"), times, strict=True):
        seen = lb.evaluated(records)
        assert value == seen["test_accuracy"][seen["clock_s"] <= time_s][-1]


@pytest.mark.slow
def test_a_second_call_computes_nothing(board, scenario, monkeypatch):
    made, folder = board
    monkeypatch.setattr("bsfl.runs.run.run_one", None)
    monkeypatch.setattr(lb, "_played", None)
    monkeypatch.setattr(lb, "CANDIDATES", {"bsfl": ({}, {"alpha": 50.0})})
    again = lb.run_leaderboard(
        [scenario], folder, policies=["bsfl", "random", "genie"], tune=2, jobs=1
    )
    assert again == made


@pytest.mark.slow
def test_the_page_and_the_tables_show_it(board):
    made, folder = board
    page = (folder / "leaderboard.html").read_text()
    assert "a small &lt;arena&gt;" in page
    assert "<arena>" not in page
    assert "genie *" in page
    text = markdown(made)
    assert text.count("| bsfl |") == 1
    order = [label for label, _ in ranked(made["scenarios"]["small"]["policies"])]
    lines = [line.split()[1] for line in text.splitlines() if line.startswith("| ")]
    assert [word for word in lines if word in order] == order
    times = [made["scenarios"]["small"]["policies"][k]["time_to_target_s"] for k in order]
    known = [t["mean"] for t in times if t]
    assert known == sorted(known)
    assert all(
        len(cells(k, r)) == len(COLUMNS) for k, r in made["scenarios"]["small"]["policies"].items()
    )


@pytest.mark.slow
def test_fronts_of_other_weights_or_settings_are_played_again(board, scenario, tmp_path):
    made, _ = board
    points = made["scenarios"]["small"]["fronts"]
    choices = [(label, alpha) for label in lb.FRONTS for alpha in lb.FRONT_ALPHAS]
    assert [(p["front"], p["alpha"]) for p in points] == choices
    for older in ({"alphas": [1.0]}, {"fronts": {}}, {"seeds": 1}):
        assert lb.fronts(scenario, tmp_path, seeds=2, jobs=1) == points
        known = json.loads((tmp_path / "front.json").read_text())
        (tmp_path / "front.json").write_text(json.dumps({**known, **older, "points": points[:3]}))
    assert lb.fronts(scenario, tmp_path, seeds=2, jobs=1) == points


@pytest.mark.slow
def test_a_front_is_what_its_policy_does_in_the_worlds_that_count(board, scenario, tmp_path):
    points = board[0]["scenarios"]["small"]["fronts"]
    for label in ("BSFL lognormal", "genie"):
        name, settings = lb.FRONTS[label]
        one = lb.with_policies(scenario, {"own": (name, {**settings, "alpha": 3.0})})
        results = run_scenario(one, tmp_path / name, jobs=1)
        found = lb.summarise(results)["policies"]["own"]
        (point,) = [p for p in points if p["front"] == label and p["alpha"] == 3.0]
        assert point["mean_round_s"] == pytest.approx(found["mean_round_s"]["mean"])
        assert point["gini"] == pytest.approx(found["gini"]["mean"])


def test_the_genie_is_no_competitor_and_sits_out_drift(tmp_path):
    assert "genie" in POLICIES
    assert set(POLICIES) - set(lb.COMPETITORS) == {"genie"}
    drift = CONTENT | {"fleet": CONTENT["fleet"] | {"drift": {"at": 3, "share": 0.5}}}
    moving = parse_scenario(drift, name="moving", file="moving.toml")
    points = lb.fronts(moving, tmp_path, seeds=1, jobs=1)
    indices = {"BSFL as printed", "BSFL lognormal", "BSFL lognormal, optimistic"}
    assert {p["front"] for p in points} == indices


def test_the_front_is_read_between_weights_and_never_beyond_its_even_end():
    told = {"front": "genie", "gini": 0.1, "mean_round_s": 1.0}
    front = [told] + [
        {"front": "BSFL as printed", "gini": g, "mean_round_s": s}
        for g, s in ((0.1, 10.0), (0.5, 4.0), (0.7, 6.0), (0.8, 2.0))
    ]
    assert lb.round_at_gini(front, 0.05) is None
    assert lb.round_at_gini(front, 0.1) == 10.0
    assert lb.round_at_gini(front, 0.3) == pytest.approx(7.0)
    assert lb.round_at_gini(front, 0.5) == 4.0
    assert lb.round_at_gini(front, 0.7) == 4.0, "6 s is beaten in both"
    assert lb.round_at_gini(front, 0.9) == 2.0


@pytest.mark.parametrize("name", lb.ARENA)
def test_the_arena_trains_and_has_a_quick_version(name):
    whole = find_scenario(name)
    small = lb.quick(whole)
    assert (whole.fleet.n_clients, whole.cohort_size, whole.seeds) == (500, 25, 5)
    assert whole.learning.target_accuracy is not None
    assert small.seeds == lb.QUICK_SEEDS
    if whole.fleet.drift:
        assert small.fleet.drift.at <= small.rounds // 2 + 1, "the change still comes halfway"
    else:
        assert small.time_s == whole.time_s / lb.QUICK_PART


def test_the_genie_stays_away_from_drift():
    assert not lb.can_play("genie", find_scenario("drift"))
    assert lb.can_play("genie", find_scenario("flaky"))
    assert lb.can_play("bsfl", find_scenario("drift"))


def test_results_without_timing_say_so(scenario, tmp_path):
    assert Results(tmp_path, scenario, 1).selection_s("random") is None


def test_everyone_who_can_be_tuned_has_the_same_number_of_tries():
    fixed = {"random", "weighted", "age"}
    assert set(lb.CANDIDATES) == set(lb.COMPETITORS) - fixed
    for name in fixed:
        assert set(POLICIES.settings(name)) <= {"tau_max"}
    for name, tries in lb.CANDIDATES.items():
        assert len(tries) == 4
        assert tries[0] == {}, "the defaults come first"
        told = {"tau_max": 30.0} if "tau_max" in POLICIES.settings(name) else {}
        for settings in tries:
            make_policy(name, **told, **settings)


@pytest.mark.parametrize("name", ["phones", "linear-iid"])
def test_a_scenario_that_trains_no_classifier_is_refused_at_once(name, tmp_path):
    for one in (find_scenario(name), lb.quick(find_scenario(name))):
        with pytest.raises(InvalidInput, match=f"{name} trains no classifier"):
            lb.run_leaderboard([one], tmp_path / "out", policies=["random"])
    assert not (tmp_path / "out").exists()
