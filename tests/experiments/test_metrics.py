"""Metrics of records that are given, by hand; and what METRICS promises about itself."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("joblib", reason="experiments need the extra sim")

from bsfl.experiments import run_scenario
from bsfl.experiments.metrics import (
    METRICS,
    RANKING,
    RANKING_UNTRAINED,
    Metric,
    PolicyRuns,
    Target,
    at_equal_times,
    at_the_end,
    baseline,
    find_target,
    time_to,
)
from bsfl.experiments.summary import summarise
from small_scenario import parse

NUMBERS = ("duration_s", "clock_s", "regret", "test_loss", "test_accuracy", "worst_label_accuracy")
RECORD = [("n_timeouts", "u4"), ("kept", "i4", (2,)), *((name, "f8") for name in NUMBERS)]
KEPT = [(0, 1), (0, 2), (0, 1), (0, 1)]
"""Participations of clients 0 to 3: 4, 3, 1 and 0."""


def run(durations_s, accuracy=(), losses=()):
    """Return the records of one run; the model is not evaluated where accuracy is None."""
    records = np.zeros(len(durations_s), dtype=RECORD)
    records["duration_s"], records["clock_s"] = durations_s, np.cumsum(durations_s)
    records["regret"], records["kept"] = 2.0, KEPT[: len(records)]
    if accuracy:
        records["test_accuracy"] = np.array(accuracy, float)
        records["test_loss"] = losses or 1.0 - records["test_accuracy"]
    return records


class Runs:
    """Results in memory: what metrics read of bsfl.experiments.Results."""

    def __init__(self, runs, **scenario):
        self.runs, self.seeds = runs, len(next(iter(runs.values())))
        self.scenario = SimpleNamespace(
            policies={k: SimpleNamespace(name=k) for k in runs},
            clients=SimpleNamespace(n_clients=4),
            cohort_size=2,
            rounds=4,
            time_s=np.inf,
            objective=None,
            learning=None,
        )
        vars(self.scenario).update(scenario)
        self.scenario.is_timed = np.isfinite(self.scenario.time_s)

    def records(self, label):
        return self.runs[label]

    def runs_of(self, label):
        """Every client is always available: 2 of 4 clients take part in a round."""
        return [
            SimpleNamespace(records=one, fair_count=np.full(4, len(one) * 0.5))
            for one in self.runs[label]
        ]

    def cumulative(self, label, name):
        return np.cumsum([records[name] for records in self.runs[label]], axis=1)

    def selection_s(self, label):
        return [0.002] * self.seeds


def measured(results, label, target=None):
    """Return the metrics of a policy that have numbers."""
    values = {k: m.measure(PolicyRuns(results, label, target)) for k, m in METRICS.items()}
    return {k: np.asarray(v).tolist() for k, v in values.items() if v is not None}


def test_times_and_participations_by_hand():
    results = Runs({"random": [run([4, 4, 4, 8])], "mine": [run([1, 2, 3, 4])]})
    found = measured(results, "mine")
    assert found["total_time_s"] == [10.0]
    assert found["mean_round_s"] == [2.5]
    assert found["round_speed_up"] == [2.0], "5 s a round over 2.5 s"
    assert found["round_p50_s"] == [2.5]
    assert found["selection_ms"] == [2.0]
    # 8 participations, so 2 are fair; Gini = sum of |a - b| over all pairs / (2 n^2 mean)
    differences = sum(abs(a - b) for a in (4, 3, 1, 0) for b in (4, 3, 1, 0))
    assert found["gini"] == pytest.approx([differences / (2 * 16 * 2)])
    assert (found["min_participation"], found["max_participation"]) == ([0.0], [2.0])
    untrained = {"accuracy", "final_accuracy", "time_to_target_s", "target_speed_up", "regret"}
    assert not untrained & set(found)
    assert "rounds" not in found, "all run for as many"


def test_regret_that_grows_linearly_has_the_exponent_1():
    results = Runs({"mine": [run([1, 1, 1, 1])]}, objective=SimpleNamespace(generalization=""))
    found = measured(results, "mine")
    assert found["regret"] == [8.0]
    assert found["regret_exponent"] == pytest.approx([1.0])
    assert found["early_regret_exponent"] == pytest.approx([1.0])


def test_the_quality_at_the_end_and_at_equal_time_differ():
    """The fast policy ends after 4 s, when the other has seen its second evaluation."""
    slow = run([2, 2, 2, 2], accuracy=[0.1, 0.5, 0.6, 0.9])
    fast = run([1, 1, 1, 1], accuracy=[0.2, 0.6, 0.7, 0.8])
    results = Runs({"random": [slow], "mine": [fast]})
    target = Target("test_accuracy", 0.5)
    own, base = (measured(results, label, target) for label in ("mine", "random"))
    assert (base["final_accuracy"], base["accuracy"]) == ([0.9], [0.5])
    assert (own["final_accuracy"], own["accuracy"]) == ([0.8], [0.8])
    assert base["final_loss"] == pytest.approx([0.1])
    assert (base["time_to_target_s"], own["time_to_target_s"]) == ([4.0], [2.0])
    assert own["target_speed_up"] == [2.0]
    assert own["round_speed_up"] == [2.0]


def test_rounds_without_an_evaluation_are_passed():
    accuracy = [0.5, np.nan, 0.7, np.nan]
    results = Runs({"mine": [run([1, 1, 1, 1], accuracy=accuracy)]})
    assert at_the_end(results, "mine", "test_accuracy").tolist() == [0.7]
    assert at_equal_times(results, "mine", "test_accuracy").tolist() == [0.7]
    assert time_to(results, "mine", Target("test_accuracy", 0.6)).tolist() == [3.0]
    assert time_to(results, "mine", Target("test_loss", 0.31)).tolist() == [3.0]


def test_a_target_that_is_missed_has_no_speed_up():
    runs = {
        "random": [run([1, 1], accuracy=[0.1, 0.2])] * 2,
        "mine": [run([1, 1], accuracy=[0.1, 0.5]), run([1, 1], accuracy=[0.1, 0.2])],
    }
    found = measured(Runs(runs), "mine", Target("test_accuracy", 0.5))
    assert found["time_to_target_s"] == [2.0, np.inf]
    assert found["reached_target"] == [1.0, 0.0]
    assert "target_speed_up" not in found


def test_every_policy_can_reach_the_target():
    runs = {"good": [run([1], accuracy=[0.9])], "bad": [run([1], accuracy=[0.5])]}
    free = SimpleNamespace(target_accuracy=None)
    assert find_target(Runs(runs, learning=free)) == Target("test_accuracy", 0.485)  # 0.97 x 0.5
    given = SimpleNamespace(target_accuracy=0.8)
    assert str(find_target(Runs(runs, learning=given))) == "accuracy 80.0%"
    ends = {"good": 0.2, "bad": 0.3, "diverged": np.inf}
    losses = {label: [run([1], accuracy=[np.nan], losses=[end])] for label, end in ends.items()}
    assert find_target(Runs(losses, learning=free)) == Target("test_loss", 0.6)  # 2 x 0.3


def test_the_baseline_is_random_selection_or_else_weighted():
    sizes = {"mean_samples": 100}
    both = {"a": {"policy": "weighted"}, "b": {"policy": "random"}}
    assert baseline(parse(policies=both, clients__data=sizes)) == "b"
    assert baseline(parse(policies={"a": both["a"]}, clients__data=sizes)) == "a"
    assert baseline(parse(policies={"c": {"policy": "age"}})) is None


def test_fair_numbers_follow_the_weights_of_the_objective():
    """With the weights 4, 2, 1, 1 and 8 participations these are the fair numbers, too."""
    clients = SimpleNamespace(significance=np.array([4.0, 2.0, 1.0, 1.0]))
    objective = SimpleNamespace(generalization="weighted")
    results = Runs({"mine": [run([1, 1, 1, 1])]}, objective=objective)
    results.simulated_clients = lambda index: clients
    found = measured(results, "mine")
    assert (found["min_participation"], found["max_participation"]) == ([0.0], [1.5]), "0/1, 3/2"


def test_metrics_describe_themselves_and_a_new_one_is_a_new_entry(tmp_path, monkeypatch):
    assert [metric.name for metric in METRICS.values()] == list(METRICS)
    for metric in METRICS.values():
        assert metric.about
        views = [*metric.wide.split(), *metric.short.split()]
        assert len(set(views)) == len(views)
        assert set(views) <= {"report", "selection", "training", "leaderboard", "top"}
    assert {*RANKING, *RANKING_UNTRAINED} <= set(METRICS)
    longest = Metric(
        "longest_round_s", "", "less", lambda of: [r["duration_s"].max() for r in of.runs], "it"
    )
    monkeypatch.setitem(METRICS, "longest_round_s", longest)
    results = run_scenario(parse(), tmp_path, jobs=1)
    expected = [records["duration_s"].max() for records in results.records("bsfl")]
    assert summarise(results).policies["bsfl"]["longest_round_s"].tolist() == expected


def test_the_participation_ratio_is_that_of_the_scheduler():
    """Client 3 was available for one round of the four, client 2 for none in which it counts."""
    runs = Runs({"a": [run([1.0, 2.0, 3.0, 4.0])]})
    fair = np.array([2.0, 2.0, 0.5, 1.0])
    runs.runs_of = lambda label: [SimpleNamespace(records=runs.runs[label][0], fair_count=fair)]
    of = PolicyRuns(runs, "a", None)
    assert METRICS["min_participation"].measure(of).tolist() == [0 / 1.0]
    assert METRICS["max_participation"].measure(of).tolist() == [4 / 2.0]
