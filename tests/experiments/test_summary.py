"""Ranking, rows and JSON of numbers that are given; and a summary of runs, by hand."""

import json
import pickle

import numpy as np
import pytest

from bsfl.estimators.fairness import gini
from bsfl.experiments import open_results, run_scenario
from bsfl.experiments.metrics import METRICS, RANKING
from bsfl.experiments.summary import summarise
from given_summary import summary
from small_scenario import parse


def test_the_fastest_is_first_and_a_policy_that_missed_the_target_last():
    made = summary(slow=[9, 8, 9], never=[1, np.inf, 1], quick=[4, 5, 4])
    assert made.ranked() == ["quick", "slow", "never"]
    assert made.interval("never", "time_to_target_s") is None
    assert made.mean("never", "reached_target") == pytest.approx(2 / 3)


def test_more_is_better_where_a_metric_says_so():
    made = summary(a=[5, 5], b=[5, 5])
    made.policies["b"]["accuracy"] += 0.1
    assert METRICS["accuracy"].better == "more"
    assert RANKING == ("time_to_target_s", "accuracy")
    assert made.ranked() == ["b", "a"]


def test_rows_are_one_per_policy_and_seed():
    rows = summary(a=[1, 2], b=[3, 4]).rows()
    assert [(r["policy"], r["seed"], r["time_to_target_s"]) for r in rows] == [
        ("a", 0, 1.0),
        ("a", 1, 2.0),
        ("b", 0, 3.0),
        ("b", 1, 4.0),
    ]


def test_json_has_null_for_what_is_not_known():
    numbers = json.loads(json.dumps(summary(a=[1, np.inf]).as_json(), allow_nan=False))
    assert numbers["policies"]["a"]["time_to_target_s"] == {
        "mean": None,
        "low": None,
        "high": None,
        "values": [1.0, None],
    }
    assert numbers["target"] == {"column": "test_accuracy", "value": 0.8, "name": "accuracy 80.0%"}


def test_the_summary_by_hand(tmp_path):
    finished = run_scenario(parse(), tmp_path, jobs=1)
    found = summarise(open_results(finished.folder))
    made = pickle.loads(pickle.dumps(found)).as_json()
    assert made == found.as_json()
    row = made["policies"]["bsfl"]
    clock, base = (
        [records["clock_s"][-1] for records in finished.records(k)] for k in ("bsfl", "plain")
    )
    assert row["total_time_s"]["mean"] == pytest.approx(np.mean(clock))
    assert row["round_speed_up"]["mean"] == pytest.approx(np.mean(np.divide(base, clock)))
    # two values: half width = 12.7062 * |a - b| / sqrt(2) / sqrt(2)
    assert row["total_time_s"]["high"] == pytest.approx(
        np.mean(clock) + 12.7062047362 * abs(clock[0] - clock[1]) / 2
    )
    counts = [np.bincount(one["cohort"].ravel(), minlength=12) for one in finished.records("bsfl")]
    assert row["gini"]["mean"] == pytest.approx(np.mean([gini(c) for c in counts]))
    least = np.mean([c.min() for c in counts])
    assert row["min_participation"]["mean"] == pytest.approx(least / 7.5)
    regret = [records["regret"].sum() for records in finished.records("bsfl")]
    assert row["regret"]["mean"] == pytest.approx(np.mean(regret))
    assert made["theorem_1_bound"] > max(regret)
    json.dumps(made, allow_nan=False)
