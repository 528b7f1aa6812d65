"""Sums over a journal as it grows, by hand."""

import math
import time
from statistics import NormalDist

import pytest

from bsfl import Observation, Scheduler, UniformRandom
from bsfl.dashboard.follow import LAST_COHORTS, Followed, Follower
from bsfl.monitoring import Journal
from journal_entries import closed, opened, responses, whole


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rounds.jsonl"


def followed(*entries):
    sums = Followed()
    for entry in entries:
        sums.add(entry)
    return sums


def lost_s(sums):
    return {client: one.lost_s for client, one in sums.clients.items()}


def test_seconds_lost_are_those_beyond_the_second_slowest():
    sums = followed(
        *whole(1, [2.0, 5.0, 11.0]),  # c costs 6 s
        *whole(2, [9.0, 5.0, 8.0]),  # a costs 1 s
        *whole(3, [7.0]),  # alone: all of it
    )
    assert lost_s(sums) == {"a": 8.0, "b": 0.0, "c": 6.0}
    assert [one.last for one in sums.rounds] == [("c",), ("a",), ("a",)]
    assert (sums.rounds[0].round, sums.rounds[0].n_invited, sums.rounds[0].n_fresh) == (1, 3, 3)
    assert (sums.n_rounds, sums.total_s, sums.mean_s) == (3, 27.0, 9.0)
    assert sums.fair_count == 3 / 4 + 3 / 4 + 1 / 4
    assert (sums.clients["a"].n_fresh, sums.clients["a"].n_last) == (3, 2)
    assert sums.gini() == pytest.approx(2 / 21)  # of 2, 2 and 3: (-2*2 + 0*2 + 2*3) / (3 * 7)


def test_clients_that_come_last_together_share_the_seconds():
    sums = followed(*whole(1, [2.0, 60.0, 60.0], outcome=["ok", "timeout", "timeout"]))
    assert [one.last for one in sums.rounds] == [("b", "c")]
    assert lost_s(sums) == {"a": 0.0, "b": 29.0, "c": 29.0}, "58 s for two"


def test_a_response_after_the_close_costs_no_second():
    sums = followed(
        opened(1, ["a", "b", "c", "d"], target_responses=2),
        responses(1, {"a": 2.0, "b": 5.0}),
        closed(1, 5.0),
        responses(1, {"c": 70.0}, is_late=True),
        responses(1, {"d": 90.0}, outcome=["timeout"], is_late=True),
    )
    assert lost_s(sums) == {"a": 0.0, "b": 3.0, "c": 0.0, "d": 0.0}
    assert sums.clients["c"].n_late == sums.clients["d"].n_timeouts == 1
    assert sums.cohorts[0]["outcome"] == ["ok", "ok", "late", "timeout"]
    assert sums.cohorts[0]["latency_s"] == [2.0, 5.0, 70.0, 90.0]
    assert sums.rounds[0].n_fresh == 2


def test_a_late_response_belongs_to_its_own_round():
    sums = followed(
        opened(1, ["a", "b"]),
        responses(1, {"a": 2.0}),
        closed(1, 2.0),
        *whole(2, [3.0, 1.0]),
        responses(1, {"b": 4.0}, is_late=True),
    )
    assert sums.cohorts[0]["outcome"] == ["ok", "late"]
    assert sums.cohorts[1]["latency_s"] == [3.0, 1.0]
    assert sums.latencies()["b"][0] == pytest.approx(2.0), "of 1 s and 4 s"


def test_rounds_that_overlap():
    sums = followed(opened(1, ["a", "b"]), opened(2, ["b", "c"]), responses(2, {"b": 3.0}))
    assert {number: one.pending for number, one in sums.open.items()} == {1: ["a", "b"], 2: ["c"]}
    assert sums.waiting is sums.open[2]
    sums.add(closed(1, None))
    assert list(sums.open) == [2]
    assert (sums.n_rounds, sums.mean_s, sums.rounds[0].duration_s) == (1, None, None)
    sums.add(responses(2, {"c": 4.0}))
    sums.add(closed(2, 4.0))
    assert (sums.waiting, sums.mean_s) == (None, 4.0), "of rounds whose duration is known"
    sums.add(closed(2, 4.0))
    assert sums.n_rounds == 2, "a credit that is replaced is no other round"


def test_abandoned_clients_are_not_pending():
    sums = followed(
        opened(1, ["a", "b", "c"]),
        opened(2, ["a"]),
        responses(1, {"a": 2.0}),
        {"kind": "abandoned", "clients": ["a", "b", "z"]},
    )
    assert [one.pending for one in sums.open.values()] == [["c"], []]
    sums.add(closed(1, 2.0))
    assert sums.cohorts[0]["outcome"] == ["ok", "abandoned", None]


def test_forgotten_and_renamed_clients():
    sums = followed(*whole(1, [2.0, 5.0, 11.0]), opened(2, ["a", "b"]))
    sums.add({"kind": "forgotten", "clients": ["b"]})
    sums.add({"kind": "renamed", "client": "a", "name": "ann"})
    sums.add(responses(2, {"ann": 2.0}))
    assert sums.clients.keys() == {"c", "ann"}
    assert (sums.clients["ann"].n_invited, sums.clients["ann"].n_fresh) == (2, 2)
    assert sums.open[2].pending == []
    assert sums.cohorts[0]["invited"] == ["a", "b", "c"], "as it was"


def test_latencies_by_hand():
    sums = followed(*whole(1, [1.0]), *whole(2, [4.0]), *whole(3, [16.0]))
    # logarithms to base 4 are 0, 1, 2: mean 1, squared deviations 2; as in Scheduler.table
    spread = 2 * math.log(4) ** 2
    variance = (4 * 0.05 + spread) / (4 + 2)
    sigma = math.sqrt((4 * variance + spread) / (4 + 2))
    wide = math.exp(NormalDist().inv_cdf(0.9) * sigma * math.sqrt(1 + 1 / 3))
    assert sums.latencies() == {"a": pytest.approx((4.0, 4.0 / wide, 4.0 * wide))}
    assert Followed().latencies() == {}


def test_availability_is_counted_by_local_hour():
    noon = time.mktime((2026, 3, 4, 12, 30, 0, 0, 0, 0))
    sums = followed(
        *whole(1, [2.0], n_available=4, time=noon), *whole(2, [2.0], n_available=8, time=noon + 60)
    )
    assert (sums.n_available[12], sums.n_by_hour[12], sum(sums.n_by_hour)) == (12, 2, 2)


def test_the_last_cohorts_are_kept():
    sums = followed(*(entry for t in range(1, 40) for entry in whole(t, [2.0])))
    assert [entry["round"] for entry in sums.cohorts] == list(range(40 - LAST_COHORTS, 40))


MALFORMED = [
    {"kind": []},
    {"kind": "of a later version"},
    opened(2, ["a"], time="noon"),
    opened(2, ["a"], time=1e300),
    opened(2, [[]]),
    opened(2, ["a"], n_available="many"),
    {"kind": "responses", "round": 1, "is_late": False, "clients": ["a"], "outcome": []},
    responses(9, {"zoe": 2.0}) | {"round": "x"},
    closed("x", 2.0),
    {"kind": "renamed"},
    {"kind": "forgotten", "clients": 5},
]


@pytest.mark.parametrize("wrong", MALFORMED)
def test_a_malformed_entry_is_ignored(wrong):
    assert followed(*whole(1, [2.0]), wrong) == followed(*whole(1, [2.0]))


def test_a_growing_journal_is_read_once_also_when_it_rotates(path):
    clients = ["ann", "bob", "cem", "dan"]
    journal = Journal(path, max_bytes=4000, n_kept=30)
    scheduler, follower = Scheduler(UniformRandom(), cohort_size=2, journal=journal), Follower(path)
    for n in (1, 3, 7, 2, 12):
        for _ in range(n):
            cohort = scheduler.select(clients)
            scheduler.observe({c: 1.0 + clients.index(c) for c in cohort})
        sums = follower.update()
        assert sums.n_rounds == scheduler.round
        counted = {row["client"]: row["participations"] for row in scheduler.table()}
        assert {c: one.n_fresh for c, one in sums.clients.items() if one.n_fresh} == {
            c: n for c, n in counted.items() if n
        }
    assert len(list(path.parent.iterdir())) > 3
    with path.open("ab") as file:
        file.write(b'{"v":1,"kind":"opened","round":99')  # it is being written
    assert follower.update().n_rounds == scheduler.round


def test_a_journal_that_is_replaced_is_read_again(path):
    follower = Follower(path)
    for n_rounds in (3, 1):
        path.unlink(missing_ok=True)
        scheduler = Scheduler(UniformRandom(), cohort_size=1, journal=Journal(path))
        for _ in range(n_rounds):
            scheduler.select(["a"])
            scheduler.observe({"a": Observation(latency_s=1.0)})
        assert follower.update().n_rounds == n_rounds
        scheduler._publisher.journal.close()


def test_a_large_cohort_takes_no_quadratic_time():
    latency_s = dict.fromkeys(range(20_000), 1.0)
    begin = time.process_time()
    followed(opened(1, latency_s), responses(1, latency_s), closed(1, 1.0)).latencies()
    assert time.process_time() - begin < 5
