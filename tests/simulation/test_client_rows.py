"""CSV files about clients: traces, logs of responses and intervals, read safely row by row."""

import os
from pathlib import Path

import numpy as np
import pytest

from attacks import of_long_form
from bsfl.errors import BsflError, InvalidInput
from bsfl.simulation import client_rows, read_availability, read_intervals
from bsfl.simulation.populations import read_trace
from bsfl.simulation.response_log import CsvFormat, read_csv
from bsfl.types import LATENCY_RANGE

HEAD = b"client,latency_s\n"
CAPACITIES = b"client,compute_ms_per_sample,bandwidth_kbps\n"
INTERVALS = b"client,start_s,end_s\n"
LATENCY = r"latency_s must be a number from 1e-09 to 1e\+12"
READERS = {
    "trace": read_trace,
    "log": lambda path: read_csv(path, CsvFormat()),
    "intervals": lambda path: read_intervals(3, np.random.default_rng(0), path=path),
    "availability": lambda path: read_availability(3, np.random.default_rng(0), path=path),
}


def test_a_log_with_more_columns_is_a_trace(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(
        "timestamp,client,latency_ms,outcome\n"
        "2026-03-01T08:00:00Z,a,1500,success\n"
        "2026-03-01T08:01:00Z,a,,error\n"
        "2026-03-01T08:02:00Z,b,45000,timeout\n"
        "2026-03-01T08:03:00Z,b,50000,late\n"
    )
    columns, rows = read_trace(path)
    assert columns == ("latency_s",)
    never_s = LATENCY_RANGE[1]
    assert {client: values.ravel().tolist() for client, values in rows.items()} == {
        "a": [1.5, never_s],
        "b": [never_s, 50.0],
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ", line 1: the first line must be client,latency_s or .*, got nothing"),
        (b"client,speed\na,1\n", ", line 1: .*got client,speed"),
        (b"\0" * 1000, r", line 1: the first line must be .*got \?\?\?"),
        (b"\xff\xfec\0l\0i\0", ", line 1: not text in UTF-8"),
        (b"x" * 200_000, ", line 1: more than 100,000 characters"),
        (HEAD, ": there is no row below the header"),
        (b"client,latency,outcome\na,1,fine\n", ", line 2: the outcome must be ok, timeout"),
        (HEAD + b"a," + b"9" * 90_000, f", line 2: {LATENCY}, got '9999"),
        (HEAD + b"a,1\nb,-2\n", f", line 3: {LATENCY}, got '-2'"),
        (HEAD + b"a,1e400\n", f", line 2: {LATENCY}, got '1e400'"),
        (HEAD + b"a,nan\n", f", line 2: {LATENCY}, got 'nan'"),
        (HEAD + b"a,1\0\n", f", line 2: {LATENCY}, got '1\\?'"),
        (HEAD + b"a,1\n\xff,1\n", ", line 3: not text in UTF-8"),
        (HEAD + b"a,1\n" + b"b" * 200_000, ", line 3: more than 100,000 characters"),
        (HEAD + b'a,1\n"b\n' + b"b\n" * 100_000, r", line \d+: cannot be read: field larger"),
        (HEAD + b'"', ", line 2: expected 2 values, got 1"),
        (HEAD + b"a,1,2\n", ", line 2: expected 2 values, got 3"),
        (HEAD + b" ,1\n", ", line 2: the client has no name"),
        (HEAD + b"a,1\n" * 2 + b"a\r\nb", ", line 4: expected 2 values"),
        (CAPACITIES + b"a,1,1\na,1,1\n", "client 'a' has more than one row"),
    ],
)
def test_a_file_that_is_no_trace_is_rejected_in_one_line(tmp_path, content, message):
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=f"log.csv.*{message}|{message}.*log.csv") as caught:
        read_trace(path)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 500


def test_a_long_name_is_cut_in_messages(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(INTERVALS + (b"a" * 50_000 + b",0,5\n") * 2)
    with pytest.raises(InvalidInput, match="log.csv, line 3: intervals of client 'aaa") as caught:
        READERS["intervals"](path)
    assert len(str(caught.value)) < 500


def test_a_trace_with_too_many_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(client_rows, "MAX_ROWS", 3)
    path = tmp_path / "log.csv"
    path.write_bytes(HEAD + b"a,1\n" * 3)
    assert len(read_trace(path)[1]["a"]) == 3
    path.write_bytes(HEAD + b"a,1\n" * 4)
    with pytest.raises(InvalidInput, match="log.csv, line 5: more than 3 rows"):
        read_trace(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes and devices here")
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_what_is_no_regular_file_or_too_large_is_rejected_before_it_is_read(tmp_path, reader):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "endless.npz").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe.csv", tmp_path / "endless.npz", Path("/dev/full")):
        with pytest.raises(InvalidInput, match="cannot be read.*: it is not a regular file"):
            reader(path)
    for path in (tmp_path, tmp_path / "gone", tmp_path / ("x" * 300)):
        with pytest.raises(InvalidInput, match="cannot be read"):
            reader(path)
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)  # sparse: it takes no room on the disk
    with pytest.raises(InvalidInput, match="cannot be read.*: it has more than [0-9,]+ bytes"):
        reader(tmp_path / "huge")


def attack(folder, n_cases):
    """Damage recordings of every kind; return how many were read and how many rejected."""
    rng, path = np.random.default_rng(18), folder / "log"
    np.savez(folder / "state.npz", state=np.ones((4, 5), np.int8))
    np.save(folder / "state.npy", np.ones((4, 5)))
    whole = [
        ("trace", HEAD + b"a,1.5\nb,20\na,2.5\nb,30\n"),
        ("trace", CAPACITIES + b"p,100,8000\nq,30,900\n"),
        ("intervals", INTERVALS + b"a,0,50\na,60,70\nb,10,20\nb,600000,604805\n"),
        ("availability", (folder / "state.npz").read_bytes()),
        ("availability", (folder / "state.npy").read_bytes()),
    ]
    words = [b"\0", b"\xff", b'"', b"\n", b"\r", b",", b"1e999", b"-1", b"nan", b"9" * 400, b"e"]
    for kind, content in whole:
        path.write_bytes(content)
        READERS[kind](path)
    n_read, reasons = 0, []
    for _ in range(n_cases):
        kind, content = whole[rng.integers(len(whole))]
        changed = bytearray(content)
        for _ in range(rng.integers(1, 5)):
            at = int(rng.integers(0, len(changed) + 1))
            if rng.random() < 0.5:
                changed[at : at + int(rng.integers(0, 3))] = words[rng.integers(len(words))]
            else:
                changed[at : at + 1] = rng.bytes(int(rng.integers(0, 3)))
        path.write_bytes(changed)
        try:
            READERS[kind](path)
            n_read += 1
        except BsflError as error:
            reasons.append(str(error))
    assert all(str(path) in reason and len(reason.splitlines()) == 1 for reason in reasons)
    return n_read, len(reasons)


def test_damaged_recordings_are_read_or_rejected(tmp_path):
    assert min(attack(tmp_path, 500)) > 0


@pytest.mark.attack
def test_many_damaged_recordings_are_read_or_rejected(tmp_path):
    assert min(attack(tmp_path, of_long_form(20_000))) > of_long_form(100)
