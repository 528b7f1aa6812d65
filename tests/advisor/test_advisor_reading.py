"""Logs as servers write them: ids, deadlines and times; journals; hostile files."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from bsfl import Observation, Scheduler
from bsfl.advisor import read_log
from bsfl.errors import InvalidInput
from bsfl.monitoring import Journal
from bsfl.monitoring.journal import START
from bsfl.types import FAILED, TIMEOUT


@pytest.fixture
def written(tmp_path):
    def write(content, name="log.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_clients_that_only_time_out_count(written):
    log = read_log(
        written("client,latency,status\na,1.5,ok\nb,60,timeout\nb,,timeout\nc,,failed\n")
    )
    assert (log.n_clients, log.deadline_s, log.unresponsive()) == (3, 60.0, ["b", "c"])
    assert log.latency_s[:3].tolist() == [1.5, 60.0, 60.0]
    assert math.isnan(log.latency_s[3])
    assert log.outcome[3] == FAILED


def test_the_deadline_is_that_of_timeouts_or_the_longest_response(written):
    rows = "client,latency\na,1.5\nb,34.2\n"
    assert read_log(written(rows)).deadline_s == 35.0
    log = read_log(written(rows), deadline_s=20.0)
    assert log.responded.tolist() == [True, False], "a later response counts as none"
    assert log.unresponsive() == ["b"]


def test_ids_that_are_numbers_are_numbers_unless_text_is_requested(written):
    path = written("client,latency\n7,1\n-3,2\n")
    assert read_log(path).clients == [7, -3]
    assert read_log(path, ids="text").clients == ["7", "-3"]
    assert read_log(written("client,latency\n07,1\n8,2\n")).clients == ["07", "8"]
    with pytest.raises(InvalidInput, match="ids must be whole numbers, got '07'"):
        read_log(written("client,latency\n07,1\n"), ids="int")


CSV = "client,latency_s\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (CSV, "no row below the header"),
        (CSV + "a,1,2\n", "line 2: expected 2 values, got 3"),
        ("client,latency_s,status\na,,timeout\n", "no client responded, and no deadline"),
        (f"{CSV}{'a' * 1001},1\n", "id must have at most 1,000 characters"),
        (f"{CSV}{'a' * 140_000},1\n", "line 2: more than 100,000 characters"),
        (b"client,latency_s\n\xff\xfe,1\n", "line 2: not text in UTF-8"),
        (b"bsfl-state\r\n\1\0\0", "is a saved scheduler .*bsfl inspect.*needs a log of responses"),
        (START + b'"opened","round":1e999}\n' + START + b"[]}\n[1\n", "the journal has no round"),
    ],
)
def test_a_wrong_log_is_one_clear_line(written, content, message):
    with pytest.raises(InvalidInput, match=message) as raised:
        read_log(written(content))
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 700


def test_files_that_cannot_be_read_are_named(written, tmp_path, monkeypatch):
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        read_log(tmp_path / "no.csv")
    for path in (tmp_path, Path("/dev/zero"), tmp_path / "pipe"):  # opening a pipe would wait
        if path.name == "pipe":
            os.mkfifo(path)
        with pytest.raises(InvalidInput, match="cannot be read: (Is a dir|it is not a regular)"):
            read_log(path)
    monkeypatch.setattr("bsfl.simulation.client_rows.MAX_ROWS", 3)
    with pytest.raises(InvalidInput, match="more than 3 rows"):
        read_log(written(CSV + "a,1\n" * 4))


def line(kind, **entry):
    return START.decode() + f'"{kind}",' + json.dumps(entry)[1:] + "\n"


def opened(number, invited, *, n_available=3, busy=(), **more):
    more = {"target_responses": 2, "n_available": n_available, "busy": list(busy)} | more
    return line("opened", round=number, invited=invited, n_invited=len(invited), **more)


def responses(number, *rows, **more):
    """Return an entry of rows (client, outcome, seconds, loss)."""
    names = ("clients", "outcome", "latency_s", "loss")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    return line("responses", round=number, **columns, **more)


def test_a_journal_is_read_with_late_responses_and_availability(tmp_path):
    path = tmp_path / "rounds.jsonl"
    journal = Journal(path, availability=True)
    scheduler = Scheduler(cohort_size=2, over_selection=1.5, journal=journal)
    clients = ["a", "b", "c", "d"]
    for number in range(6):
        cohort = scheduler.select(available=clients if number % 2 else clients[:3])
        results = {k: 1.0 + clients.index(k) for k in cohort[1:-1]}
        results[cohort[0]] = Observation(latency_s=50.0, outcome="timeout")
        scheduler.observe(results, round=cohort)
        scheduler.close(cohort)
        scheduler.observe({cohort[-1]: Observation(latency_s=9.0, loss=0.5)}, round=cohort)
    log = read_log(path)
    assert (log.cohort_size, log.deadline_s) == (2, 50.0)
    assert len(log.client) == 18, "three of each of the six rounds"
    assert np.count_nonzero(log.outcome == TIMEOUT) == 6
    assert np.count_nonzero(log.latency_s == 9.0) == 6, "late responses have their latency"
    assert np.count_nonzero(log.loss == 0.5) == 6
    assert log.available.shape == (6, log.n_clients)
    assert log.availability == pytest.approx(min(1.0, 3.5 / log.n_clients))
    for client, is_online in zip(log.clients, log.available.T, strict=True):
        assert is_online.tolist() == ([False, True] * 3 if client == "d" else [True] * 6)
    with path.open("ab") as file:
        file.write(START + b'"opened","round":7,"inv')  # torn
    assert np.array_equal(read_log(path).latency_s, log.latency_s)


def test_a_journal_without_changes_of_availability_says_how_many_were_available(written):
    text = line("joined", new=["a", "b", "c"], clients=[], first_round=1)
    text += opened(1, ["a", "b"]) + responses(1, ("a", "ok", 2.0, None), ("b", "ok", 3.0, None))
    text += line("availability") + opened(2, ["a"], n_available=1)
    text += responses(2, ("a", "ok", 2.5, None))
    log = read_log(written(text, "rounds.jsonl"))
    assert log.available is None
    assert log.availability == 1.0, "2 of 2"
    assert log.latency_s.tolist() == [2.0, 3.0, 2.5]


def test_changes_of_availability_show_which_clients_could_be_selected(written):
    text = line("joined", new=["a", "b", "c", "d"], clients=[], first_round=1)
    text += opened(1, ["a", "b"], n_available=4)
    text += responses(1, ("a", "ok", 2.0, None), ("b", "ok", 3.0, None))
    text += line("availability", on=[], off=["a"]) + line("left", clients=["d"], first_round=2)
    text += opened(2, ["c"], n_available=1, busy=["b"]) + responses(2, ("c", "failed", None, None))
    text += line("joined", new=[], clients=["d"], first_round=3)
    text += line("renamed", client="c", name="z")
    text += opened(3, ["d", "z"], n_available=3) + responses(3, ("d", "timeout", 9.0, None))
    text += opened(4, ["b"], n_available=7)  # other clients were online than the journal says
    log = read_log(written(text, "rounds.jsonl"))
    assert log.clients == ["a", "b", "z", "d"]
    assert log.available.astype(int).tolist() == [[1, 1, 1, 1], [0, 0, 1, 0], [0, 1, 1, 1]]


def test_only_the_last_run_of_a_repeated_round_counts(written):
    text = opened(1, ["a", "b"]) + responses(1, ("a", "ok", 2.0, None), ("b", "ok", 3.0, None))
    text += responses(7, ("c", "ok", 4.0, None))  # its round was opened in a file that is gone
    text += opened(1, ["b"], target_responses=4) + responses(1, ("b", "ok", 5.0, None))
    log = read_log(written(text, "rounds.jsonl"))
    assert (log.clients, log.latency_s.tolist()) == (["b", "c"], [5.0, 4.0])
    assert log.cohort_size == 4


def test_a_foreign_journal_is_ignored_line_by_line(written):
    wrong = responses(1, ("a", "ok", 1.0, None), ("b", "ok", "x", None))
    mixed = responses(2, ("a", "ok", 1.0, None), ("b", "ok", 1e300, None), ("c", "late", 2.0, None))
    sizes = opened(2, ["a"], target_responses=-4, n_available="many")
    log = read_log(written(wrong + mixed + sizes + mixed, "rounds.jsonl"))
    assert log.clients == ["a"]
    assert log.cohort_size is None
    assert log.availability == 1.0
