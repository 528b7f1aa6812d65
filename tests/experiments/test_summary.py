"""Ranking and verdict of numbers that are given; tests of runs check how they are measured."""

import dataclasses

import numpy as np
import pytest

from bsfl.experiments.metrics import METRICS, RANKING
from bsfl.experiments.summary import Summary
from bsfl.experiments.tables import Table, summary_table, winners_table
from bsfl.experiments.target import Target
from bsfl.experiments.verdict import overall, verdict
from small_scenario import parse


def summary(**times):
    """Return policies with these times to the target of 20 s each, and equal accuracies."""
    found = {
        label: {
            "time_to_target_s": np.array(t, float),
            "total_time_s": np.full(len(t), 20.0),
            "accuracy": np.full(len(t), 0.8),
        }
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


def test_the_fastest_is_first_and_a_policy_that_missed_the_target_last():
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


@pytest.mark.parametrize(
    ("times", "words"),
    [
        # ratios of b to a: 1.5, 1.6, 1.4 (interval 1.25 to 1.75); of c: 1.3, 0.9, 1.1
        (
            {"a": [10, 10, 10], "b": [15, 16, 14], "c": [13, 9, 11]},
            "Tied with it: c.",
        ),
        ({"a": [10, 10, 10], "b": [15, 16, 14]}, "Its lead over all others is significant."),
        ({"a": [10], "b": [12.7], "c": [12.9]}, "Tied with it: b."),
        (
            {"a": [10], "b": [np.inf]},
            "Its lead over all others is larger than chance may bring with one seed, 28 %.",
        ),
    ],
)
def test_ties_are_called_ties(times, words):
    first, more = verdict(summary(**times))
    assert first.startswith("a reached 80.0% after 10 s; it waited")
    assert more == words


def test_no_policy_wins_without_reaching_the_target():
    made = summary(a=[np.inf, 3], b=[9, np.inf])
    assert verdict(made) == ["Too short to decide: no policy reached 80.0% with every seed."]
    assert winners_table([made]).rows == [["study", "none", "–", "–", "–"]]


def test_a_policy_that_missed_the_target_is_behind_only_as_far_as_it_ran():
    """Ratios of at least 20/10 and 2 are significant; 1/10 and at least 2 are not."""
    made = summary(first=[10, 10, 10], never=[np.inf] * 3, once=[1, np.inf, 20])
    assert verdict(made)[1] == "Tied with it: once."


def test_the_verdict_says_how_much_faster_the_first_is_and_what_it_costs():
    made = summary(a=[10, 10, 10], random=[20, 21, 19])
    made.policies["a"] |= {
        "target_speed_up": np.array([2.0, 2.1, 1.9]),
        "mean_round_s": np.array([3.0, 3.2, 3.1]),
        "gini": np.full(3, 0.25),
    }
    made.policies["random"] |= {"mean_round_s": np.full(3, 6.5), "gini": np.full(3, 0.05)}
    assert verdict(made) == [
        "a reached 80.0% after 10 s, 2.00 ± 0.25 times as fast as random; "
        "it waited 3.10 s a round, random 6.50 s.",
        "Its lead over all others is significant. "
        "Clients take part less evenly than with random: Gini 0.250 against 0.050.",
    ]
    assert winners_table([made]).rows == [["study", "a", "10 ± 0", "2.00 ± 0.25", "none"]]


def test_the_first_sentence_says_what_is_not_significant():
    made = summary(a=[10, 10, 10], random=[13, 9, 11])
    made.policies["a"]["target_speed_up"] = np.array([1.3, 0.9, 1.1])
    assert "1.10 ± 0.50 times as fast as random, which is not significant; it" in verdict(made)[0]


def test_where_nothing_is_trained_rounds_decide_and_regret_is_reported():
    made = dataclasses.replace(summary(a=[0, 0], b=[0, 0]), target=None)
    for label, seconds, regret in (("a", 4.0, 90.0), ("b", 2.0, 100.0)):
        numbers = {"mean_round_s": seconds, "regret": regret}
        made.policies[label] = {k: np.array([x, x]) for k, x in numbers.items()}
    assert verdict(made) == [
        "b has the shortest rounds: 2.00 s.",
        "Its lead over all others is significant. a has the least regret, 90.",
    ]


def test_overall_counts_policies_that_are_first_or_tied_with_the_first():
    clear, tie = summary(a=[10, 10, 10], b=[15, 16, 14]), summary(a=[13, 9, 11], b=[10, 10, 10])
    assert overall([clear, tie]) == [
        "a is first in 1 of 2 scenarios, in 1 of them with a significant lead over all others.",
        "First, or tied with the first: a in 2, b in 1.",
    ]
    assert overall([tie])[0].startswith("study: b reached 80.0% after 10 s")
    other = summary(a=[10, 10, 10], b=[13, 9, 11])
    assert overall([tie, other])[0] == (
        "b and a are first in 1 of 2 scenarios each, in none of them with a significant lead "
        "over all others."
    )


def test_the_best_of_a_column_is_marked_and_an_oracle_does_not_compete():
    table = Table(
        title="t",
        columns=["policy", "time", "Gini", "rounds"],
        rows=[["a", "1,200 ± 3", "0.10", "3"], ["b", "900", "0.10", "4"], ["g *", "5", "0.2", "5"]],
        better={"time": "less", "Gini": "less"},
        aside=[2],
    )
    assert table.best() == [set(), {1}, set(), set()], "two that look alike are not better"
    assert "| b | **900** | 0.10 | 4 |" in table.markdown()


def test_rows_are_one_per_policy_and_seed():
    rows = summary(a=[1, 2], b=[3, 4]).rows()
    assert [(r["policy"], r["seed"], r["time_to_target_s"]) for r in rows] == [
        ("a", 0, 1.0),
        ("a", 1, 2.0),
        ("b", 0, 3.0),
        ("b", 1, 4.0),
    ]
