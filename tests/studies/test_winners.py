"""The best policies over several scenarios, from numbers that are given."""

import numpy as np

from bsfl.experiments.statistics import Interval
from bsfl.studies.winners import overall, winners_table
from given_summary import summary


def test_overall_counts_policies_that_are_first_or_tied_with_the_first():
    clear, tie = summary(a=[10, 10, 10], b=[15, 16, 14]), summary(a=[13, 9, 11], b=[10, 10, 10])
    assert overall([clear, tie]) == [
        "a is first in 1 of 2 scenarios, with a significant lead over all others in 1 of them.",
        "First, or tied with the first: a in 2, b in 1.",
    ]
    assert overall([tie])[0].startswith("study: b reached accuracy 80.0% in 10 s")
    other = summary(a=[10, 10, 10], b=[13, 9, 11])
    assert overall([tie, other])[0] == (
        "b and a are first in 1 of 2 scenarios each, with a significant lead over all others in "
        "none of them."
    )


def test_the_table_holds_the_first_and_those_tied_with_it():
    never = summary(a=[np.inf, 3], b=[9, np.inf])
    first = summary(a=[10, 10, 10], random=[20, 21, 19], c=[13, 9, 11])
    first.policies["a"]["target_speed_up"] = np.array([2.0, 2.0, 2.0])
    table = winners_table([never, first])
    assert table.rows == [
        ["study", "none", None, None, None],
        ["study", "a", Interval(10.0, 10.0, 10.0), Interval(2.0, 2.0, 2.0), "c"],
    ]
    assert table.texts()[1] == ["study", "a", "10 ± 0", "2.00 ± 0.00", "c"]
    assert [column.title for column in table.columns[2:4]] == [
        "time_to_target_s",
        "target_speed_up",
    ]
