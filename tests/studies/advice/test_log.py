"""Logs as servers write them: columns guessed, units, outcomes, times; journals; hostile files."""

import json
import math
import re

import numpy as np
import pytest

from bsfl import Observation, Scheduler
from bsfl.errors import InvalidInput
from bsfl.fleet.answer_log import UNITS, Columns
from bsfl.monitor import Journal
from bsfl.records import FAILED, OK, TIMEOUT
from bsfl.studies.advice.log import read_log, uncensored


@pytest.fixture
def written(tmp_path):
    def write(content, name="log.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(
    "header",
    [
        "client,latency_s",
        "Client ID;Latency (ms);x",
        "cid\tduration",
        "device_id|fit_time_min",
        "timestamp,node,elapsedMs",
    ],
)
def test_common_spellings_and_units_are_understood(written, header):
    delimiter = next(d for d in ",;\t|" if d in header)
    names = header.split(delimiter)
    scale = {"ms": 1000.0, "min": 1 / 60, "Ms": 1000.0}
    factor = next((f for unit, f in scale.items() if unit in names[-2] + names[-1]), 1.0)
    cells = {"timestamp": "17", "x": "?"}
    row = [cells.get(n) or ("ann" if i == len(names) - 2 else "") for i, n in enumerate(names)]
    is_client = [any(w in n.lower() for w in ("client", "cid", "device", "node")) for n in names]
    row = ["ann" if is_client[i] else cells.get(n, str(3.0 * factor)) for i, n in enumerate(names)]
    log = read_log(written(f"{header}\n{delimiter.join(row)}\n"))
    assert log.clients == ["ann"]
    assert log.latency_s == pytest.approx([3.0])
    unit = re.search(r"latency from '.*?' in (\w+)", log.words())[1]
    assert 3.0 * factor * UNITS[unit] == pytest.approx(3.0)


def test_columns_can_be_named(written):
    path = written("who,took,when,how\nann,2,5,ok\nbob,3,4,timeout\n")
    with pytest.raises(InvalidInput, match="no column looks like the client.*--client-column"):
        read_log(path)
    named = Columns(client="who", latency="took", time="when", outcome="how")
    log = read_log(path, columns=named)
    assert log.clients == ["bob", "ann"], "in the order of time"
    assert log.outcome.tolist() == [TIMEOUT, OK]
    with pytest.raises(InvalidInput, match="no column 'whom'; the first line is who,took"):
        read_log(path, columns=Columns(client="whom"))


def test_clients_that_only_time_out_count(written):
    log = read_log(
        written("client,latency,status\na,1.5,ok\nb,60,timeout\nb,,timeout\nc,,failed\n")
    )
    assert (log.n_clients, log.deadline_s, log.silent()) == (3, 60.0, ["b", "c"])
    assert log.latency_s[:3].tolist() == [1.5, 60.0, 60.0]
    assert math.isnan(log.latency_s[3])
    assert log.outcome[3] == FAILED
    believed = log.believed()
    assert (believed.missed - believed.missed.min()).tolist() == [0.0, 2.0, 1.0]


def test_the_deadline_is_that_of_timeouts_or_the_longest_answer(written):
    rows = "client,latency\na,1.5\nb,34.2\n"
    assert read_log(written(rows)).deadline_s == 35.0
    log = read_log(written(rows), deadline_s=20.0)
    assert log.answered.tolist() == [True, False], "what came later counts as not answered"
    assert log.silent() == ["b"]


def test_times_order_rows_and_dates_may_have_zones(written):
    text = "client,latency,time\na,1,2024-05-31T12:00:00+02:00\nb,2,2024-05-31T10:30:00Z\n"
    assert read_log(written(text)).clients == ["a", "b"], "10:00 UTC comes before 10:30"
    assert read_log(written(text.replace("+02:00", "-02:00"))).clients == ["b", "a"]


def test_ids_that_are_numbers_are_numbers_unless_told(written):
    path = written("client,latency\n7,1\n-3,2\n")
    assert read_log(path).clients == [7, -3]
    assert read_log(path, ids="text").clients == ["7", "-3"]
    assert read_log(written("client,latency\n07,1\n8,2\n")).clients == ["07", "8"]
    with pytest.raises(InvalidInput, match="ids must be whole numbers, got '07'"):
        read_log(written("client,latency\n07,1\n"), ids="int")


def test_an_answer_nobody_waited_for_is_shared_among_the_longer_ones():
    # by hand: 2 s is given up between 1 and {5, 9}; each of these two gets half of it, in whole: one
    answers, missed = uncensored(np.array([1.0, 5.0, 9.0]), np.array([2.0, 2.0]))
    assert (answers.tolist(), missed) == ([1.0, 5.0, 5.0, 9.0, 9.0], 0.0)
    answers, missed = uncensored(np.array([]), np.array([60.0, 60.0]))
    assert (len(answers), missed) == (0, 2.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no column looks like the client; .* must name the columns, and is empty"),
        ("client,latency_s\n", "no row below the header"),
        ("client,speed\na,1\n", "no column looks like the latency"),
        ("client,latency_s\na,fast\n", "line 2: latency must be a number from 1e-09 to 1e[+]12"),
        ("client,latency_s\na,1e300\n", "line 2: latency must be a number"),
        ("client,latency_s\na,-1\n", "line 2: latency must be a number"),
        ("client,latency_s\na,nan\n", "line 2: an answer needs its latency, got 'nan'"),
        ("client,latency_s\n ,1\n", "line 2: the client has no name"),
        ("client,latency_s\na,1,2\n", "line 2: expected 2 values, got 3"),
        ("client,latency_s\na\n", "line 2: expected 2 values, got 1"),
        ("client,latency_s,status\na,1,maybe\n", "line 2: the outcome must be ok, timeout"),
        ("client,latency_s,time\na,1,noon\n", "line 2: the time must be a number or a date"),
        ("client,latency_s,loss\na,1,1e99\n", "line 2: loss must be a number from"),
        ("client,latency_s,status\na,,timeout\n", "nobody answered, and no deadline"),
        (f"client,latency_s\n{'a' * 1001},1\n", "id must have at most 1,000 characters"),
        (f"client,latency_s\n{'a' * 140_000},1\n", "line 2: more than 100,000 characters"),
        (b"client,latency_s\n\xff\xfe,1\n", "line 2: not text in UTF-8"),
        (b"\x7fELF\x00\x01\x02" + bytes(range(256)), "not text in UTF-8|cannot be read|no column"),
        (b"\x89PNG\r\n\x1a\n" + bytes(1000), "not text in UTF-8|cannot be read"),
        (b"bsfl-state\r\n\1\0\0", "is a saved scheduler .*bsfl inspect.*needs a log of answers"),
        (b'{"kind":"round"}\n', "there is no round in the journal"),
        (b'{"kind":"round","t":1e999}\n{"kind":[]}\n[1\n', "there is no round in the journal"),
    ],
)
def test_a_wrong_log_is_one_clear_line(written, content, message):
    with pytest.raises(InvalidInput, match=message) as raised:
        read_log(written(content))
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 700


def test_a_log_that_is_not_there(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        read_log(tmp_path / "no.csv")
    with pytest.raises(InvalidInput, match="cannot be read: Is a directory"):
        read_log(tmp_path)


def test_more_rows_than_memory_has_room_for(written, monkeypatch):
    monkeypatch.setattr("bsfl.fleet.answer_log.MAX_ROWS", 3)
    with pytest.raises(InvalidInput, match="more than 3 rows"):
        read_log(written("client,latency_s\n" + "a,1\n" * 4))


def test_a_journal_is_read_with_who_was_late_and_available(tmp_path):
    path = tmp_path / "rounds.jsonl"
    scheduler = Scheduler(cohort_size=2, journal=Journal(path, lists_available=True))
    fleet = ["a", "b", "c", "d"]
    for t in range(6):
        available = fleet if t % 2 else fleet[:3]
        cohort = scheduler.select(available=available, invite=1.5)
        told = {k: 1.0 + "abcd".index(k) for k in cohort[:-1]}
        told[cohort[0]] = Observation(latency=50.0, outcome="timeout")
        scheduler.observe(told)
        scheduler.observe({cohort[-1]: Observation(latency=9.0, outcome="late", loss=0.5)})
    scheduler.select(available=fleet)  # so that the last round is told
    log = read_log(path)
    assert (log.cohort_size, log.deadline_s) == (2, 50.0)
    assert len(log.client) == 18, "three of each of the six rounds"
    assert np.count_nonzero(log.outcome == TIMEOUT) == 6
    assert np.count_nonzero(log.latency_s == 9.0) == 6, "late answers tell their latency"
    assert log.available.shape == (6, log.n_clients)
    d = log.clients.index("d") if "d" in log.clients else None
    if d is not None:
        assert log.available[:, d].tolist() == [False, True] * 3
    with path.open("ab") as file:
        file.write(b'{"kind":"round","t":7,"inv')  # torn
    assert np.array_equal(read_log(path).latency_s, log.latency_s)


def test_a_journal_of_somebody_else_is_passed_over_line_by_line(tmp_path, written):
    entry = {"kind": "round", "t": 1, "invited": ["a", "b"], "outcome": ["ok", "ok"]}
    entry |= {"latency_s": [1.0, "x"], "loss": [None, None], "available": "many"}
    good = {**entry, "t": 2, "latency_s": [1.0, 1e300], "enough": -4}
    log = read_log(written(json.dumps(entry) + "\n" + json.dumps(good) + "\n", "rounds.jsonl"))
    assert log.clients == ["a"]
    assert log.cohort_size is None
