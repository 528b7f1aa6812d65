"""Rounds for an app with its own loop."""

import itertools

import pytest
from fake_federation import ARRAYS, Spy
from fake_grid import RAISED, FakeGrid, fleet
from flwr.app import Message, RecordDict

from bsfl import Scheduler, UniformRandom
from bsfl.errors import InvalidInput
from bsfl.integrations.flower import rounds
from fake_clock import FakeClock


def loop(nodes, *, cohort_size=2, **options):
    grid = FakeGrid(nodes, FakeClock())
    scheduler = Spy(UniformRandom(), cohort_size=cohort_size)
    return rounds(grid, scheduler, clock=grid.clock, **options), scheduler


def messages_to(nodes):
    return [Message(RecordDict({"arrays": ARRAYS}), node, "train") for node in nodes]


def test_a_custom_loop():
    nodes = fleet(2.0, 1.0, None, 1.0)
    nodes[104].fails = RAISED
    played, scheduler = loop(nodes, cohort_size=4, n_rounds=2, deadline_s=5.0)
    seen = []
    for cohort in played:
        assert cohort.clients == {node: str(node - 101) for node in cohort.nodes}
        replies = cohort.send_and_receive(messages_to(cohort.nodes))
        assert [reply.has_error() for reply in replies] == [False, False, True], "errors come last"
        assert sorted(r.metadata.src_node_id for r in replies) == [101, 102, 104]
        seen.append((cohort.server_round, cohort.summary))
    (first, summary), (second, _) = seen
    assert (first, second) == (1, 2)
    assert (summary.kept, summary.timeouts, summary.failed) == (("1", "0"), ("2",), ("3",))
    assert scheduler.round == 2
    assert ("2", "timeout", 5.0) in scheduler.reported


def test_a_round_that_sends_nothing_is_abandoned():
    played, scheduler = loop(fleet(1.0, 1.0))
    for _ in itertools.islice(played, 3):
        pass
    assert scheduler.round == 3
    assert len(scheduler.in_flight) <= 2, "no more than the last round's"


def test_what_was_learned_is_kept(tmp_path):
    path = tmp_path / "scheduler.bsfl"
    for n in (2, 4):
        played, _ = loop(fleet(1.0, 1.0), n_rounds=2, state_path=path)
        for cohort in played:
            cohort.send_and_receive(messages_to(cohort.nodes))
        assert Scheduler.load(path).round == n


def test_wrong_use():
    played, _ = loop(fleet(1.0, 1.0))
    cohort = next(played)
    with pytest.raises(InvalidInput, match="to each of the 2 nodes .* 1 messages to 1 of them"):
        cohort.send_and_receive(messages_to(cohort.nodes[:1]))
    cohort.send_and_receive(messages_to(cohort.nodes))
    with pytest.raises(InvalidInput, match="round 1 is over"):
        cohort.send_and_receive(messages_to(cohort.nodes))
    with pytest.raises(InvalidInput, match="n_rounds .* got 0"):
        loop(fleet(1.0), n_rounds=0)
    with pytest.raises(InvalidInput, match="scheduler must be a bsfl.Scheduler, got 7"):
        rounds(None, 7)
