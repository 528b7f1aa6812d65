"""What a Scheduler does: the life of a round, the clients, the errors, call by call."""

import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from bsfl import (
    BSFL,
    Genie,
    Lognormal,
    Observation,
    Oort,
    RbcsF,
    RoundPlan,
    Scheduler,
    UniformRandom,
    WeightedRandom,
)
from bsfl.errors import InvalidInput, NotSelected, UnknownClient
from bsfl.policies import POLICIES
from saved_state import differences, saved_state

IDS = [f"phone-{i}" for i in range(10)]
TIMEOUT = Observation(latency_s=60.0, outcome="timeout")
FAILED = Observation(outcome="failed")


@pytest.fixture
def scheduler():
    return Scheduler(BSFL(alpha=5.0), cohort_size=3, seed=1)


def over_selecting(**settings):
    """Return a scheduler that invites all of ann, bob, cem and dan, and needs two responses."""
    made = Scheduler(UniformRandom(), cohort_size=2, over_selection=2.0, **settings)
    made.join(["ann", "bob", "cem", "dan"])
    return made


def column(scheduler, name):
    """Return a column of the table, in the order of joining."""
    return [row[name] for row in scheduler.table()]


def participations(scheduler):
    return column(scheduler, "participations")


def last_counts(scheduler):
    """Return how many of the last round were fresh, late, timed out and failed, and its duration."""
    one = scheduler.last_round
    return one.n_fresh, one.n_late, one.n_timeouts, one.n_failed, one.duration_s


@contextmanager
def rejected(scheduler, message, error=InvalidInput):
    """Check that a call is an error and changes nothing."""
    before = saved_state(scheduler)
    with pytest.raises(error, match=message):
        yield
    assert differences(saved_state(scheduler), before) == []


@contextmanager
def unchanged(scheduler):
    before = saved_state(scheduler)
    yield
    assert differences(saved_state(scheduler), before) == []


# --- a round ----------------------------------------------------------------------------------------


def test_a_round(scheduler):
    cohort = scheduler.select(available=IDS)
    assert isinstance(cohort, list)
    assert (len(cohort), set(cohort) <= set(IDS)) == (3, True)
    assert (cohort.round, cohort.n_invited, cohort.target_responses) == (1, 3, 3)
    assert (cohort.deadline_s, cohort.pending, cohort.work) == (None, cohort, {})
    assert scheduler.in_flight == cohort
    assert last_counts(scheduler) == (None, None, None, None, None)
    scheduler.observe({cohort[0]: 3.2, cohort[1]: TIMEOUT}, round=cohort)
    assert scheduler.in_flight == [cohort[2]]
    assert last_counts(scheduler) == (1, 0, 1, 0, 60.0)
    record = scheduler.last_round
    assert (record.cohort, record.n_available, record.is_short) == (tuple(cohort), 10, False)


def test_equal_seeds_give_equal_cohorts():
    def cohorts(seed):
        scheduler = Scheduler(UniformRandom(), cohort_size=2, seed=seed)
        return [scheduler.select(available=IDS) for _ in range(10)]

    assert cohorts(3) == cohorts(3)
    assert cohorts(3) != cohorts(4)


def test_with_fewer_available_clients_all_are_selected_and_the_record_is_short(scheduler):
    scheduler.join(IDS)
    assert sorted(scheduler.select(available=IDS[:2])) == IDS[:2]
    assert scheduler.last_round.is_short
    assert scheduler.select(available=[]) == []
    assert scheduler.last_round.n_available == 0
    assert scheduler.pending() == [], "a round without clients closes by itself"
    assert len(scheduler.select(available=IDS)) == 3
    assert not scheduler.last_round.is_short


def test_one_round_may_have_numbers_of_its_own(scheduler, tmp_path):
    cohort = scheduler.select(IDS, cohort_size=2, over_selection=2.5, deadline_s=40.0)
    assert (len(cohort), cohort.target_responses, cohort.deadline_s) == (5, 2, 40.0)
    assert (scheduler.last_round.n_invited, scheduler.last_round.target_responses) == (5, 2)
    scheduler.save(tmp_path / "s.bsfl")
    assert Scheduler.load(tmp_path / "s.bsfl").last_round == scheduler.last_round
    following = scheduler.select()
    assert (len(following), following.deadline_s) == (3, None)
    wrong = [("cohort_size", 0), ("cohort_size", 11), ("over_selection", 0.5), ("deadline_s", -1.0)]
    for name, value in [*wrong, ("now_s", float("nan"))]:
        with rejected(scheduler, name):
            scheduler.select(**{name: value})


def test_settings_can_be_assigned(scheduler):
    scheduler.cohort_size, scheduler.over_selection, scheduler.max_open_rounds = 2, 1.5, 4
    assert len(scheduler.select(IDS)) == 3
    assert (scheduler.plan.target_responses, scheduler.max_open_rounds) == (2, 4)
    scheduler.plan = RoundPlan(target_responses=1, late="drop")
    assert len(scheduler.select(IDS)) == scheduler.cohort_size == 1
    for name, wrong in (("cohort_size", 0), ("max_open_rounds", 0), ("over_selection", "many")):
        with rejected(scheduler, name):
            setattr(scheduler, name, wrong)


# --- how a round closes -----------------------------------------------------------------------------


def test_a_round_closes_with_the_response_that_reaches_the_target():
    scheduler = over_selecting()
    cohort = scheduler.select()
    scheduler.observe({"ann": 1.0}, round=cohort)
    assert scheduler.pending() == [cohort]
    scheduler.observe({"bob": 2.0}, round=cohort)
    assert scheduler.pending() == []
    assert scheduler.in_flight == ["cem", "dan"], "their responses may still come, late"
    assert last_counts(scheduler) == (2, 0, 0, 0, 2.0)


def test_a_round_closes_when_all_clients_are_reported():
    scheduler = over_selecting()
    cohort = scheduler.select()
    scheduler.observe({"ann": 1.0, "bob": FAILED, "cem": TIMEOUT}, round=cohort)
    assert scheduler.pending() == [cohort]
    scheduler.observe({"dan": FAILED}, round=cohort)
    assert scheduler.pending() == scheduler.in_flight == []
    assert last_counts(scheduler) == (1, 0, 1, 2, 60.0)


def test_a_round_closes_when_it_is_closed():
    scheduler = over_selecting()
    cohort = scheduler.select()
    scheduler.observe({"ann": 1.0})
    scheduler.close(cohort)
    assert scheduler.pending() == []
    assert scheduler.in_flight == ["bob", "cem", "dan"]
    with unchanged(scheduler):  # once is enough
        scheduler.close(cohort)
        scheduler.close()


@pytest.mark.parametrize("stop", [Scheduler.abandon, Scheduler.forget])
def test_a_round_closes_when_nothing_is_pending_any_more(stop):
    closed = []
    scheduler = over_selecting(on_round=closed.append)
    scheduler.observe({"ann": 1.0}, round=scheduler.select())
    stop(scheduler, ["bob", "cem"])
    assert len(scheduler.pending()) == 1
    stop(scheduler, ["dan"])
    assert scheduler.pending() == scheduler.in_flight == []
    assert [(record.round, record.n_fresh) for record in closed] == [(1, 1)]


def test_rounds_that_never_were_and_rounds_that_are_over():
    scheduler = over_selecting()
    for number in (None, 1):
        with rejected(scheduler, "opened"):
            scheduler.close(number)
    with rejected(scheduler, "round"):
        scheduler.observe({"ann": 1.0}, round=1)
    first = scheduler.select()
    scheduler.observe(dict.fromkeys(first, 1.0))
    scheduler.select()
    for wrong in (3, 0, -1, 1.5, "1"):
        with rejected(scheduler, "round"):
            scheduler.close(wrong)
    with rejected(scheduler, "round 1 is over"):
        scheduler.close(first, aggregated=["ann"])
    with unchanged(scheduler):
        assert list(scheduler.observe({"ann": 1.0}, round=first)) == ["ann"]
        assert scheduler.observe({}, round=first) == {}
        scheduler.close(first)


# --- late responses ---------------------------------------------------------------------------------


def closed_with(late, **settings):
    """Return a scheduler whose first round closed with ann and bob; cem and dan are pending."""
    scheduler = over_selecting(late=late, **settings)
    scheduler.observe({"ann": 1.0, "bob": 2.0}, round=scheduler.select())
    return scheduler


@pytest.mark.parametrize(("late", "credit"), [("apply", 1), ("drop", 0)])
def test_late_responses_are_applied_or_dropped_and_their_latency_is_learned(late, credit):
    scheduler = closed_with(late)
    scheduler.observe({"cem": 9.0})
    assert participations(scheduler) == [1, 1, credit, 0]
    assert column(scheduler, "late") == [0, 0, 1, 0]
    assert scheduler.client("cem")["latency_s"] == pytest.approx(9.0)
    assert last_counts(scheduler) == (2, 1, 0, 0, 2.0)


def test_late_responses_beyond_max_staleness_are_dropped():
    scheduler = closed_with("apply", max_staleness=1)
    second = scheduler.select(["ann", "bob"])
    scheduler.observe({"cem": 9.0}, round=1)  # one round was opened since
    scheduler.observe(dict.fromkeys(second, 1.0))
    scheduler.select(["ann", "bob"])
    scheduler.observe({"dan": 9.0}, round=1)  # two rounds
    assert participations(scheduler)[2:] == [1, 0]
    assert column(scheduler, "late") == [0, 0, 1, 1]


def test_a_late_response_that_could_not_be_used_is_a_failure():
    scheduler = closed_with("apply")
    scheduler.observe({"cem": Observation(latency_s=9.0, outcome="failed")})
    assert participations(scheduler) == [1, 1, 0, 0]
    assert last_counts(scheduler) == (2, 0, 0, 1, 2.0)


# --- who is credited --------------------------------------------------------------------------------


def test_a_round_closed_by_hand_has_its_credit():
    scheduler = over_selecting()
    cohort = scheduler.select()
    scheduler.observe({"ann": 1.0})
    scheduler.close(cohort, aggregated=[])
    assert participations(scheduler) == [0, 0, 0, 0]
    with rejected(scheduler, "round 1 is closed"):
        scheduler.close(cohort, aggregated=["ann"])


def test_a_discarded_round_credits_no_client():
    scheduler = over_selecting()
    scheduler.observe({"ann": 1.0, "bob": 2.0}, round=scheduler.select())
    scheduler.close(discard=True)
    assert scheduler.last_round.is_discarded
    scheduler.observe({"cem": 3.0})  # there is no model that it could enter
    scheduler.observe({"ann": 1.0}, round=scheduler.select())
    scheduler.close(discard=True)
    assert participations(scheduler) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"aggregated": ["cem"]}, InvalidInput, "aggregated"),  # late
        ({"aggregated": ["dan"]}, InvalidInput, "aggregated"),  # pending
        ({"aggregated": ["zoe"]}, UnknownClient, "zoe"),
        ({"aggregated": ["ann", "ann"]}, InvalidInput, "duplicate client id 'ann'"),
        ({"aggregated": ["ann"], "discard": True}, InvalidInput, "discarded"),
    ],
)
def test_only_fresh_responses_can_be_aggregated(settings, error, message):
    scheduler = closed_with("drop")
    scheduler.observe({"cem": 9.0})
    with rejected(scheduler, message, error):
        scheduler.close(1, **settings)


# --- several rounds ---------------------------------------------------------------------------------


def test_several_rounds_are_open_at_a_time():
    scheduler = Scheduler(UniformRandom(), cohort_size=2, max_open_rounds=3)
    first = scheduler.select(["ann", "bob"])
    second = scheduler.select(["cem", "dan"])
    third = scheduler.select(["ann", "eve"])
    assert scheduler.pending() == [first, second, third]
    assert scheduler.in_flight == ["ann", "bob", "cem", "dan", "eve"]
    scheduler.observe({"ann": 2.0}, round=third)
    scheduler.observe({"bob": 3.0, "cem": 1.0})
    assert [one.pending for one in scheduler.pending()] == [["ann"], ["dan"], ["eve"]]
    scheduler.observe({"eve": 4.0}, round=third.round)
    assert scheduler.pending() == [first, second], "the third is complete"
    fourth = scheduler.select(["eve", "flo"])
    assert scheduler.pending() == [first, second, fourth]
    fifth = scheduler.select(["gus", "eve"])
    assert scheduler.pending() == [second, fourth, fifth], "the oldest was closed"
    scheduler.observe({"ann": 9.0}, round=first)
    assert scheduler.clients == ["ann", "bob", "cem", "dan", "eve", "flo", "gus"]
    assert column(scheduler, "late") == [1, 0, 0, 0, 0, 0, 0]
    assert participations(scheduler) == [2, 1, 0, 0, 1, 0, 0], "that of cem is still open"


def test_rounds_that_are_over_are_dropped_when_fewer_may_be_open():
    """The credit of as many rounds as may be open can be replaced."""
    scheduler = Scheduler(UniformRandom(), cohort_size=1, max_open_rounds=3)
    for _ in range(3):
        cohort = scheduler.select(["ann"])
        scheduler.observe({"ann": 1.0}, round=cohort)
    scheduler.close(2, aggregated=[])
    assert scheduler.client("ann")["participations"] == 2
    scheduler.max_open_rounds = 1
    assert [one.number for one in scheduler._engine.rounds] == [3]
    with rejected(scheduler, "round 1 is over"):
        scheduler.close(1, aggregated=[])


def test_a_round_whose_pending_clients_are_forgotten_takes_no_place():
    """Else the limit of two open rounds would close the first, whose response is on its way."""
    scheduler = Scheduler(UniformRandom(), cohort_size=1, max_open_rounds=2)
    first = scheduler.select(["ann"])
    scheduler.select(["bob"])
    scheduler.forget(["bob"])
    assert scheduler.pending() == [first]
    third = scheduler.select(["cem"])
    assert scheduler.pending() == [first, third]


def test_without_a_round_a_response_is_one_to_the_latest_pending_round():
    scheduler = Scheduler(BSFL(), cohort_size=2)
    scheduler.select([1, 2])
    scheduler.select([1, 2])
    assert scheduler.in_flight == [1, 2]
    scheduler.observe({1: 50.0, 2: 1.0})
    assert scheduler.in_flight == [1, 2]
    scheduler.observe({1: 2.0, 2: 1.0})
    assert scheduler.in_flight == []
    assert column(scheduler, "late") == [1, 1]
    assert last_counts(scheduler) == (2, 0, 0, 0, 50.0)


def test_pending_rounds_survive_a_restart(tmp_path):
    scheduler = Scheduler(
        UniformRandom(), cohort_size=2, over_selection=1.5, max_open_rounds=2, deadline_s=60.0,
        clock=lambda: 100.0,
    )  # fmt: skip
    scheduler.select(IDS[:3])
    second = scheduler.select(IDS[3:6], deadline_s=30.0)
    scheduler.observe({second[0]: 2.0}, round=second)
    scheduler.save(tmp_path / "s")
    again = Scheduler.load(tmp_path / "s", clock=lambda: 5000.0)
    for one in (scheduler, again):
        assert one.pending() == [IDS[:3], IDS[3:6]]
        shown = [(c.round, c.target_responses, c.deadline_s, c.pending) for c in one.pending()]
        assert shown == [(1, 2, 60.0, IDS[:3]), (2, 2, 30.0, IDS[4:6])]
    assert [one.opened_s for one in again.pending()] == [5000.0, 5000.0], "as old as they were"
    for one in (scheduler, again):
        one.observe({second[1]: 3.0, IDS[0]: 4.0})
        assert [c.round for c in one.pending()] == [1]
    assert differences(saved_state(again), saved_state(scheduler)) == ["rounds/opened_s"]


# --- timeouts, failures, abandoned clients ----------------------------------------------------------


def test_timeouts_reported_before_and_after_the_close():
    scheduler = over_selecting()
    cohort = scheduler.select()
    scheduler.observe({"ann": 1.0, "dan": Observation(latency_s=30.0, outcome="timeout")})
    scheduler.close(cohort)
    assert last_counts(scheduler) == (1, 0, 1, 0, 30.0), "dan was waited for"
    scheduler.observe({"bob": TIMEOUT})
    assert last_counts(scheduler) == (1, 0, 2, 0, 30.0)
    assert column(scheduler, "timeouts") == [0, 1, 0, 1]


def test_abandoned_responses_are_not_waited_for(scheduler):
    cohort = scheduler.select(available=IDS)
    scheduler.abandon(cohort[:1])
    assert scheduler.in_flight == cohort[1:]
    scheduler.abandon()
    assert scheduler.in_flight == []
    with rejected(scheduler, "no pending", NotSelected):
        scheduler.observe({cohort[1]: 1.0}, strict=True)
    assert sum(column(scheduler, "invitations")) == 3, "they count as invited"
    assert sum(column(scheduler, "timeouts")) == 0
    with rejected(scheduler, "ghost", UnknownClient):
        scheduler.abandon(["ghost"])
    scheduler.abandon(cohort)


def test_clients_that_are_never_reported_count_as_invited(scheduler):
    selected = {*scheduler.select(available=IDS), *scheduler.select(), *scheduler.select()}
    assert len(selected) == 9, "unresponsive clients do not stay first in line"
    assert sum(column(scheduler, "invitations")) == 9


# --- how long a round takes -------------------------------------------------------------------------


def test_a_round_takes_as_long_as_the_longest_latency_it_waited_for():
    scheduler = over_selecting(clock=lambda: 1e6)
    scheduler.select()
    scheduler.observe({"ann": 3.0, "bob": Observation(latency_s=7.0, outcome="failed")})
    assert last_counts(scheduler) == (1, 0, 0, 1, 7.0), "all of them were waited for"
    scheduler.observe({"cem": 5.0})
    assert last_counts(scheduler) == (2, 0, 0, 1, 5.0), "with enough responses bob was not"
    scheduler.observe({"dan": 80.0})
    assert last_counts(scheduler) == (2, 1, 0, 1, 5.0)


@pytest.mark.parametrize(
    ("opened", "closed", "expected"),
    [
        ({"now_s": 10.0}, {"now_s": 52.0}, 42.0),
        ({"now_s": 10.0}, {}, 3.0),
        ({}, {"now_s": 52.0}, 3.0),
        ({}, {}, 3.0),
        ({"now_s": 10.0}, {"now_s": 9.0}, 0.0),
    ],
)
def test_the_difference_of_times_counts_if_both_were_given(opened, closed, expected):
    now = iter(range(10**6))
    scheduler = over_selecting(clock=lambda: float(next(now)))
    cohort = scheduler.select(**opened)
    scheduler.observe({"ann": 3.0})
    scheduler.close(cohort, **closed)
    assert scheduler.last_round.duration_s == expected


# --- which clients can be selected ------------------------------------------------------------------


def online(scheduler):
    return [row["client"] for row in scheduler.table() if row["online"]]


def test_available_replaces_the_clients_that_are_online():
    scheduler = Scheduler(UniformRandom(), cohort_size=2)
    scheduler.join(["ann", "bob", "cem"])
    assert online(scheduler) == ["ann", "bob", "cem"]
    assert scheduler.select(available=["bob", "dan"]) == ["bob", "dan"]
    assert scheduler.clients == ["ann", "bob", "cem", "dan"], "dan has joined"
    assert scheduler.select() == ["bob", "dan"], "until the next change"
    scheduler.join(["eve"])
    assert online(scheduler) == ["bob", "dan", "eve"]
    scheduler.join(["ann"])
    assert online(scheduler) == ["ann", "bob", "dan", "eve"], "joining brings online"
    scheduler.offline(["ann", "bob"])
    assert scheduler.select() == ["dan", "eve"]
    assert scheduler.clients == ["ann", "bob", "cem", "dan", "eve"], "they stay members"
    scheduler.online(["bob", "flo"])
    assert online(scheduler) == ["bob", "dan", "eve", "flo"]
    assert "flo" in scheduler.clients
    scheduler.leave(["bob"])
    scheduler.online(["bob"])
    assert "bob" in scheduler.clients, "coming online brings a client back"


def test_clients_in_flight_are_left_out_until_their_invitation_expires(tmp_path):
    now = [1000.0]
    settings = {"lifetime_s": 60.0, "clock": lambda: now[0], "max_open_rounds": 9}
    scheduler = Scheduler(UniformRandom(), cohort_size=1, **settings)
    (first,) = scheduler.select(["ann", "bob"])
    now[0] += 30.0
    scheduler.save(tmp_path / "s")
    again = Scheduler.load(tmp_path / "s", clock=lambda: now[0] - 1000.0)
    second = {"ann": "bob", "bob": "ann"}[first]
    for seconds, cohort in ((0.0, [second]), (29.0, []), (1.0, [first])):
        now[0] += seconds
        assert scheduler.select() == again.select() == cohort
    assert scheduler.last_round.n_available == 1
    assert scheduler.select(now_s=now[0] + 30.0) == [second], "by the caller's time"
    again.observe({second: 3.0})
    assert again.select() == [second], "it has responded"


def test_without_a_lifetime_clients_in_flight_may_be_selected_again():
    scheduler = Scheduler(UniformRandom(), cohort_size=2, max_open_rounds=5)
    assert scheduler.select(["ann", "bob"]) == scheduler.select() == ["ann", "bob"]


# --- responses --------------------------------------------------------------------------------------


def test_responses_without_an_invitation_are_ignored(scheduler):
    cohort = scheduler.select(available=IDS)
    other = next(c for c in IDS if c not in cohort)
    with rejected(scheduler, other, NotSelected):
        scheduler.observe({cohort[0]: 1.0, other: 1.0}, strict=True)
    with rejected(scheduler, "ghost", UnknownClient):
        scheduler.observe({cohort[0]: 1.0, "ghost": 1.0}, strict=True)
    ignored = scheduler.observe({cohort[0]: 1.0, other: 1.0, "ghost": 1.0})
    assert list(ignored) == [other, "ghost"]
    assert ignored[other].startswith("ignored, because")
    assert "unknown client 'ghost'" in ignored["ghost"]
    assert scheduler.in_flight == cohort[1:]
    with rejected(scheduler, "reported already", NotSelected):
        scheduler.observe({cohort[0]: 1.0}, strict=True)


def test_a_client_of_another_round_did_not_respond_to_this_one():
    scheduler = Scheduler(UniformRandom(), cohort_size=1, max_open_rounds=2)
    first, second = scheduler.select(["ann"]), scheduler.select(["bob"])
    with rejected(scheduler, "in round 2", NotSelected):
        scheduler.observe({"ann": 1.0}, round=second, strict=True)
    assert list(scheduler.observe({"ann": 1.0, "bob": 2.0}, round=second)) == ["ann"]
    assert scheduler.pending() == [first]


@pytest.mark.parametrize(
    "latency",
    [float("nan"), float("inf"), -1.0, 0, 0.0, 1e-310, 10**400, "fast", None, True, [1.0]],
)
def test_an_impossible_latency_counts_as_a_failure(scheduler, latency):
    cohort = scheduler.select(available=IDS)
    responses = {cohort[0]: 1.0, cohort[1]: latency}
    with rejected(scheduler, f"client '{cohort[1]}': latency_s"):
        scheduler.observe(responses, strict=True)
    ((client, why),) = scheduler.observe(responses).items()
    assert client == cohort[1]
    assert why.startswith("counts as failed, because latency_s")
    assert scheduler.in_flight == cohort[2:]
    assert [row["client"] for row in scheduler.table() if row["failures"]] == [client]


@pytest.mark.parametrize("response", [7.0, Observation(latency_s=7.0)])
def test_the_latency_of_a_response_that_lacks_a_loss_is_known(response):
    """The client fails, because Oort needs losses; the round has waited 7 s for it all the same."""
    scheduler = Scheduler(Oort(), cohort_size=1)
    scheduler.join(["ann"], samples=[1.0])
    ignored = scheduler.observe({"ann": response}, round=scheduler.select())
    assert ignored["ann"].startswith("counts as failed")
    assert scheduler.last_round.duration_s == 7.0


def test_a_rejected_loss_can_be_corrected():
    scheduler = Scheduler(BSFL(generalization="loss"), cohort_size=1)
    (client,) = scheduler.select([1, 2, 3])
    for wrong in (Observation(latency_s=1.0, loss=-0.5), 1.0):
        with rejected(scheduler, "loss"):
            scheduler.observe({client: wrong}, strict=True)
    scheduler.observe({client: Observation(latency_s=1.0, loss=0.5)}, strict=True)
    assert len(scheduler.select()) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.select("ab"), "clients must be a collection of ids, got 'ab'"),
        (lambda s: s.join(5), "clients must be a collection of ids, got 5"),
        (lambda s: s.join(["c"], samples=["x"]), "samples"),
        (lambda s: s.observe([("a", 1.0)]), "responses must map clients to latencies"),
        (lambda s: s.observe({True: 1.0}, strict=True), "client id"),
        (lambda s: s.observe({"a": np.ones(2)}, strict=True), "client 'a': latency_s"),
        (lambda s: s.select(["a", "b", "a"]), "duplicate client id 'a'"),
        (lambda s: s.online(["a", "a"]), "duplicate client id 'a'"),
        (lambda s: s.select([1, 2, 3]), "all str or all int"),
        (lambda s: s.offline([1]), "all str or all int"),
        (lambda s: s.offline(["a", "ghost"]), "unknown client 'ghost'; it never joined"),
        (lambda s: s.leave(["a", "ghost"]), "unknown client 'ghost'; it never joined"),
        (lambda s: s.client("ghost"), "unknown client 'ghost'; it never joined"),
    ],
)
def test_odd_arguments_change_nothing(call, message):
    scheduler = Scheduler(BSFL(), cohort_size=1)
    scheduler.select(["a", "b"])
    scheduler.select(["a"])
    with rejected(scheduler, message):
        call(scheduler)


@pytest.mark.parametrize(
    ("available", "message"),
    [
        (["a", "b", "a", "c"], "duplicate client id 'a'"),
        (["a", 1, "b"], "client ids must be all str or all int, got 'a' and 1"),
        ([0.5, 1.5, 2.5], "a client id must be a str or an int, got 0.5"),
        ([True, False], "a client id must be a str or an int, got True"),
        (["a", "b"], "cohort_size must be between 1 and the 2 clients, got 3"),
        ([], "cohort_size must be between 1 and the 0 clients, got 3"),
    ],
)
def test_impossible_clients_change_nothing(scheduler, available, message):
    with rejected(scheduler, message):
        scheduler.select(available=available)


@pytest.mark.parametrize("n_others", [0, 3000])
def test_a_call_that_raises_restores_what_was_recorded_before(n_others):
    """Two rounds in one call: the first is recorded and closed when the second fails."""

    class Fragile(UniformRandom):
        def observe(self, state, context, report):
            if context.round == 2:
                raise ArithmeticError("no")

    closed = []
    fragile = Scheduler(Fragile(), cohort_size=2, max_open_rounds=2, on_round=closed.append)
    fragile.join([f"other-{i}" for i in range(n_others)])
    first, second = fragile.select(["ann", "bob"]), fragile.select(["cem", "dan"])
    fragile.observe({"ann": 1.0})
    with rejected(fragile, "no", ArithmeticError):
        fragile.observe({"bob": 1.0, "cem": 1.0})
    assert (fragile.pending(), closed) == ([first, second], [])


# --- clients ----------------------------------------------------------------------------------------


def test_int_ids_of_any_size_and_numpy_ints():
    huge = [2**64 - 1, 2**63, -5]
    scheduler = Scheduler(UniformRandom(), cohort_size=3)
    assert sorted(scheduler.select(available=huge)) == sorted(huge)
    small = Scheduler(UniformRandom(), cohort_size=2)
    assert all(type(c) is int for c in small.select(available=np.arange(5)))


def test_leaving_and_returning_keeps_what_is_known(scheduler):
    def run(rounds):
        for _ in range(rounds):
            scheduler.observe({c: 1.0 + int(c[-1]) for c in scheduler.select()})

    scheduler.join(IDS)
    run(20)
    known = scheduler.client("phone-4")
    scheduler.leave(["phone-4"])
    run(10)
    away = scheduler.client("phone-4")
    assert (away["member"], away["invitations"]) == (False, known["invitations"])
    scheduler.select(available=["phone-4", "phone-5", "phone-6"])
    now = scheduler.client("phone-4")
    for name in ("member", "online", "latency_s", "participations"):
        assert now[name] == known[name]
    # it was away for rounds 21 to 30, which do not count: round 31 is its 21st
    context = scheduler._engine.context(scheduler._engine.rounds.latest)
    assert context.rounds(np.array([4])) == [21]


def test_a_client_that_joins_late_is_not_preferred_for_the_rounds_before(scheduler):
    scheduler.join(IDS)
    for _ in range(200):
        scheduler.observe(dict.fromkeys(scheduler.select(), 1.0))
    scheduler.register("new")
    for _ in range(40):
        scheduler.observe(dict.fromkeys(scheduler.select(), 1.0))
    # its part of 40 rounds is 40 * 3 / 11 = 11; with 240 rounds it would be in nearly all
    assert 8 <= scheduler.client("new")["invitations"] <= 15


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"samples": [1, 0]}, "samples must be finite and above 0, got 0"),
        ({"samples": [1, -3]}, "samples must be finite and above 0, got -3"),
        ({"samples": [1, float("nan")]}, "samples must be finite and above 0, got nan"),
        ({"samples": [1]}, r"samples must hold one number for each of the 2 clients"),
        ({"quality": [1, 1.5]}, "quality must be finite and above 0 and at most 1, got 1.5"),
        ({"features": [[1.0], [2.0, 3.0]]}, "features"),
        ({"features": [[1.0]]}, "features"),
        ({"features": [{"ram": 1.0}]}, "features"),
        ({"features": [{"ram": 1.0}, [2.0]]}, "features"),
        ({"features": [{"ram": "x=y"}, {"os=x": 1.0}]}, "feature"),
        ({"features": [{"ram": None}, {"ram": 1.0}]}, "feature ram"),
        ({"features": [{}, {}]}, "features"),
        # such as could not be saved
        *(({"samples": [1, wrong]}, "samples") for wrong in (1e-300, 1e-7, 1e300)),
        ({"quality": [1, 1e-300]}, "quality"),
        ({"features": [[1.0], [1e300]]}, "features"),
    ],
)
def test_impossible_attributes_change_nothing(scheduler, attributes, message):
    with rejected(scheduler, message):
        scheduler.join(["a", "b"], **attributes)


def known_features(scheduler):
    features = scheduler._engine.pool.features[: len(scheduler.clients)]
    return scheduler._feature_columns, features.tolist()


def test_features_may_be_dicts_with_texts(tmp_path):
    nan = pytest.approx(np.nan, nan_ok=True)
    scheduler = Scheduler(BSFL(index=Lognormal()), cohort_size=1)
    features = [{"ram": 4, "os": "ios"}, {"ram": 8.0, "os": "android"}, {"os": "ios"}]
    scheduler.join(["ann", "bob", "cem"], features=features)
    columns, rows = known_features(scheduler)
    assert columns == ["os=android", "os=ios", "ram"]
    assert rows == [[0.0, 1.0, 4.0], [1.0, 0.0, 8.0], [0.0, 1.0, nan]]
    scheduler.save(tmp_path / "s")
    for one in (scheduler, Scheduler.load(tmp_path / "s")):
        one.register("dan", features={"ram": 2, "os": "symbian"})
        assert known_features(one)[1][3] == [0.0, 0.0, 2.0], "a new text is none of the known"
        one.register("ann", features={"ram": 6})
        assert known_features(one)[1][0] == [nan, nan, 6.0], "the whole row is replaced"
        for wrong in ({"cpu": 1.0}, {"os": 3.0}, {"ram": "much"}, {"ram": 1.0, "cpu": "arm"}):
            with rejected(one, "feature"):
                one.register("eve", features=wrong)
        with rejected(one, "same 3 features"):
            one.register("eve", features=[1.0, 2.0])
        one.observe(dict.fromkeys(one.select(), 3.0))


def test_features_are_dicts_for_all_clients_or_rows_for_all():
    """A row of two numbers does not say which is which of two features that have names."""
    rows, dicts = [[1.0, 2.0]], [{"cpu": 1.0, "ram": 2.0}]
    for first, second, form in ((rows, dicts, "rows of numbers"), (dicts, rows, "dicts")):
        scheduler = Scheduler(cohort_size=1)
        scheduler.join(["ann"], features=first)
        with rejected(scheduler, f"same 2 features, given as {form}"):
            scheduler.join(["bob"], features=second)
        for mixed in (rows + dicts, dicts + rows):
            with rejected(scheduler, "features"):
                scheduler.join(["bob", "cem"], features=mixed)


def test_no_clients_have_no_attributes(scheduler):
    scheduler.join([], samples=[], quality=np.zeros(0), features=[])
    assert scheduler.table() == []
    for name, wrong in (("samples", [1.0]), ("quality", 0.5), ("features", [[1.0]])):
        with rejected(scheduler, name):
            scheduler.join([], **{name: wrong})


def test_a_client_that_is_renamed_is_the_same():
    scheduler = Scheduler(BSFL(), cohort_size=1)
    scheduler.join(["ann", "bob"])
    scheduler.leave(["bob"])
    assert scheduler.select() == ["ann"]
    assert scheduler.rename("ann", "eve")
    scheduler.observe({"eve": 3.0})
    assert (scheduler.clients, scheduler.in_flight) == (["eve"], [])
    assert scheduler.client("eve")["latency_s"] == pytest.approx(3.0)
    assert scheduler.last_round.cohort == ("eve",)
    assert not scheduler.rename("eve", "bob"), "another client's, though it has left"
    with rejected(scheduler, "ann", UnknownClient):
        scheduler.rename("ann", "zoe")
    with rejected(scheduler, "all str or all int"):
        scheduler.rename("eve", 7)


def test_a_set_of_ids_means_the_same_in_every_process():
    code = (
        "from bsfl import BSFL, Scheduler\n"
        "print(Scheduler(BSFL(), cohort_size=2).select({f'c{i}' for i in range(20)}))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(seen) == 1


# --- settings and policies --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("cohort_size", wrong) for wrong in (0, 2.5, True)),
        *((name, 0) for name in ("deadline_s", "lifetime_s", "max_open_rounds", "forget_after")),
        *((name, -1) for name in ("seed", "max_staleness")),
        *((name, "much") for name in ("over_selection", "late")),
        ("min_responses", 2),  # without a deadline
    ],
)
def test_wrong_settings_are_named(name, wrong):
    with pytest.raises(InvalidInput, match=name):
        Scheduler(BSFL(), **{"cohort_size": 3, name: wrong})


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (BSFL, r"got the class BSFL; did you mean BSFL\(\)\?"),
        ("bsfl", "got 'bsfl'; bsfl.policies.make_policy makes one by its name"),
        (object(), "policy must be an object of a subclass of bsfl.Policy"),
    ],
)
def test_a_policy_must_be_one(policy, message):
    with pytest.raises(InvalidInput, match=message):
        Scheduler(policy, cohort_size=3)


@pytest.mark.parametrize("plan", [None, 5, {"target_responses": 2}, RoundPlan])
def test_a_plan_must_be_one(scheduler, plan):
    with rejected(scheduler, "plan must be a RoundPlan"):
        scheduler.plan = plan


def test_a_select_that_fails_takes_its_new_clients_back():
    scheduler = Scheduler(WeightedRandom(), cohort_size=2)
    scheduler.join(list("abcd"), samples=[1, 2, 3, 4])
    scheduler.select()
    scheduler.leave(["d"])
    with rejected(scheduler, "1 of 5 clients have none"):
        scheduler.select(["a", "b", "d", "new"])
    scheduler.register("d", samples=4)
    assert len(scheduler.select(["a", "b", "d"])) == 2
    genie = Scheduler(Genie(mean_speed=[0.5, 0.5]), cohort_size=1)
    genie.select(["a", "b"])
    with rejected(genie, "mean_speed"):
        genie.select(["a", "b", "c"])
    assert genie.select(["a", "b"])


def test_a_select_that_fails_leaves_the_oldest_round_open():
    class Moody(UniformRandom):
        def select(self, state, context, rng):
            if context.round == 2:
                raise ArithmeticError("no")
            return super().select(state, context, rng)

    closed = []
    scheduler = Scheduler(Moody(), cohort_size=2, on_round=closed.append)
    cohort = scheduler.select(IDS)
    with rejected(scheduler, "no", ArithmeticError):
        scheduler.select()
    assert (scheduler.pending(), closed) == ([cohort], [])


@pytest.mark.parametrize(
    "selected", [None, ["a", "b"], [0.5, 1.0], [True, True, False], [[0], [1, 2]], {0, 1}]
)
def test_a_policy_that_selects_no_whole_numbers_is_caught(selected):
    class Odd(UniformRandom):
        def select(self, state, context, rng):
            return selected

    scheduler = Scheduler(Odd(), cohort_size=2)
    text = f"must select whole numbers from context.available, got {selected!r}"
    with pytest.raises(InvalidInput, match=re.escape(text)):
        scheduler.select(["a", "b", "c"])
    assert (scheduler.round, scheduler.clients, scheduler.in_flight) == (0, [], [])


# --- what could not be saved ------------------------------------------------------------------------


@dataclass
class Held:
    count: Any
    value: Any


@pytest.mark.parametrize("value", [{}, [], "text", None, np.array(["a"]), np.zeros(2, complex)])
def test_a_policy_whose_state_cannot_be_saved_is_rejected_when_it_is_given(value, tmp_path):
    class Holder(UniformRandom):
        def init(self, n_clients):
            return Held(np.zeros(n_clients), value)

    with pytest.raises(InvalidInput, match="value of the state of a policy"):
        Scheduler(Holder(), cohort_size=2)
    scheduler = Scheduler(UniformRandom(), cohort_size=2)
    scheduler.save(tmp_path / "s")
    with pytest.raises(InvalidInput, match="value of the state of a policy"):
        Scheduler.load(tmp_path / "s", policy=Holder())


def test_settings_whose_state_could_not_be_saved_are_rejected(tmp_path):
    with pytest.raises(InvalidInput, match="ridge"):
        RbcsF(tau_max=5.0, ridge=1e-300)
    scheduler = Scheduler(RbcsF(tau_max=5.0, ridge=1e-12), cohort_size=2)
    scheduler.observe(dict.fromkeys(scheduler.select(["a", "b", "c"]), 1.0))
    scheduler.save(tmp_path / "s")
    assert Scheduler.load(tmp_path / "s").select() == scheduler.select()


@pytest.mark.parametrize("name", list(POLICIES))
def test_extreme_responses_can_be_saved(name, tmp_path):
    policy = POLICIES.make(name, **POLICIES[name].example)
    scheduler = Scheduler(policy, cohort_size=2, late="drop")
    scheduler.join(IDS, samples=[1e-6, 1e15, *[1.0] * 8])
    extremes = [
        Observation(latency_s=latency_s, loss=loss, samples=samples)
        for latency_s, loss, samples in ((1e-9, 0.0, 1), (1e12, 1e12, 10**12), (1.0, 1e-300, 1))
    ]
    for i in range(12):
        cohort = scheduler.select()
        scheduler.observe({c: extremes[(i + k) % 3] for k, c in enumerate(cohort)}, strict=True)
    scheduler.save(tmp_path / "s")
    assert Scheduler.load(tmp_path / "s").select() == scheduler.select()
