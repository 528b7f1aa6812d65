"""Rounds for an app with its own loop."""

import itertools

import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from fake_federation import ARRAYS, Spy
from fake_grid import RAISED, FakeGrid, fleet
from flwr.app import Message, RecordDict

from bsfl import Oort, Scheduler, UniformRandom
from bsfl.errors import InvalidInput
from bsfl.integrations.flower import rounds
from fake_clock import FakeClock


def loop(nodes, *, cohort_size=2, scheduler=None, **options):
    grid = FakeGrid(nodes, FakeClock())
    scheduler = scheduler or Spy(UniformRandom(), cohort_size=cohort_size)
    return rounds(grid, scheduler, clock=grid.clock, **options), grid, scheduler


def messages_to(nodes):
    return [Message(RecordDict({"arrays": ARRAYS}), node, "train") for node in nodes]


def test_a_custom_loop():
    played, _, scheduler = loop(fleet(1.0, 2.0, None), cohort_size=3, n_rounds=2, deadline_s=5.0)
    seen = []
    for cohort in played:
        assert cohort.clients == {node: str(node - 101) for node in cohort.nodes}
        replies = cohort.send_and_receive(messages_to(cohort.nodes))
        assert sorted(r.metadata.src_node_id for r in replies) == [101, 102]
        seen.append((cohort.server_round, cohort.summary.kept, cohort.summary.timeouts))
    assert seen[0] == (1, ("0", "1"), ("2",))
    assert seen[1][0] == 2
    assert scheduler.round == 2
    assert ("2", "timeout", 5.0) in scheduler.reported


def test_errors_come_last():
    nodes = fleet(1.0, 2.0)
    nodes[101].fails = RAISED
    played, _, _ = loop(nodes)
    cohort = next(played)
    replies = cohort.send_and_receive(messages_to(cohort.nodes))
    assert [reply.has_error() for reply in replies] == [False, True]
    assert cohort.summary.failed == ("0",)


def test_a_round_that_sends_nothing_is_abandoned():
    played, _, scheduler = loop(fleet(1.0, 1.0))
    for _ in itertools.islice(played, 3):
        pass
    assert scheduler.round == 3
    assert len(scheduler.in_flight) <= 2, "no more than the last round's"


def test_what_was_learned_is_kept(tmp_path):
    path = tmp_path / "scheduler.bsfl"
    for _ in range(2):
        played, _, _ = loop(
            fleet(1.0, 1.0),
            scheduler=Scheduler(UniformRandom(), cohort_size=2),
            n_rounds=2,
            state_path=path,
        )
        for cohort in played:
            cohort.send_and_receive(messages_to(cohort.nodes))
    assert Scheduler.load(path).round == 4


def test_wrong_use():
    played, _, _ = loop(fleet(1.0, 1.0))
    cohort = next(played)
    with pytest.raises(InvalidInput, match="to each of the 2 nodes .* 1 messages to 1 of them"):
        cohort.send_and_receive(messages_to(cohort.nodes[:1]))
    cohort.send_and_receive(messages_to(cohort.nodes))
    with pytest.raises(InvalidInput, match="round 1 is over"):
        cohort.send_and_receive(messages_to(cohort.nodes))
    with pytest.raises(InvalidInput, match="n_rounds must be a whole number of at least 1, got 0"):
        loop(fleet(1.0), n_rounds=0)
    with pytest.raises(InvalidInput, match="needs the loss of every client"):
        loop(fleet(1.0), scheduler=Scheduler(Oort(), cohort_size=1))
    with pytest.raises(InvalidInput, match="scheduler must be a bsfl.Scheduler, got 7"):
        loop(fleet(1.0), scheduler=7)
