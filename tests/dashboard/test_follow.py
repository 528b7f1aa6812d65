"""A journal as it grows: rotation, restarts, malformed lines, and the last part first."""

import json

import pytest

from bsfl import Observation, Scheduler, UniformRandom
from bsfl.dashboard import follow
from bsfl.dashboard.follow import Follower
from bsfl.monitoring import Journal
from journal_entries import whole


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rounds.jsonl"


def lines(*entries):
    return b"".join(
        json.dumps({"v": 1, **e}, separators=(",", ":")).encode() + b"\n" for e in entries
    )


def test_a_growing_journal_is_read_once_also_when_it_rotates(path):
    clients = ["ann", "bob", "cem", "dan"]
    journal = Journal(path, max_bytes=4000, n_kept=30)
    scheduler, follower = Scheduler(UniformRandom(), cohort_size=2, journal=journal), Follower(path)
    for n in (1, 3, 7, 2, 12):
        for _ in range(n):
            cohort = scheduler.select(clients)
            scheduler.observe({c: 1.0 + clients.index(c) for c in cohort})
        follower.update()
        sums = follower.shown.sums
        assert sums.rounds.n == scheduler.round
        counted = {row["client"]: row["participations"] for row in scheduler.table()}
        found = {c: sums.clients.table["n_fresh"][row] for c, row in sums.index.items()}
        assert found == {c: counted[c] for c in found}
    assert len(list(path.parent.iterdir())) > 3
    with path.open("ab") as file:
        file.write(b'{"v":1,"kind":"opened","round":99')  # it is being written
    follower.update()
    assert (follower.shown.sums.rounds.n, follower.shown.n_malformed) == (scheduler.round, 0)


def test_a_journal_that_is_replaced_is_read_again(path):
    follower = Follower(path)
    for n_rounds in (3, 1):
        path.unlink(missing_ok=True)
        scheduler = Scheduler(UniformRandom(), cohort_size=1, journal=Journal(path))
        for _ in range(n_rounds):
            scheduler.select(["a"])
            scheduler.observe({"a": Observation(latency_s=1.0)})
        follower.update()
        assert follower.shown.sums.rounds.n == n_rounds
        scheduler._publisher.journal.close()


def test_of_a_long_journal_the_last_part_is_read_first(path, monkeypatch):
    rounds = [lines(*whole(t, [2.0, 3.0])) for t in range(1, 101)]
    path.with_name("rounds.jsonl.1").write_bytes(b"".join(rounds[:60]))
    path.write_bytes(b"".join(rounds[60:]))
    for n_last in (10, 45):  # the last one begins in the older file
        monkeypatch.setattr(follow, "TAIL_BYTES", len(b"".join(rounds[100 - n_last :])) + 9)
        monkeypatch.setattr(follow, "PASS_S", 0.0)  # one line at a time
        follower = Follower(path)
        follower.update()
        assert (follower.shown.sums.rounds.n, follower.shown.n_malformed) == (n_last, 0)
        assert follower.part_read == 0.0
        follower.catch_up()
        assert 0 < follower.part_read < 0.1
        monkeypatch.setattr(follow, "PASS_S", 60.0)
        follower.catch_up()
        assert (follower.part_read, follower.shown.sums.rounds.n) == (1.0, 100)


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (b"<script>\n", "it does not begin like the line of a journal"),
        (b'{"v":1,"kind":"opened","round":\n', "it is not JSON"),
        (b'{"v":1,"kind":"opened","a":' + b"[" * 10**5 + b"\n", "it is not JSON"),
        (b'{"v":1,"kind":"opened","time":' + b"[" * 950 + b"]" * 950 + b"}\n", ""),
        (b'{"v":1,"kind":"closed"}\n', "round must be of type int, got None"),
    ],
)
def test_malformed_lines_are_counted_and_named(path, wrong, fault):
    first = lines(*whole(1, [2.0]))
    path.write_bytes(first + wrong + b'{"v":1,"kind":"availability"}\n' + lines(*whole(2, [2.0])))
    follower = Follower(path)
    follower.update()
    assert (follower.shown.sums.rounds.n, follower.shown.n_malformed) == (2, 1)
    assert follower.shown.fault.startswith(f"byte {len(first):,} of rounds.jsonl: {fault}")
