"""Ranking and verdict of numbers that are given; tests of runs check how they are measured."""

import numpy as np
import pytest

from bsfl.analysis.metrics import METRICS, RANKING
from bsfl.analysis.summary import Summary
from bsfl.analysis.tables import summary_table
from bsfl.analysis.target import Target
from small_scenario import parse


def summary(**times):
    """Return policies with these times to the target, and equal accuracies."""
    found = {
        label: {"time_to_target_s": np.array(t, float), "accuracy": np.full(len(t), 0.8)}
        for label, t in times.items()
    }
    n = len(next(iter(times.values())))
    return Summary(
        parse(policies={key: {"policy": "random"} for key in times}),
        n,
        Target("test_accuracy", 0.8),
        None,
        found,
    )


def test_the_quickest_is_first_and_who_missed_the_target_last():
    made = summary(slow=[9, 8, 9], never=[1, np.inf, 1], quick=[4, 5, 4])
    assert made.ranked() == ["quick", "slow", "never"]
    assert [row[0] for row in summary_table(made, "leaderboard").rows] == made.ranked()
    assert made.text("never", "time_to_target_s", wide=True) == "reached by 67%"


def test_more_is_better_where_a_metric_says_so():
    made = summary(a=[5, 5], b=[5, 5])
    made.policies["b"]["accuracy"] += 0.1
    assert METRICS["accuracy"].better == "more"
    assert RANKING == ("time_to_target_s", "accuracy")
    assert made.ranked() == ["b", "a"]


FIRST = "study: a is first to 80.0% after 10 s"


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        # ratios of b to a: 1.5, 1.6, 1.4 (interval 1.25 to 1.75); of c: 1.3, 0.9, 1.1
        (
            {"a": [10, 10, 10], "b": [15, 16, 14], "c": [13, 9, 11]},
            f"{FIRST}; not told apart from it: c.",
        ),
        ({"a": [10, 10, 10], "b": [15, 16, 14]}, f"{FIRST}, beyond chance."),
        ({"a": [10], "b": [12.7], "c": [12.9]}, f"{FIRST}; not told apart from it: b."),
        ({"a": [10], "b": [np.inf]}, f"{FIRST}, by more than equals differ in one world."),
        (
            {"a": [np.inf, 3], "b": [9, np.inf]},
            "study: too short to tell, nobody reached the target in every world.",
        ),
    ],
)
def test_ties_are_called_ties(times, verdict):
    assert summary(**times).verdict() == verdict


def test_the_verdict_says_how_much_faster_the_first_is():
    made = summary(a=[10, 10, 10], random=[20, 21, 19])
    made.policies["a"]["target_speed_up"] = np.array([2.0, 2.1, 1.9])
    assert made.verdict() == f"{FIRST}, 2.00 ± 0.25 times as fast as random, beyond chance."


def test_rows_are_one_per_policy_and_world():
    rows = summary(a=[1, 2], b=[3, 4]).rows()
    assert [(r["policy"], r["world"], r["time_to_target_s"]) for r in rows] == [
        ("a", 0, 1.0),
        ("a", 1, 2.0),
        ("b", 0, 3.0),
        ("b", 1, 4.0),
    ]
