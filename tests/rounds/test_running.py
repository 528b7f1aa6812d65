"""When a round is over and whose responses count, derived by hand."""

import pytest

from bsfl import RoundPlan
from bsfl.rounds import RunningRound


def started(cohort, timeout_s=None, **plan):
    plan = RoundPlan(**({"target_responses": len(cohort) or 1} | plan))
    return RunningRound(plan, list(cohort), timeout_s)


def over_at(running, *seconds):
    return [running.is_over(s) for s in seconds]


def test_it_waits_for_all_clients():
    running = started("ab")
    running.record("b", "ok", 1.0)
    assert not running.is_over(1e9)
    running.record("a", "ok", 2e9)
    assert running.is_over(2e9)
    assert (running.kept, running.missing) == (("b", "a"), ()), "in the order of arrival"


def test_an_empty_cohort_is_not_waited_for():
    assert started("", target_responses=3).is_over(0.0)


@pytest.mark.parametrize("min_responses", [0, 1])
def test_the_deadline_ends_it(min_responses):
    running = started("abc", deadline_s=10.0, min_responses=min_responses)
    running.record("a", "ok", 4.0)
    assert running.closes_at == 10.0
    assert over_at(running, 4.0, 9.9, 10.0) == [False, False, True]
    running.record("c", "ok", 10.0)
    assert (running.kept, running.missing) == (("a", "c"), ("b",)), "c is in time"


def test_min_responses_after_the_deadline_end_it_at_once():
    running = started("abc", deadline_s=10.0, min_responses=2)
    running.record("a", "ok", 4.0)
    running.record("c", "failed")  # is no response
    assert running.closes_at == 20.0, "when the invitations expire: twice the deadline"
    assert not running.is_over(14.9)
    running.record("b", "ok", 15.0)
    assert running.closes_at == 10.0, "past"
    assert running.is_over(15.0)
    assert running.kept == ("a", "b")


@pytest.mark.parametrize(
    ("limits", "limit_s"),
    [({}, 20.0), ({"lifetime_s": 13.0}, 13.0), ({"timeout_s": 17.0}, 17.0)],
)
def test_min_responses_that_never_come_are_not_waited_for_longer(limits, limit_s):
    running = started("abc", deadline_s=10.0, min_responses=2, **limits)
    running.record("a", "ok", 4.0)
    assert over_at(running, limit_s - 0.1, limit_s) == [False, True]


def test_over_selection_keeps_the_first():
    running = started("abcd", target_responses=2, deadline_s=10.0)
    running.record("d", "ok", 1.0)
    running.record("b", "failed")
    assert not running.is_over(2.0)
    running.record("c", "ok", 3.0)
    assert running.is_over(3.0)
    running.record("a", "ok", 3.0)  # at the same moment
    assert running.kept == ("d", "c")
    assert running.latencies == {"d": 1.0, "c": 3.0, "a": 3.0}, "all of them are learned from"


def test_it_is_over_when_no_client_is_left_to_wait_for():
    running = started("ab", deadline_s=10.0, min_responses=1)
    running.record("a", "failed", 1.0)
    assert not running.is_over(1.0)
    running.record("b", "timeout", 2.0)
    assert running.is_over(2.0)
    assert running.kept == ()
    assert (running.with_outcome("failed"), running.with_outcome("timeout")) == (("a",), ("b",))
