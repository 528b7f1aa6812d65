"""Rounds that are opened, recorded and closed on a fake clock, and what the scheduler learns."""

import pytest

from bsfl import BSFL, Observation, Oort, RoundPlan, Scheduler, UniformRandom
from bsfl.errors import InvalidInput, NotEnoughClients
from bsfl.rounds import RoundManager
from fake_clock import FakeClock
from memory_journal import MemoryJournal

ALL = ["a", "b", "c"]


class Spy(Scheduler):
    """A scheduler that remembers what was reported to it, call by call."""

    def observe(self, responses, **options):
        self.calls.append([(k, o.outcome, o.latency_s) for k, o in responses.items()])
        return super().observe(responses, **options)


def opened(available=ALL, **settings):
    """Return rounds of which the first is open."""
    game = Game(**settings)
    game.open(available)
    return game


class Game:
    """Rounds on a fake clock; the token of an invitation is the client and the round."""

    def __init__(self, m=3, policy=None, **plan):
        self.clock, self.journal = FakeClock(), MemoryJournal()
        self.scheduler = Spy(policy or UniformRandom(), cohort_size=m, journal=self.journal)
        self.scheduler.calls = []
        plan = RoundPlan(**({"target_responses": m, "late": "drop"} | plan))
        self.rounds = RoundManager(self.scheduler, plan, clock=self.clock)
        self.start = self.clock.now

    def open(self, available=ALL, unreachable=()):
        cohort = self.rounds.open(available)
        tokens = {k: (k, cohort.round) for k in cohort if k not in unreachable}
        self.rounds.sent(tokens)
        self.start = self.clock.now
        return cohort

    def record_at(self, seconds, *tokens, outcome="ok"):
        """Let responses come in some seconds after the round began."""
        self.clock.now = self.start + seconds
        self.rounds.record(dict.fromkeys(tokens, outcome))

    def close_at(self, seconds):
        self.clock.now = self.start + seconds
        return self.rounds.close()

    @property
    def reported(self):
        """What was reported to the scheduler since the last look."""
        calls, self.scheduler.calls = self.scheduler.calls, []
        return [one for call in calls for one in call]

    def row(self, client, *columns):
        row = self.scheduler.client(client)
        return tuple(row[name] for name in columns)


# --- fresh responses, timeouts and failures -------------------------------------------------------


def test_a_round():
    game = Game(deadline_s=10.0)
    cohort = game.open()
    assert sorted(cohort) == ALL
    assert cohort.deadline_s == 10.0
    assert game.rounds.invitations.busy == {"a", "b", "c"}
    game.record_at(2.0, ("b", 1))
    assert not game.rounds.is_over()
    game.record_at(3.0, ("a", 1), outcome="failed")
    game.record_at(4.0, ("c", 1))
    assert game.rounds.is_over()
    result = game.rounds.close()
    assert (result.round, result.kept) == (1, ("b", "c"))
    assert (result.failed, result.timeouts) == (("a",), ())
    assert result.latencies == {"b": 2.0, "c": 4.0}
    assert (result.duration_s, result.slowest) == (4.0, "c")
    assert (result.n_late, result.n_seen, result.n_clients) == (0, 2, 3)
    assert game.reported == [("b", "ok", 2.0), ("a", "failed", 3.0), ("c", "ok", 4.0)]
    assert game.scheduler.pending() == game.scheduler.in_flight == []
    assert game.rounds.invitations.tokens == []
    expected = "bsfl: 2 of 3 clients in 4.0 s, slowest 'c' after 4.0 s, 0 timed out, "
    assert result.line() == f"{expected}1 failed ('a'), 0 late, 2 of 3 seen"


def test_a_missed_deadline_is_reported_once():
    game = opened(deadline_s=10.0)
    game.record_at(2.0, ("a", 1), ("b", 1))
    game.clock.now = game.start + 10.0
    assert game.rounds.is_over()
    result = game.rounds.close()
    assert (result.kept, result.timeouts, result.duration_s) == (("a", "b"), ("c",), 10.0)
    assert game.reported == [("a", "ok", 2.0), ("b", "ok", 2.0), ("c", "timeout", 10.0)]
    game.record_at(11.0)
    assert game.rounds.invitations.busy == {"c"}, "it may still be at work"
    game.open(available=["a", "b"])
    game.clock.now += 6.0
    game.rounds.record({("c", 1): "ok", ("a", 2): "ok"})
    assert game.reported == [("a", "ok", 6.0)], "that c took more than 10 s is known"
    assert not game.rounds.is_over(), "c belongs to another round"
    game.record_at(8.0, ("b", 2))
    result = game.rounds.close()
    assert (result.kept, result.n_late, set(result.latencies)) == (("a", "b"), 1, {"a", "b"})
    game.open()
    assert game.rounds.close().n_late == 0, "counted once"


@pytest.mark.parametrize("late", ["drop", "apply"])
def test_min_responses_that_never_come_time_out_when_all_invitations_expire(late):
    game = opened(deadline_s=10.0, min_responses=2, late=late)
    game.record_at(1.0, ("a", 1))
    game.record_at(10.0)
    assert not game.rounds.is_over()
    game.record_at(20.0)
    assert game.rounds.is_over()
    result = game.rounds.close()
    assert (result.kept, sorted(result.timeouts)) == (("a",), ["b", "c"])
    assert game.rounds.invitations.tokens == game.scheduler.in_flight == []
    expected = [("a", "ok", 1.0), ("b", "timeout", 20.0), ("c", "timeout", 20.0)]
    assert sorted(game.reported) == expected


def test_expired_invitations_free_their_clients_and_later_responses_are_ignored():
    game = opened(deadline_s=10.0, lifetime_s=15.0)
    game.record_at(1.0, ("a", 1), ("b", 1))
    game.close_at(10.0)
    game.record_at(14.9)
    assert game.rounds.invitations.busy == {"c"}
    assert game.rounds.invitations.settled_at == game.start + 15.0
    game.record_at(15.0)
    assert game.rounds.invitations.busy == set()
    assert game.reported[-1] == ("c", "timeout", 10.0)
    game.record_at(16.0, ("c", 1))
    assert game.reported == []
    game.open()
    assert game.rounds.close().n_late == 0


def test_clients_that_could_not_be_reached_have_failed():
    game = Game(deadline_s=10.0)
    game.open(unreachable=["b"])
    assert game.reported == [("b", "failed", None)]
    game.record_at(1.0, ("a", 1), ("c", 1))
    assert game.rounds.is_over()
    assert game.rounds.close().failed == ("b",)
    game.open(unreachable=ALL)
    assert game.rounds.is_over(), "no client is left to wait for"


def test_responses_of_one_poll_are_reported_in_one_call():
    game = opened(deadline_s=10.0)
    game.record_at(0.5)
    assert game.scheduler.calls == game.journal.of_kind("responses") == []
    game.record_at(1.0, ("a", 1), ("b", 1), ("c", 1))
    assert game.scheduler.calls == [[("a", "ok", 1.0), ("b", "ok", 1.0), ("c", "ok", 1.0)]]


def test_observations_are_reported_as_they_are():
    game = opened(deadline_s=10.0)
    game.clock.now += 5.0
    game.rounds.record({("a", 1): Observation(latency_s=3.5, loss=0.25, samples=7)})
    assert game.reported == [("a", "ok", 3.5)]
    (entry,) = game.journal.of_kind("responses")
    assert (entry["loss"], entry["samples"]) == ([0.25], [7.0])
    assert game.rounds.close().latencies == {"a": 3.5}


# --- late responses -------------------------------------------------------------------------------


def test_over_selection_learns_from_the_others_later():
    game = Game(m=2, over_selection=1.5, deadline_s=10.0)
    assert len(game.open()) == 3
    game.record_at(1.0, ("c", 1))
    game.record_at(2.0, ("a", 1))
    assert game.rounds.is_over()
    result = game.rounds.close()
    assert (result.kept, result.timeouts) == (("c", "a"), ()), "b is not overdue yet"
    assert game.scheduler.in_flight == ["b"]
    began = game.start
    game.open(available=["a", "c"])
    game.clock.now = began + 6.0
    game.rounds.record({("b", 1): "ok"})
    assert game.reported[-1] == ("b", "ok", 6.0), "learned from, though its work is not used"
    assert game.journal.results()[-1] == (1, "b", "ok", True, True)
    assert game.row("b", "late", "participations", "latency_s") == (1, 0, pytest.approx(6.0))
    assert game.scheduler.in_flight == ["a", "c"]


def test_over_selected_clients_that_never_respond_time_out_in_a_later_round():
    game = opened(m=2, over_selection=1.5, deadline_s=10.0)
    game.record_at(1.0, ("a", 1), ("b", 1))
    game.rounds.close()
    for seconds in (9.9, 10.0, 10.5):
        game.record_at(seconds)
    assert game.reported[2:] == [("c", "timeout", 10.0)]


@pytest.mark.parametrize("late", ["drop", "apply"])
def test_responses_of_one_poll_beyond_the_target_are_late(late):
    """Five are invited for two; a, b, c and d come together, in this order, and e has failed."""
    game = Game(m=2, over_selection=2.5, late=late)
    assert len(game.open(list("abcde"))) == 5
    game.clock.now += 4.0
    game.rounds.record({(client, 1): "ok" for client in "abcd"} | {("e", 1): "failed"})
    is_dropped = late == "drop"
    assert sorted(game.journal.results()) == [
        (1, "a", "ok", False, False),
        (1, "b", "ok", False, False),
        (1, "c", "ok", True, is_dropped),
        (1, "d", "ok", True, is_dropped),
        (1, "e", "failed", False, False),
    ]
    columns = "participations", "late", "failures", "latency_s"
    assert game.row("b", *columns) == (1, 0, 0, pytest.approx(4.0))
    assert game.row("c", *columns) == (0 if is_dropped else 1, 1, 0, pytest.approx(4.0))
    assert game.row("e", *columns) == (0, 0, 1, None)
    assert len(game.scheduler.calls) == 2, "the fresh ones, and the late ones"
    result = game.rounds.close()
    assert (result.kept, result.failed) == (("a", "b"), ("e",))


@pytest.mark.parametrize(
    ("late", "participations", "loss"), [("apply", 1, 0.25), ("drop", 0, None)]
)
def test_of_a_late_response_that_is_dropped_only_the_latency_is_learned(late, participations, loss):
    """With a policy that needs losses, so that a response without one would be a failure."""
    game = opened(m=2, policy=BSFL(generalization="loss"), over_selection=1.5, late=late)
    fresh = Observation(latency_s=1.0, loss=0.5, samples=3)
    game.rounds.record({("a", 1): fresh, ("b", 1): fresh})
    game.rounds.close()
    assert game.row("c", "participations", "pending") == (0, 1)
    game.rounds.record({("c", 1): Observation(latency_s=7.0, loss=0.25, samples=9)})
    columns = "participations", "late", "pending", "failures"
    assert game.row("c", *columns) == (participations, 1, 0, 0)
    entry = game.journal.of_kind("responses")[-1]
    assert (entry["latency_s"], entry["loss"]) == ([7.0], [loss])


def test_with_late_responses_applied_a_client_times_out_when_its_invitation_expires():
    """Deadline 10 s, lifetime 20 s; b responds after 15 s, c never does."""
    game = opened(deadline_s=10.0, late="apply")
    game.record_at(2.0, ("a", 1))
    result = game.close_at(10.0)
    assert (result.kept, sorted(result.timeouts)) == (("a",), ["b", "c"]), "missed the deadline"
    assert game.reported == [("a", "ok", 2.0)], "their responses may still be applied"
    game.record_at(15.0, ("b", 1))
    assert game.row("b", "participations", "late", "timeouts") == (1, 1, 0)
    game.record_at(20.0)
    assert game.reported[1:] == [("c", "timeout", 20.0)]
    assert game.row("c", "participations", "timeouts", "pending") == (0, 1, 0)
    game.open()
    assert game.rounds.close().n_late == 1


def test_late_responses_to_several_rounds_belong_to_their_own_and_old_ones_are_dropped():
    game = Game(m=1, over_selection=3.0, late="apply", max_staleness=1)
    for number in (1, 2, 3):
        game.open([f"{client}{number}" for client in "abc"])
        game.record_at(1.0, (f"a{number}", number))
        game.rounds.close()
    game.record_at(5.0, ("b1", 1), ("b2", 2), ("c1", 1))
    assert game.journal.results()[3:] == [
        (1, "b1", "ok", True, True),
        (1, "c1", "ok", True, True),
        (2, "b2", "ok", True, False),
    ]
    assert len(game.scheduler.calls) == 5, "for each of three fresh responses, and for each round"


def test_the_plan_may_change_between_rounds():
    game = opened(["a", "b"], m=1, over_selection=2.0, late="drop")
    game.record_at(1.0, ("a", 1))
    game.rounds.close()
    game.rounds.plan = RoundPlan(target_responses=1, over_selection=2.0, late="apply")
    game.open(["c", "d"])
    game.record_at(3.0, ("b", 1))
    assert game.journal.results()[-1] == (1, "b", "ok", True, False)
    assert game.scheduler.plan.late == "apply"


# --- the scheduler's rounds -----------------------------------------------------------------------


def test_a_round_that_reached_its_target_is_closed_at_once_and_once():
    game = opened(m=2, over_selection=1.5)
    game.record_at(1.0, ("a", 1), ("b", 1))
    assert game.scheduler.pending() == [], "before the loop has looked"
    game.rounds.close()
    (closed,) = game.journal.of_kind("closed")
    assert (closed["is_automatic"], closed["aggregated"]) == (True, ["a", "b"])


def test_an_early_close_leaves_the_missing_pending():
    game = opened(deadline_s=10.0)
    game.record_at(1.0, ("a", 1))
    result = game.rounds.close()
    assert (result.kept, result.timeouts) == (("a",), ()), "the others are not overdue"
    assert game.scheduler.pending() == []
    assert sorted(game.scheduler.in_flight) == ["b", "c"]


def test_a_round_that_is_never_closed_is_closed_by_the_next_one():
    game = opened(deadline_s=10.0)
    game.record_at(1.0, ("a", 1))
    game.open(["a"])
    (pending,) = game.scheduler.pending()
    assert pending.round == 2
    game.rounds.record({("b", 1): "ok"})
    assert game.journal.results()[-1] == (1, "b", "ok", True, True)


def test_a_client_that_was_restarted_and_invited_twice():
    """Both of its responses come together; the older one belongs to the older round."""
    game = Game(m=1, over_selection=2.0, deadline_s=10.0)
    assert sorted(game.open(available=["a", "b"])) == ["a", "b"]
    game.record_at(1.0, ("b", 1))
    game.rounds.close()
    began = game.start
    game.open(available=["a"])  # back under another address, so not busy
    game.clock.now = began + 4.0
    game.rounds.record({("a", 1): "ok", ("a", 2): "ok"})
    assert sorted(game.scheduler.calls[1:]) == [[("a", "ok", 3.0)], [("a", "ok", 4.0)]]
    assert sorted(game.journal.results()[1:]) == [
        (1, "a", "ok", True, True),
        (2, "a", "ok", False, False),
    ]
    result = game.rounds.close()
    assert (result.kept, result.latencies, result.n_late) == (("a",), {"a": 3.0}, 1)
    assert game.scheduler.in_flight == []


def test_a_response_that_the_policy_cannot_use_is_a_failure_and_spoils_no_other():
    """Oort needs a loss of every client that responds; with it b is one beyond the target."""
    game = opened(["a", "b"], m=1, policy=Oort(), over_selection=2.0, late="drop")
    game.clock.now += 1.0
    usable = Observation(latency_s=1.0, loss=0.5, samples=3)
    game.rounds.record({("a", 1): "ok", ("b", 1): usable})
    assert game.journal.results() == [(1, "a", "failed", False, False), (1, "b", "ok", True, True)]
    game.rounds.close()
    assert game.scheduler.in_flight == []
    game.open(["a", "b"])


# --- time, and calls out of order -----------------------------------------------------------------


def test_time_counts_from_when_sending_began():
    game = Game(m=1, deadline_s=10.0)
    (client,) = game.rounds.open(["a"])
    game.clock.now += 3.0  # the message is written
    before = game.clock.now
    game.clock.now += 2.0  # and sent
    game.rounds.sent({client: "token"}, at=before, timeout_s=6.0)
    assert game.rounds.waited_s == 2.0
    game.clock.now = before + 6.0
    assert game.rounds.is_over(), "the caller's timeout is sooner than the deadline"
    assert game.rounds.close().timeouts == ("a",)
    game.rounds.open(["a"])
    game.clock.now += 3.0
    game.rounds.sent({"a": "another"})
    assert game.rounds.waited_s == 3.0, "by default, from when the cohort was selected"


def test_pauses_end_where_the_round_does():
    game = opened(deadline_s=10.0)
    game.clock.now += 9.95
    assert game.rounds.pause_s() == pytest.approx(0.05)


def test_calls_out_of_order():
    game = Game()
    for call in (game.rounds.is_over, game.rounds.pause_s, game.rounds.close):
        with pytest.raises(InvalidInput, match="call open, then sent"):
            call()
    with pytest.raises(NotEnoughClients, match="at least one available client, got none"):
        game.rounds.open([])


def test_a_rejected_outcome_changes_nothing():
    game = opened(deadline_s=10.0)
    game.clock.now += 1.0
    with pytest.raises(InvalidInput, match="outcome .* got 'fine'"):
        game.rounds.record({("a", 1): "ok", ("b", 1): "fine"})
    assert game.rounds.invitations.busy == {"a", "b", "c"}
    game.record_at(2.0, ("a", 1))
    assert game.reported == [("a", "ok", 2.0)]


def test_every_client_of_the_cohort_has_a_token_of_its_own():
    game = Game(deadline_s=10.0)
    with pytest.raises(InvalidInput, match="a token must be new, got 'same'"):
        game.rounds.sent(dict.fromkeys(game.rounds.open(ALL), "same"))
    game.rounds.open(["a"])
    with pytest.raises(InvalidInput, match="tokens must name clients of the cohort, got 'b'"):
        game.rounds.sent({"a": 1, "b": 2})
