"""The headline of numbers that are given."""

import dataclasses

import numpy as np
import pytest

from bsfl.experiments.headline import headline, winner
from given_summary import summary


@pytest.mark.parametrize(
    ("times", "words"),
    [
        # ratios of b to a: 1.5, 1.6, 1.4 (interval 1.25 to 1.75); of c: 1.3, 0.9, 1.1
        ({"a": [10, 10, 10], "b": [15, 16, 14], "c": [13, 9, 11]}, "Tied with it: c."),
        ({"a": [10, 10, 10], "b": [15, 16, 14]}, "Its lead over all others is significant."),
        ({"a": [10], "b": [15]}, "One seed cannot show whether its lead is significant."),
        # ratios of at least 20/10 and 2 are significant; 1/10 and at least 2 are not
        ({"a": [10, 10, 10], "never": [np.inf] * 3, "c": [1, np.inf, 20]}, "Tied with it: c."),
    ],
)
def test_ties_are_called_ties(times, words):
    assert headline(summary(**times)) == [
        "a reached accuracy 80.0% in 10 s; its mean round takes 2.00 s.",
        words,
    ]


def test_no_policy_wins_without_reaching_the_target():
    made = summary(a=[np.inf, 3], b=[9, np.inf])
    assert winner(made) is None
    assert headline(made) == [
        "No policy reached accuracy 80.0% with every seed; run longer, or set a lower "
        "target_accuracy."
    ]


def test_an_oracle_does_not_compete():
    made = summary(genie=[1, 1, 1], a=[10, 10, 10])
    assert winner(made).label == "a"
    assert len(headline(made)) == 1, "it has no competitor"


def test_it_says_how_much_faster_the_first_is_and_what_it_costs():
    made = summary(a=[10, 10, 10], random=[20, 21, 19])
    made.policies["a"] |= {
        "target_speed_up": np.array([2.0, 2.1, 1.9]),  # 0.1 x 4.303 / sqrt(3) = 0.25
        "mean_round_s": np.array([3.0, 3.2, 3.1]),
        "gini": np.full(3, 0.25),
    }
    made.policies["random"] |= {"mean_round_s": np.full(3, 6.5), "gini": np.full(3, 0.05)}
    assert headline(made) == [
        "a reached accuracy 80.0% in 10 s, 2.00 ± 0.25 times as fast as random; "
        "its mean round takes 3.10 s, that of random 6.50 s.",
        "Its lead over all others is significant.",
        "The Gini coefficient of its participations is 0.250, that of random 0.050.",
    ]


def test_the_first_sentence_says_what_is_not_significant():
    made = summary(a=[10, 10, 10], random=[13, 9, 11])
    made.policies["a"]["target_speed_up"] = np.array([1.3, 0.9, 1.1])
    assert "1.10 ± 0.50 times as fast as random (not significant); its" in headline(made)[0]


def test_where_nothing_is_trained_rounds_decide_and_regret_is_reported():
    made = dataclasses.replace(summary(a=[0, 0], b=[0, 0]), target=None)
    for label, seconds, regret in (("a", 4.0, 90.0), ("b", 2.0, 100.0)):
        numbers = {"mean_round_s": seconds, "regret": regret}
        made.policies[label] = {k: np.array([x, x]) for k, x in numbers.items()}
    assert headline(made) == [
        "b has the shortest rounds; its mean round takes 2.00 s.",
        "Its lead over all others is significant.",
        "a has the lowest regret, 90.",
    ]


def test_with_one_seed_no_policy_is_significantly_slower():
    made = summary(a=[10], b=[np.inf], genie=[1])
    assert winner(made).tied == ("b",)
