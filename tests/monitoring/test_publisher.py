"""Events and records of rounds: in the journal, in the log, and for callbacks, which cannot stop them."""

import copy
import logging
import os
import pickle
import threading
import time

import numpy as np
import pytest

from bsfl import Observation, Pace, Scheduler, UniformRandom
from bsfl.errors import InvalidInput
from bsfl.monitoring import Journal, read_journal
from memory_journal import MemoryJournal

CLIENTS = ["ann", "bob", "cem"]


def run(scheduler, rounds, clients=range(9)):
    for _ in range(rounds):
        scheduler.observe({c: 1.0 + c for c in scheduler.select(clients)})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rounds.jsonl"


# --- callbacks and the log --------------------------------------------------------------------------


def test_a_callback_gets_the_record_of_every_round_once():
    records, others = [], []
    scheduler = Scheduler(UniformRandom(), cohort_size=2, on_round=[records.append, others.append])
    run(scheduler, 3)
    first = scheduler.select(range(20, 29))
    scheduler.observe({first[0]: 2.0})
    assert len(records) == 3, "a response is pending"
    scheduler.select(range(9))
    assert [(record.round, record.n_fresh) for record in records] == [
        (1, 2),
        (2, 2),
        (3, 2),
        (4, 1),
    ]
    assert others == records


def test_a_record_holds_what_was_known_when_the_round_closed():
    records = []
    scheduler = Scheduler(
        UniformRandom(), cohort_size=2, over_selection=1.5, on_round=records.append
    )
    a, b, c = scheduler.select(CLIENTS)
    scheduler.observe({a: Observation(latency_s=3.0, loss=2.0)})
    scheduler.observe({b: Observation(latency_s=5.0, loss=1.0)})
    scheduler.observe({c: 9.0})
    (record,) = records
    assert record.cohort == (a, b, c)
    assert (record.n_fresh, record.n_late, record.duration_s, record.train_loss) == (2, 0, 5.0, 1.5)
    assert scheduler.last_round.n_late == 1


def test_a_journal_on_a_slow_disk_holds_up_no_query(path, monkeypatch):
    begun, go, write = threading.Event(), threading.Event(), os.write

    def slow(handle, content):
        begun.set()
        assert go.wait(60)
        return write(handle, content)

    scheduler = Scheduler(cohort_size=2, journal=path)
    monkeypatch.setattr(os, "write", slow)
    thread = threading.Thread(target=scheduler.join, args=(CLIENTS,))
    thread.start()
    assert begun.wait(60)
    assert scheduler.clients == CLIENTS  # would wait for ever for a lock that the writer holds
    assert "3 members" in scheduler.summary()
    go.set()
    thread.join()
    assert [entry["new"] for entry in read_journal(path)] == [CLIENTS]


def test_diagnostics_that_fail_stop_nothing(caplog, path):
    class Broken(UniformRandom):
        def diagnostics(self, state, context):
            raise RuntimeError("no number")

    scheduler = Scheduler(Broken(), cohort_size=2, journal=path)
    run(scheduler, 3)
    closed = [entry for entry in read_journal(path) if entry["kind"] == "closed"]
    assert [entry["diagnostics"] for entry in closed] == [{}] * 3
    assert sum("rounds continue" in message for message in caplog.messages) == 1


@pytest.mark.parametrize("wrong", [3, ["text"]])
def test_a_callback_must_be_a_function(wrong):
    with pytest.raises((InvalidInput, TypeError)):
        Scheduler(cohort_size=2, on_round=wrong)


def test_the_log_has_one_line_for_each_round(caplog):
    caplog.set_level(logging.INFO, logger="bsfl")
    scheduler = Scheduler(UniformRandom(), cohort_size=2)
    a, b = scheduler.select(["ann", "bob"])
    scheduler.observe({a: 3.0, b: Observation(latency_s=60.0, outcome="timeout")})
    scheduler.select(["ann", "bob"])
    scheduler.close(discard=True)
    assert caplog.messages == [
        "round 1: 1 of 2 responded in 60 s, 1 timed out",
        "round 2: 0 of 2 responded, discarded",
    ]
    assert caplog.records[0].round.round == 1


def test_another_scheduler_publishes_to_the_same_places():
    records, journal = [], MemoryJournal()
    one = Scheduler(UniformRandom(), cohort_size=2, on_round=records.append, journal=journal)
    other = Scheduler(UniformRandom(), cohort_size=2)
    other.publish_like(one)
    run(other, 2)
    assert [record.round for record in records] == [1, 2]
    assert len(journal.of_kind("closed")) == 2


# --- the journal ------------------------------------------------------------------------------------


def test_the_events_of_a_round(path):
    scheduler = Scheduler(Pace(), cohort_size=3, journal=path, clock=lambda: 500.0)
    a, b, c = scheduler.select(["ann", "bob", "cem", "<b>dan</b>\ud800"], deadline_s=60.0)
    scheduler.observe(
        {
            a: Observation(latency_s=2.5, loss=1.5, samples=20),
            b: Observation(latency_s=60.0, outcome="timeout"),
            c: Observation(outcome="failed"),
        },
        now_s=563.0,
    )
    entries = list(read_journal(path))
    for seq, entry in enumerate(entries, start=1):
        assert (entry.pop("v"), entry.pop("seq")) == (1, seq)
        assert abs(entry.pop("time") - time.time()) < 60
        assert entry.pop("clock_s") == 500.0, "the scheduler's clock, whatever the caller's time"
    joined, opened, responses, closed = entries
    assert joined == {
        "kind": "joined", "new": ["ann", "bob", "cem", "<b>dan</b>\ud800"], "clients": [],
    }  # fmt: skip
    assert opened == {
        "kind": "opened", "round": 1, "invited": [a, b, c], "n_invited": 3, "target_responses": 3,
        "n_available": 4, "busy": [], "deadline_s": 60.0, "is_timed": False, "response_rate": 0.9,
        "now_s": 500.0,
    }  # fmt: skip
    assert responses == {
        "kind": "responses", "round": 1, "clients": [a, b, c],
        "outcome": ["ok", "timeout", "failed"], "latency_s": [2.5, 60.0, None],
        "loss": [1.5, None, None], "samples": [20.0, None, None], "is_late": False,
        "dropped": False, "staleness": 0, "now_s": 563.0,
    }  # fmt: skip
    assert closed.pop("diagnostics").keys() == {"fairness_exponent", "value_per_second"}
    assert closed == {
        "kind": "closed", "round": 1, "aggregated": [a], "is_discarded": False,
        "is_automatic": True, "measured_s": None, "duration_s": 60.0, "now_s": 563.0,
    }  # fmt: skip


def test_late_responses_and_a_replaced_credit_have_entries_of_their_own(path):
    records = []
    scheduler = Scheduler(
        UniformRandom(), cohort_size=2, over_selection=1.5, journal=path, on_round=records.append
    )
    a, b, c = scheduler.select(CLIENTS)
    scheduler.observe({a: 1.0})
    scheduler.observe({b: 2.0})  # the target: the round closes
    scheduler.close(1, aggregated=[b])
    scheduler.observe({c: Observation(latency_s=9.0, loss=0.5)})
    entries = list(read_journal(path))[2:]
    assert [
        (e["kind"], e.get("clients", e.get("aggregated")), e.get("is_late")) for e in entries
    ] == [
        ("responses", [a], False),
        ("responses", [b], False),
        ("closed", [a, b], None),
        ("closed", [b], None),
        ("responses", [c], True),
    ]
    assert ["duration_s" in entry for entry in entries[2:4]] == [True, False]
    assert [record.round for record in records] == [1], "it has closed once"


def test_a_report_without_responses_has_one_entry():
    journal = MemoryJournal()
    scheduler = Scheduler(UniformRandom(), cohort_size=2, journal=journal)
    cohort = scheduler.select(CLIENTS)
    for _ in range(2):  # with the first one the policy learns which clients were invited
        scheduler.observe({}, round=cohort)
    assert [entry["clients"] for entry in journal.of_kind("responses")] == [[]]


def test_what_happens_to_clients_has_entries_of_its_own():
    journal = MemoryJournal(availability=True)
    scheduler = Scheduler(UniformRandom(), cohort_size=1, journal=journal)
    scheduler.join(CLIENTS, samples=[1.0, 2.0, 3.0])
    scheduler.join(["dan"], features=[{"ram": 4.0}])
    scheduler.leave(["bob"])
    scheduler.online(["bob"])
    scheduler.offline(["cem"])
    scheduler.rename("ann", "eve")
    scheduler.forget(["dan", "bob"])
    scheduler.select()
    scheduler.abandon(["eve"])
    scheduler.cohort_size = 2
    kinds = [entry["kind"] for entry in journal.entries]
    assert kinds == [
        *("joined", "described", "joined", "described", "features", "left", "joined"),
        *("availability", "availability", "renamed", "forgotten"),
        *("opened", "abandoned", "closed", "settings"),
    ]
    (described, ram), (forgotten,) = journal.of_kind("described"), journal.of_kind("forgotten")
    assert described["attributes"] == {"samples": [1.0, 2.0, 3.0]}
    assert ram["attributes"] == {"features": [[4.0]]}
    assert forgotten["clients"] == ["bob", "dan"]
    assert [entry["seq"] for entry in journal.entries] == list(range(1, len(kinds) + 1))


def test_a_call_that_fails_publishes_nothing():
    records, journal = [], MemoryJournal()
    scheduler = Scheduler(UniformRandom(), cohort_size=3, journal=journal, on_round=records.append)
    with pytest.raises(InvalidInput):
        scheduler.select(["ann", "bob"])
    with pytest.raises(InvalidInput):
        scheduler.join(["ann"], samples=[-1.0])
    assert journal.entries == records == []
    scheduler.join(["ann"])
    assert [entry["seq"] for entry in journal.entries] == [1]


def test_changes_of_availability_are_written_only_if_asked(path):
    for availability in (False, True):
        journal = Journal(path, availability=availability)
        scheduler = Scheduler(UniformRandom(), cohort_size=2, journal=journal)
        scheduler.join(CLIENTS)
        scheduler.select(["ann", "cem"])
        journal.close()
    found = [entry for entry in read_journal(path) if entry["kind"] == "availability"]
    assert [(entry["on"], entry["off"]) for entry in found] == [([], ["bob"])]
    assert [entry["seq"] for entry in read_journal(path)] == [1, 3, 1, 2, 3]


def test_settings_that_a_file_is_loaded_with_are_written(path, tmp_path):
    Scheduler(UniformRandom(), cohort_size=2).save(tmp_path / "s")
    Scheduler.load(tmp_path / "s", cohort_size=5, over_selection="auto", journal=path)
    plans = [entry["plan"] for entry in read_journal(path)]
    assert [(p["target_responses"], p["over_selection"]) for p in plans] == [(5, 1.0), (5, "auto")]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copy_publishes_to_the_log_alone(path, copied):
    scheduler = Scheduler(UniformRandom(), cohort_size=2, journal=path, on_round=lambda r: None)
    run(scheduler, 1)
    n = len(list(read_journal(path)))
    other = copied(scheduler)
    run(other, 3)
    assert len(list(read_journal(path))) == n
    run(scheduler, 1)
    assert len(list(read_journal(path))) > n


def test_slow_clients_are_written_with_what_they_were_weighed_by(path):
    scheduler = Scheduler(cohort_size=3, journal=path)
    clients = [f"phone-{i}" for i in range(10)]
    for _ in range(20):
        scheduler.observe({c: 1.0 + clients.index(c) for c in scheduler.select(clients)})
    opened = [entry for entry in read_journal(path) if entry["kind"] == "opened"][-1]
    why, (selection, _) = opened["why"], scheduler._engine.selection
    at = [selection.candidates.tolist().index(clients.index(c)) for c in why["clients"]]
    worth = selection.alpha * selection.g[at] / 3
    assert why["unit"] == "s"
    assert sorted(why["clients"]) == sorted(opened["invited"])
    assert why["expected"] == sorted(np.round(-selection.u[at], 4), reverse=True), "slowest first"
    assert why["worth"] == np.round(worth, 4).tolist()
    run(random := Scheduler(UniformRandom(), cohort_size=2, journal=MemoryJournal()), 3)
    assert not any("why" in entry for entry in random._publisher.journal.entries)
