"""The numbers of a round, and which are rejected."""

import math

import pytest

from bsfl import RoundPlan
from bsfl.errors import InvalidInput
from bsfl.rounds import BufferPlan


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"target_responses": 0}, "target_responses .* got 0"),
        ({"over_selection": 0.9}, "over_selection .* got 0.9"),
        ({"over_selection": "many"}, "over_selection .* got 'many'"),
        ({"late": "keep"}, "late .* got 'keep'"),
        ({"min_responses": -1}, "min_responses .* got -1"),
        ({"min_responses": 5, "deadline_s": 1.0}, "min_responses .* got 5"),
        ({"min_responses": 2}, "min_responses=2 needs a deadline_s"),
        ({"deadline_s": 0.0}, "deadline_s .* got 0.0"),
        ({"lifetime_s": -1.0}, "lifetime_s .* got -1.0"),
        ({"deadline_s": 9.0, "lifetime_s": 8.0}, "lifetime_s .* at least 9, got 8.0"),
        ({"max_staleness": -1}, "max_staleness .* got -1"),
    ],
)
def test_wrong_numbers(settings, field):
    with pytest.raises(InvalidInput, match=field):
        RoundPlan(**({"target_responses": 4} | settings))


def test_the_sooner_of_deadline_and_timeout_counts():
    plan = RoundPlan(target_responses=4, deadline_s=10.0)
    assert (plan.due_s(), plan.expiry_s(), plan.limit_s()) == (10.0, 20.0, 20.0)
    assert (plan.due_s(15.0), plan.expiry_s(15.0), plan.limit_s(15.0)) == (10.0, 20.0, 15.0)
    assert (plan.due_s(6.0), plan.expiry_s(6.0), plan.limit_s(6.0)) == (6.0, 12.0, 6.0)


def test_a_lifetime_holds_unless_responses_are_due_later():
    plan = RoundPlan(target_responses=4, deadline_s=10.0, lifetime_s=12.0)
    assert plan.expiry_s() == 12.0
    assert RoundPlan(target_responses=4, lifetime_s=12.0).expiry_s(30.0) == 30.0


def test_without_any_limit_nothing_is_ever_overdue():
    plan = RoundPlan(target_responses=4)
    assert (plan.due_s(), plan.expiry_s(), plan.limit_s()) == (math.inf, math.inf, math.inf)
    assert RoundPlan(target_responses=4, max_wait_s=100.0).due_s() == 100.0


@pytest.mark.parametrize(
    ("over_selection", "m", "n"), [(1.2, 10, 12), (1.1, 10, 11), (1.3, 2, 3), (1, 4, 4)]
)
def test_how_many_are_invited(over_selection, m, n):
    """1.1 x 10 is 11 and not 12, although 1.1 * 10 = 11.000000000000002."""
    assert RoundPlan(target_responses=m, over_selection=over_selection).max_invited == n


def test_a_buffer_is_not_larger_than_the_concurrency():
    with pytest.raises(InvalidInput, match="buffer must not exceed the concurrency of 3, got 4"):
        BufferPlan(concurrency=3, buffer=4)
