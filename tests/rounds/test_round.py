"""When a round is over and who is kept, derived by hand."""

import pytest

from bsfl.rounds import Round, RoundPlan


def started(cohort, timeout_s=None, **plan):
    return Round(RoundPlan(**({"cohort_size": len(cohort)} | plan)), list(cohort), timeout_s)


def test_it_waits_for_everybody():
    running = started("ab")
    running.hear("b", "ok", 1.0)
    assert not running.is_over(1e9)
    running.hear("a", "ok", 2e9)
    assert running.is_over(2e9)
    assert running.kept == ("b", "a"), "in the order in which they came"
    assert running.missing == ()


def test_the_deadline_ends_it():
    running = started("abc", deadline_s=10.0)
    running.hear("a", "ok", 4.0)
    assert not running.is_over(9.999)
    assert running.is_over(10.0)
    assert (running.kept, running.missing) == (("a",), ("b", "c"))


def test_a_quorum_that_answered_before_the_deadline_changes_nothing():
    running = started("abc", deadline_s=10.0, quorum=1)
    running.hear("a", "ok", 4.0)
    assert running.closes_at == 10.0
    assert [running.is_over(s) for s in (4.0, 9.9, 10.0)] == [False, False, True]


def test_a_quorum_that_answers_after_the_deadline_ends_it_then():
    running = started("abc", deadline_s=10.0, quorum=2)
    running.hear("a", "ok", 4.0)
    assert running.closes_at == 20.0, "when the invitations expire: twice the deadline"
    assert not running.is_over(14.9)
    running.hear("b", "ok", 15.0)
    assert running.closes_at == 10.0, "past"
    assert running.is_over(15.0)
    assert running.kept == ("a", "b")


@pytest.mark.parametrize(
    ("limits", "given_up"),
    [({}, 20.0), ({"lifetime_s": 13.0}, 13.0), ({"timeout_s": 17.0}, 17.0)],
)
def test_a_quorum_that_never_answers_is_given_up(limits, given_up):
    running = started("abc", deadline_s=10.0, quorum=2, **limits)
    running.hear("a", "ok", 4.0)
    assert [running.is_over(s) for s in (given_up - 0.1, given_up)] == [False, True]


def test_failures_do_not_make_a_quorum():
    running = started("abc", deadline_s=10.0, quorum=2)
    running.hear("a", "ok", 4.0)
    running.hear("b", "failed")
    assert not running.is_over(10.0)


def test_over_selection_keeps_the_first():
    running = started("abcd", cohort_size=2, deadline_s=10.0)
    running.hear("d", "ok", 1.0)
    running.hear("b", "failed")
    assert not running.is_over(2.0)
    running.hear("c", "ok", 3.0)
    assert running.is_over(3.0)
    running.hear("a", "ok", 3.0)  # at the same moment
    assert running.kept == ("d", "c")
    assert running.latencies == {"d": 1.0, "c": 3.0, "a": 3.0}, "all of them are learned from"


def test_it_is_over_when_everybody_failed():
    running = started("ab", deadline_s=10.0, quorum=1)
    running.hear("a", "failed", 1.0)
    assert not running.is_over(1.0)
    running.hear("b", "timeout", 2.0)
    assert running.is_over(2.0), "nobody is left to wait for"
    assert running.kept == ()
    assert (running.with_outcome("failed"), running.with_outcome("timeout")) == (("a",), ("b",))


def test_an_answer_at_the_deadline_is_in_time():
    running = started("ab", deadline_s=10.0)
    running.hear("a", "ok", 10.0)
    assert running.is_over(10.0)
    assert running.kept == ("a",)


def test_with_nobody_invited_there_is_nothing_to_wait_for():
    assert started("", cohort_size=3).is_over(0.0)
