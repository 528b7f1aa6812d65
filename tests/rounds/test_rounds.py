"""Rounds that are opened, heard and closed on a clock of the test's own."""

import pytest

from bsfl import Observation, Oort, Scheduler, UniformRandom
from bsfl.errors import InvalidInput, NotEnoughClients
from bsfl.rounds import RoundPlan, Rounds
from fake_clock import FakeClock

ALL = ["a", "b", "c"]


class Spy(Scheduler):
    """A scheduler that remembers what it was told, and in how many calls."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.told, self.calls = [], 0

    def observe(self, answers, **options):
        super().observe(answers, **options)
        self.told += [(c, o.outcome, o.latency) for c, o in answers.items()]
        self.calls += len(answers) > 0


class Game:
    """Rounds on a fake clock; the token of an invitation is the client and the round."""

    def __init__(self, cohort_size=3, **plan):
        self.clock = FakeClock()
        self.scheduler = Spy(UniformRandom(), cohort_size=cohort_size)
        self.rounds = Rounds(
            self.scheduler, RoundPlan(cohort_size=cohort_size, **plan), clock=self.clock
        )
        self.start = self.clock.now

    def open(self, available=ALL, unreachable=()):
        cohort = self.rounds.open(available)
        t = self.scheduler.t
        self.rounds.sent({client: (client, t) for client in cohort if client not in unreachable})
        self.start = self.clock.now
        return cohort

    def hear_at(self, seconds, *answers, outcome="ok"):
        """Let answers come in some seconds after the round began."""
        self.clock.now = self.start + seconds
        self.rounds.hear(dict.fromkeys(answers, outcome))

    @property
    def told(self):
        told, self.scheduler.told = self.scheduler.told, []
        return told


def test_a_round():
    game = Game(deadline_s=10.0)
    assert sorted(game.open()) == ALL
    assert game.rounds.invitations.busy == {"a", "b", "c"}
    game.hear_at(2.0, ("b", 1))
    assert not game.rounds.is_over()
    game.hear_at(3.0, ("a", 1), outcome="failed")
    game.hear_at(4.0, ("c", 1))
    assert game.rounds.is_over()
    closed = game.rounds.close()
    assert (closed.t, closed.kept, closed.failed, closed.timeouts) == (1, ("b", "c"), ("a",), ())
    assert closed.latencies == {"b": 2.0, "c": 4.0}
    assert (closed.duration_s, closed.slowest) == (4.0, "c")
    assert (closed.n_late, closed.n_seen, closed.n_fleet) == (0, 2, 3)
    assert game.told == [("b", "ok", 2.0), ("a", "failed", 3.0), ("c", "ok", 4.0)]
    assert game.scheduler.outstanding == []
    assert game.rounds.invitations.tokens == []
    expected = "bsfl: 2 of 3 clients in 4.0 s, slowest 'c' after 4.0 s, 0 timed out, "
    assert closed.line() == f"{expected}1 failed ('a'), 0 late, 2 of 3 seen"


def test_the_deadline_is_told_as_a_timeout_once():
    game = Game(deadline_s=10.0)
    game.open()
    game.hear_at(2.0, ("a", 1), ("b", 1))
    game.clock.now = game.start + 10.0
    assert game.rounds.is_over()
    closed = game.rounds.close()
    assert (closed.kept, closed.timeouts, closed.duration_s) == (("a", "b"), ("c",), 10.0)
    assert game.told[2:] == [("c", "timeout", 10.0)]
    game.hear_at(11.0)
    assert game.told == []
    assert game.rounds.invitations.busy == {"c"}, "it may still be at work"


def test_a_late_answer_to_an_earlier_round_is_told_once():
    game = Game(deadline_s=10.0)
    game.open()
    game.hear_at(1.0, ("a", 1), ("b", 1))
    game.clock.now = game.start + 10.0
    game.rounds.close()
    assert [client for client, *_ in game.told] == ["a", "b", "c"]
    began = game.start
    game.open(available=["a", "b"])
    game.clock.now = began + 17.0
    game.rounds.hear({("c", 1): "ok", ("a", 2): "ok"})
    assert game.told == [("a", "ok", 7.0)], "that c took more than 10 s is known"
    assert not game.rounds.is_over(), "it belongs to another round"
    game.hear_at(8.0, ("b", 2))
    closed = game.rounds.close()
    assert (closed.kept, closed.n_late) == (("a", "b"), 1)
    assert "c" not in closed.latencies
    game.open()
    assert game.rounds.close().n_late == 0, "counted once"


def test_over_selection_hears_the_others_later():
    game = Game(cohort_size=2, invite=1.5, deadline_s=10.0)
    assert len(game.open()) == 3
    game.hear_at(1.0, ("c", 1))
    game.hear_at(2.0, ("a", 1))
    assert game.rounds.is_over()
    closed = game.rounds.close()
    assert (closed.kept, closed.timeouts) == (("c", "a"), ()), "b is not late yet"
    assert game.scheduler.outstanding == ["b"]
    began = game.start
    game.open(available=["a", "c"])
    game.clock.now = began + 6.0
    game.rounds.hear({("b", 1): "ok"})
    assert game.told[-1] == ("b", "late", 6.0), "learned from, though its work is not used"
    assert game.scheduler.outstanding == ["a", "c"]


def test_over_selected_clients_that_never_answer_time_out_in_a_later_round():
    game = Game(cohort_size=2, invite=1.5, deadline_s=10.0)
    game.open()
    game.hear_at(1.0, ("a", 1), ("b", 1))
    game.rounds.close()
    game.hear_at(9.9)
    assert len(game.told) == 2
    game.hear_at(10.0)
    assert game.told == [("c", "timeout", 10.0)]
    game.hear_at(10.5)
    assert game.told == []


def test_expired_invitations_make_free_and_are_passed_over():
    game = Game(deadline_s=10.0, lifetime_s=15.0)
    game.open()
    game.hear_at(1.0, ("a", 1), ("b", 1))
    game.clock.now = game.start + 10.0
    game.rounds.close()
    game.hear_at(14.9)
    assert game.rounds.invitations.busy == {"c"}
    assert game.rounds.invitations.settled_at == game.start + 15.0
    game.hear_at(15.0)
    assert game.rounds.invitations.busy == set()
    assert game.told[-1] == ("c", "timeout", 10.0)
    game.hear_at(16.0, ("c", 1))
    assert game.told == []
    game.open()
    assert game.rounds.close().n_late == 0


def test_a_round_that_waits_for_its_quorum_until_everything_expires():
    game = Game(deadline_s=10.0, quorum=2)
    game.open()
    game.hear_at(1.0, ("a", 1))
    game.hear_at(10.0)
    assert not game.rounds.is_over()
    game.hear_at(20.0)
    assert game.rounds.is_over()
    closed = game.rounds.close()
    assert (closed.kept, sorted(closed.timeouts)) == (("a",), ["b", "c"])
    assert game.rounds.invitations.tokens == []
    assert sorted(game.told) == [("a", "ok", 1.0), ("b", "timeout", 20.0), ("c", "timeout", 20.0)]


def test_a_client_that_was_restarted_and_invited_twice():
    """Both of its answers come together; the older one belongs to the older round."""
    game = Game(cohort_size=1, invite=2.0, deadline_s=10.0)
    assert sorted(game.open(available=["a", "b"])) == ["a", "b"]
    game.hear_at(1.0, ("b", 1))
    game.rounds.close()
    began = game.start
    game.open(available=["a"])  # back under another address, so not busy
    game.clock.now = began + 4.0
    calls = game.scheduler.calls
    game.rounds.hear({("a", 1): "ok", ("a", 2): "ok"})
    assert game.told[1:] == [("a", "late", 4.0), ("a", "ok", 3.0)]
    assert game.scheduler.calls == calls + 2, "one report cannot name a client twice"
    closed = game.rounds.close()
    assert (closed.kept, closed.latencies, closed.n_late) == (("a",), {"a": 3.0}, 1)
    assert game.scheduler.outstanding == []


def test_who_could_not_be_reached_has_failed():
    game = Game(deadline_s=10.0)
    game.open(unreachable=["b"])
    assert game.told == [("b", "failed", None)]
    game.hear_at(1.0, ("a", 1), ("c", 1))
    assert game.rounds.is_over()
    assert game.rounds.close().failed == ("b",)
    game.open(unreachable=ALL)
    assert game.rounds.is_over(), "nobody is left to wait for"


def test_what_is_heard_together_is_told_together():
    game = Game(deadline_s=10.0)
    game.open()
    game.hear_at(1.0, ("a", 1), ("b", 1), ("c", 1))
    assert game.scheduler.calls == 1


def test_observations_are_passed_on_as_they_are():
    game = Game(deadline_s=10.0)
    game.open()
    game.clock.now += 5.0
    game.rounds.hear({("a", 1): Observation(latency=3.5, loss=0.25, samples=7)})
    assert game.told == [("a", "ok", 3.5)]
    assert game.rounds.close().latencies == {"a": 3.5}


def test_time_counts_from_when_sending_began():
    game = Game(cohort_size=1, deadline_s=10.0)
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
    assert game.rounds.waited_s == 3.0, "unless told, from when the cohort was chosen"


def test_pauses_end_where_the_round_does():
    game = Game(deadline_s=10.0)
    game.open()
    game.clock.now += 9.95
    assert game.rounds.pause_s() == pytest.approx(0.05)


def test_a_round_may_be_closed_before_it_is_over():
    game = Game(deadline_s=10.0)
    game.open()
    game.hear_at(1.0, ("a", 1))
    closed = game.rounds.close()
    assert (closed.kept, closed.timeouts) == (("a",), ()), "the others are not overdue"
    game.hear_at(2.0, ("b", 1))
    assert game.told[-1] == ("b", "late", 2.0)


def test_calls_out_of_order():
    game = Game()
    for call in (game.rounds.is_over, game.rounds.pause_s, game.rounds.close):
        with pytest.raises(InvalidInput, match="no round is running; call open, then sent"):
            call()
    with pytest.raises(NotEnoughClients, match="needs at least one available client, got none"):
        game.rounds.open([])


def test_a_refused_answer_changes_nothing():
    game = Game(deadline_s=10.0)
    game.open()
    game.clock.now += 1.0
    with pytest.raises(
        InvalidInput, match="outcome must be one of ok, timeout, failed, late, got 'fine'"
    ):
        game.rounds.hear({("a", 1): "ok", ("b", 1): "fine"})
    assert game.rounds.invitations.busy == {"a", "b", "c"}
    game.hear_at(2.0, ("a", 1))
    assert game.told == [("a", "ok", 2.0)]


def test_only_the_cohort_is_sent_to():
    game = Game(cohort_size=1, deadline_s=10.0)
    game.rounds.open(["a"])
    with pytest.raises(InvalidInput, match="tokens must name clients of the cohort, got 'b'"):
        game.rounds.sent({"a": 1, "b": 2})


def test_a_token_cannot_stand_for_two_invitations():
    game = Game(deadline_s=10.0)
    with pytest.raises(InvalidInput, match="a token must be new, got 'same', which is waited for"):
        game.rounds.sent(dict.fromkeys(game.rounds.open(ALL), "same"))


def test_small_fleets_are_invited_whole():
    game = Game(cohort_size=3, invite=2.0)
    assert sorted(game.open()) == ALL


def test_an_answer_that_the_policy_cannot_use_is_a_failure_and_spoils_no_other(caplog):
    """Oort needs a loss from whoever answers."""
    scheduler = Scheduler(Oort(), cohort_size=2)
    rounds = Rounds(scheduler, RoundPlan(cohort_size=2), clock=FakeClock())
    cohort = rounds.open(["a", "b"])
    rounds.sent({client: client for client in cohort})
    rounds.clock.now += 1.0
    rounds.hear({"a": Observation(latency=1.0, loss=0.5, samples=3), "b": "ok"})
    rounds.close()
    assert scheduler.outstanding == []
    rounds.open(["a", "b"])


def test_answers_that_the_scheduler_has_given_up_are_passed_over():
    game = Game()
    game.open()
    game.scheduler.abandon(["a"])
    game.hear_at(1.0, ("a", 1), ("b", 1), ("c", 1))
    assert set(game.rounds.close().kept) == set(ALL)
    assert game.scheduler.outstanding == []
