"""The leaderboard: the same seeds for all, tuning with another seed, and fair columns."""

import json

import pytest

pytest.importorskip("jax", reason="training needs the extra sim")

from bsfl.errors import InvalidInput
from bsfl.experiments import open_results, read_scenario, run_scenario
from bsfl.experiments.metrics import METRICS, evaluated, find_target, time_to
from bsfl.experiments.statistics import at_same_gini
from bsfl.experiments.summary import summarise
from bsfl.policies import POLICIES, make_policy
from bsfl.studies import leaderboard as lb
from bsfl.studies.study import Effort, with_policies
from small_scenario import parse

BOARD = lb.Leaderboard(scenarios=("study",), policies=("bsfl", "random", "genie"), tune=2)
LEARNING = {"dataset": "fashion-mnist-small", "partition": {"kind": "iid", "samples": 20}}


def small(**changes):
    """Return a small scenario that trains."""
    same = {"title": "a small <suite>", "rounds": None, "time_s": 120.0, "objective": None}
    return parse(**same, learning=LEARNING, policies={"random": {}}, **changes)


@pytest.fixture(scope="module")
def scenario():
    return small()


@pytest.fixture(scope="module")
def played(scenario):
    return lb.for_leaderboard(scenario, "over-selection", None)


@pytest.fixture(scope="module")
def board(scenario, tmp_path_factory):
    folder = tmp_path_factory.mktemp("board")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lb, "CANDIDATES", {"bsfl": ({}, {"alpha": 50.0}, {"alpha": 9.0})})
        patch.setattr(lb, "read_scenario", lambda _: scenario)
        report = BOARD.play(folder, Effort(jobs=1))
        report.write(folder)
    return json.loads(json.dumps(report.numbers)), folder, report


@pytest.mark.slow
def test_every_policy_has_every_column_the_fastest_first(board):
    made, folder, report = board
    assert json.loads((folder / "summary.json").read_text()) == made
    (table,) = report.tables
    assert [column.title for column in table.columns] == [
        "policy",
        *(m.name for m in METRICS.values() if "board" in m.wide + m.short),
    ]
    assert {len(row) for row in table.rows} == {len(table.columns)}
    rows, order = made["scenarios"]["study"]["policies"], [row[0] for row in table.rows]
    assert set(order) == set(rows) == {"bsfl", "random", "genie"}
    for row in rows.values():
        assert len(row["accuracy"]["values"]) == 2, "one for each seed"
        assert 0 <= row["worst_label_accuracy"]["mean"] <= row["accuracy"]["mean"] < 1
        assert row["selection_ms"]["mean"] > 0
    times = [rows[k]["time_to_target_s"]["mean"] for k in order]
    reached = [time for time in times if time is not None]
    assert times[: len(reached)] == sorted(reached), "then policies that missed it"
    page = (folder / "report.html").read_text()
    assert "a small &lt;suite&gt;" in page
    assert "<suite>" not in page
    assert "genie *" in page
    assert (folder / "report.md").read_text().count("| bsfl |") == 1


@pytest.mark.slow
def test_tuning_tries_the_budget_with_a_seed_that_does_not_count(board, scenario):
    made, folder, _ = board
    trials = open_results(folder / "tuning" / "study")
    assert set(trials.scenario.policies) == {"bsfl.0", "bsfl.1"}, "random has nothing to tune"
    drawn = [
        one.latencies(1, 0.0).tolist()
        for one in (trials.scenario.simulated_clients(0), *map(scenario.simulated_clients, (0, 1)))
    ]
    assert drawn[0] not in drawn[1:]
    ends = {}
    for label in ("bsfl.0", "bsfl.1"):
        time = time_to(trials, label, find_target(trials))[0]
        ends[label] = (time, -evaluated(trials.records(label)[0])["test_accuracy"][-1])
    better = {"bsfl.0": {}, "bsfl.1": {"alpha": 50.0}}[min(ends, key=ends.get)]
    assert made["scenarios"]["study"]["settings"]["bsfl"] == better


@pytest.mark.slow
def test_a_second_call_computes_nothing(board, scenario, monkeypatch):
    made, folder, _ = board
    monkeypatch.setattr("bsfl.experiments.runner.run_one", None)
    monkeypatch.setattr(lb, "read_scenario", lambda _: scenario)
    monkeypatch.setattr(lb, "_run_untrained", None)
    monkeypatch.setattr(lb, "CANDIDATES", {"bsfl": ({}, {"alpha": 50.0})})
    assert BOARD.play(folder, Effort(jobs=1)).numbers == made


@pytest.mark.slow
def test_fronts_of_other_weights_or_settings_are_recomputed(board, played, tmp_path):
    points = board[0]["scenarios"]["study"]["fronts"]
    choices = [(label, alpha) for label in lb.FRONTS for alpha in lb.FRONT_ALPHAS]
    assert [(p["front"], p["alpha"]) for p in points] == choices
    for older in ({"alphas": [1.0]}, {"fronts": {}}, {"seeds": 1}, {}):
        assert lb.fronts(played, tmp_path, seeds=2, jobs=1) == points
        known = json.loads((tmp_path / "front.json").read_text())
        if older:
            cut = json.dumps({**known, **older, "points": points[:3]})
            (tmp_path / "front.json").write_text(cut)


@pytest.mark.slow
def test_a_front_is_what_its_policy_does_with_the_evaluation_seeds(board, played, tmp_path):
    points = board[0]["scenarios"]["study"]["fronts"]
    for label in ("BSFL lognormal", "genie"):
        name, settings = lb.FRONTS[label]
        one = with_policies(played, {"own": (name, {**settings, "alpha": 3.0})})
        found = summarise(run_scenario(one, tmp_path / name, jobs=1))
        (point,) = [p for p in points if p["front"] == label and p["alpha"] == 3.0]
        for key in ("mean_round_s", "gini"):
            assert point[key] == pytest.approx(found.mean("own", key))


def test_rounds_close_alike_with_seeds_that_nothing_was_chosen_with(scenario):
    waited = lb.for_leaderboard(scenario, "synchronous", "jax")
    invited = lb.for_leaderboard(scenario, "over-selection", None)
    assert waited.first_seed == invited.first_seed == lb.FIRST_SEED
    assert waited.learning.engine == "jax"
    assert (waited.plan.over_selection, invited.plan.over_selection) == (1.0, 1.3)
    assert (waited.time_s, invited.time_s) == (120.0, 60.0), "its rounds are half as long"


def test_the_genie_is_no_competitor_and_sits_out_drift(tmp_path):
    assert set(POLICIES) - set(lb.COMPETITORS) == {"genie"}
    assert not lb.can_run("genie", read_scenario("drift"))
    assert lb.can_run("genie", read_scenario("flaky"))
    moving = small(clients__drift={"at": 3, "share": 0.5})
    points = lb.fronts(moving, tmp_path, seeds=1, jobs=1)
    indices = {"BSFL as published", "BSFL lognormal", "BSFL lognormal, optimistic"}
    assert {p["front"] for p in points} == indices


def test_the_front_is_read_between_weights_and_never_beyond_its_ends(board):
    front = [(10.0, 0.1), (4.0, 0.5), (6.0, 0.7), (2.0, 0.8)]  # 6 s is beaten in both
    read = [at_same_gini(front, gini) for gini in (0.0, 0.1, 0.3, 0.7, 0.9)]
    assert read == pytest.approx([10.0, 10.0, 7.0, 4.0, 2.0])
    results = open_results(board[1] / "study")
    own = summarise(results, [(7.0, 0.0)])
    ratio = own.mean("random", "mean_round_s") / 7.0
    assert own.mean("random", "round_over_bsfl_at_gini") == pytest.approx(ratio)
    above = summarise(results, [(7.0, 1.0)]).policies["random"]
    assert "round_over_bsfl_at_gini" not in above, "no policy is as even as the end of the front"


@pytest.mark.parametrize("name", lb.BENCHMARK_SUITE)
def test_the_benchmark_suite_trains_and_has_a_quick_version(name):
    whole = read_scenario(name)
    small = lb.quick(whole)
    assert (whole.clients.n_clients, whole.cohort_size, whole.seeds) == (500, 25, 5)
    assert whole.learning.target_accuracy is not None
    assert small.seeds == lb.QUICK_SEEDS
    if whole.clients.drift:
        assert small.clients.drift.at <= small.rounds // 2 + 1, "the change still comes halfway"
    else:
        assert small.time_s == whole.time_s / lb.QUICK_PART


def test_all_policies_that_can_be_tuned_have_the_same_number_of_candidates():
    fixed = {"random", "weighted", "age"}
    assert set(lb.CANDIDATES) == set(lb.COMPETITORS) - fixed - {"pace"}, "pace needs no setting"
    for name in fixed:
        assert set(POLICIES.settings(name)) <= {"tau_max"}
    for name, (first, *others) in lb.CANDIDATES.items():
        assert (first, len(others)) == ({}, 3), "the defaults come first"
        deadline = {"tau_max": 30.0} if "tau_max" in POLICIES.settings(name) else {}
        for settings in others:
            make_policy(name, **deadline, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policies": ("nope",)}, "^unknown policy 'nope'; known are bsfl, pace"),
        ({"tune": 9}, "tune must be between 1 and 4, got 9"),
        ({"rounds": "sometimes"}, "rounds must be one of"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(InvalidInput, match=message):
        lb.Leaderboard(**settings)


@pytest.mark.parametrize(("name", "quick"), [("phones", False), ("linear-iid", True)])
def test_a_scenario_that_trains_no_classifier_is_rejected_at_once(name, quick, tmp_path):
    board = lb.Leaderboard(scenarios=(name,), policies=("random",))
    with pytest.raises(InvalidInput, match=f"{name} trains no classifier"):
        board.play(tmp_path / "out", Effort(quick=quick))
    assert not (tmp_path / "out").exists()
