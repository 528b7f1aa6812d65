"""The numbers of a round, and what is refused."""

import math

import pytest

from bsfl.errors import InvalidInput
from bsfl.rounds import RoundPlan


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cohort_size": 0}, "cohort_size must be a whole number of at least 1, got 0"),
        ({"invite": 0.9}, "invite must be a finite number of at least 1, got 0.9"),
        ({"quorum": -1}, "quorum must be a whole number of at least 0, got -1"),
        (
            {"quorum": 5, "deadline_s": 1.0},
            "quorum must not exceed the cohort_size of 4, got 5",
        ),
        ({"quorum": 2}, "quorum=2 needs a deadline_s, or a policy with tau_max"),
        ({"deadline_s": 0.0}, "deadline_s must be a finite number above 0, got 0.0"),
        ({"lifetime_s": -1.0}, "lifetime_s must be a finite number above 0, got -1.0"),
        (
            {"deadline_s": 9.0, "lifetime_s": 8.0},
            "lifetime_s must be a finite number of at least 9, got 8.0",
        ),
    ],
)
def test_what_is_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        RoundPlan(**({"cohort_size": 4} | settings))


def test_the_sooner_of_deadline_and_timeout_counts():
    plan = RoundPlan(cohort_size=4, deadline_s=10.0)
    assert (plan.due_s(), plan.expiry_s(), plan.limit_s()) == (10.0, 20.0, 20.0)
    assert (plan.due_s(15.0), plan.expiry_s(15.0), plan.limit_s(15.0)) == (10.0, 20.0, 15.0)
    assert (plan.due_s(6.0), plan.expiry_s(6.0), plan.limit_s(6.0)) == (6.0, 12.0, 6.0)


def test_a_lifetime_is_kept_unless_answers_are_not_even_due():
    plan = RoundPlan(cohort_size=4, deadline_s=10.0, lifetime_s=12.0)
    assert plan.expiry_s() == 12.0
    assert RoundPlan(cohort_size=4, lifetime_s=12.0).expiry_s(30.0) == 30.0


def test_without_any_limit_nothing_is_ever_overdue():
    plan = RoundPlan(cohort_size=4)
    assert (plan.due_s(), plan.expiry_s(), plan.limit_s()) == (math.inf, math.inf, math.inf)
    assert RoundPlan(cohort_size=4, longest_s=100.0).due_s() == 100.0


@pytest.mark.parametrize(
    ("invite", "m", "n"), [(1.2, 10, 12), (1.1, 10, 11), (1.3, 2, 3), (1, 4, 4)]
)
def test_how_many_are_invited(invite, m, n):
    """1.1 x 10 is 11 and not 12, although 1.1 * 10 = 11.000000000000002."""
    assert RoundPlan(cohort_size=m, invite=invite).most_invited == n
