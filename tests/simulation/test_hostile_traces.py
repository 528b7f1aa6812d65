"""Recordings that are no recordings: one line that names the file, and the line where there is one."""

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from attacks import of_long_form
from bsfl.errors import BsflError, InvalidInput
from bsfl.simulation import client_rows, intervals, read_availability, read_intervals
from bsfl.simulation.populations import read_trace
from bsfl.simulation.response_log import CsvFormat, read_csv

HEAD = b"client,latency_s\n"
LATENCY = r"latency_s must be a number from 1e-09 to 1e\+12"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "log.csv, line 1: the first line must be client,latency_s or .*, got nothing"),
        (b"\n\n\n", "log.csv, line 1: the first line must be"),
        (b"\0" * 1000, r"log.csv, line 1: the first line must be .*got \?\?\?"),
        (b"\xff\xfec\0l\0i\0", "log.csv, line 1: not text in UTF-8"),
        (bytes(range(256)), "log.csv, line"),
        (b'"' + b"a\n" * 20_000, "log.csv, line 1: the first line must be|log.csv, line \\d+: ca"),
        (b"x" * 200_000, "log.csv, line 1: more than 100,000 characters"),
        (b"," * 90_000, "log.csv, line 1: the first line must be"),
        (HEAD + b"a," + b"9" * 400, f"log.csv, line 2: {LATENCY}, got '9999"),
        (HEAD + b"a," + b"9" * 90_000, f"log.csv, line 2: {LATENCY}, got '9999"),
        (HEAD + b"a,1e400\n", f"log.csv, line 2: {LATENCY}, got '1e400'"),
        (HEAD + b"a,nan\n", f"log.csv, line 2: {LATENCY}, got 'nan'"),
        (HEAD + b"a,1\0\n", f"log.csv, line 2: {LATENCY}, got '1\\?'"),
        (HEAD + b"a,1\n\xff,1\n", "log.csv, line 3: not text in UTF-8"),
        (HEAD + b"a,1\n" + b"b" * 200_000, "log.csv, line 3: more than 100,000 characters"),
        (
            HEAD + b'a,1\n"b\n' + b"b\n" * 100_000,
            r"log.csv, line \d+: cannot be read: field larger",
        ),
        (HEAD + b'"', "log.csv, line 2: expected 2 values, got 1"),
        (HEAD + b" ,1\n", "log.csv, line 2: the client has no name"),
        (HEAD + b"a\n", "log.csv, line 2: expected 2 values, got 1"),
        (HEAD + b"a,1\n" * 2 + b"a\r\nb", "log.csv, line 4: expected 2 values"),
    ],
)
def test_a_trace_of_ill_will_is_one_line(tmp_path, content, message):
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=message) as caught:
        read_trace(path)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 500


def test_a_trace_with_too_many_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(client_rows, "MAX_ROWS", 3)
    path = tmp_path / "log.csv"
    path.write_bytes(HEAD + b"a,1\n" * 3)
    assert len(read_trace(path)[1]["a"]) == 3
    path.write_bytes(HEAD + b"a,1\n" * 4)
    with pytest.raises(InvalidInput, match="log.csv, line 5: more than 3 rows"):
        read_trace(path)


def test_what_is_not_a_file(tmp_path):
    for path in (tmp_path, tmp_path / "gone", tmp_path / ("x" * 300)):
        with pytest.raises(InvalidInput, match="cannot be read"):
            read_trace(path)
        with pytest.raises(InvalidInput, match="cannot be read"):
            read_availability(3, np.random.default_rng(0), path=path)


READERS = {
    "trace": read_trace,
    "log": lambda path: read_csv(path, CsvFormat()),
    "intervals": lambda path: read_intervals(3, np.random.default_rng(0), path=path),
    "availability": lambda path: read_availability(3, np.random.default_rng(0), path=path),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes and devices here")
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_devices_and_pipes_are_refused_before_they_are_opened(tmp_path, reader):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "endless.npz").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe.csv", tmp_path / "endless.npz", Path("/dev/full")):
        with pytest.raises(InvalidInput, match="cannot be read.*: it is not a regular file"):
            reader(path)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_files_that_are_too_large_are_refused_before_they_are_read(tmp_path, reader):
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: it takes no room on the disk
    with pytest.raises(InvalidInput, match="cannot be read.*: it has more than [0-9,]+ bytes"):
        reader(path)


def npy(shape, content=b""):
    header = f"{{'descr': '|i1', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy((10**6, 10**6)), "it may have 100,000,000 numbers"),
        (npy((1,) * 1000, b"\0"), "cannot be read as an .npz or .npy"),
        (npy((3, 3)), "an array of 9 bytes is expected, got 0"),
        (npy((0, 0)), r"must be \[time, device\]"),
        (npy((2, 2), b"\1\1\1\5"), r"with values 1, 0 and -1"),
        (b"PK\3\4", "its end is missing"),
        (b"PK" + bytes(100), "its end is missing"),
        (b"", "it is not in numpy's format"),
    ],
)
def test_a_recorded_availability_of_ill_will(tmp_path, content, message):
    for name in ("a.npy", "a.npz"):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match=message) as caught:
            read_availability(3, np.random.default_rng(0), path=path)
        assert name in str(caught.value)


def test_an_npz_without_the_array(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("other.npy", npy((2, 2), b"\1\1\1\1"))
    with pytest.raises(InvalidInput, match="there is no array 'state'"):
        read_availability(3, np.random.default_rng(0), path=tmp_path / "a.npz")


def attack(folder, n_cases):
    """Damage recordings of every kind; return how many were read and how many refused."""
    rng, path = np.random.default_rng(18), folder / "log"
    np.savez(folder / "state.npz", state=np.ones((4, 5), np.int8))
    np.save(folder / "state.npy", np.ones((4, 5)))
    seeds = [
        (read_trace, HEAD + b"a,1.5\nb,20\na,2.5\nb,30\n"),
        (read_trace, b"client,compute_ms_per_sample,bandwidth_kbps\np,100,8000\nq,30,900\n"),
        (lambda p: read_intervals(3, np.random.default_rng(0), path=p), INTERVALS),
        *(
            (lambda p: read_availability(3, np.random.default_rng(0), path=p), one.read_bytes())
            for one in (folder / "state.npz", folder / "state.npy")
        ),
    ]
    words = [b"\0", b"\xff", b'"', b"\n", b"\r", b",", b"1e999", b"-1", b"nan", b"9" * 400, b"e"]
    for reader, content in seeds:
        path.write_bytes(content)
        reader(path)  # before it is damaged
    read, reasons = 0, []
    for _ in range(n_cases):
        reader, content = seeds[rng.integers(len(seeds))]
        changed = bytearray(content)
        for _ in range(rng.integers(1, 5)):
            at = int(rng.integers(0, len(changed) + 1))
            if rng.random() < 0.5:
                changed[at : at + int(rng.integers(0, 3))] = words[rng.integers(len(words))]
            else:
                changed[at : at + 1] = rng.bytes(int(rng.integers(0, 3)))
        path.write_bytes(changed)
        try:
            reader(path)
            read += 1
        except BsflError as error:
            reasons.append(str(error))
    assert all(str(path) in reason and len(reason.splitlines()) == 1 for reason in reasons)
    return read, len(reasons)


INTERVALS = b"client,start_s,end_s\na,0,50\na,60,70\nb,10,20\nb,600000,604805\n"


def test_damaged_recordings(tmp_path):
    read, refused = attack(tmp_path, 500)
    assert min(read, refused) > 0


@pytest.mark.attack
def test_many_damaged_recordings(tmp_path):
    read, refused = attack(tmp_path, of_long_form(20_000))
    print({"read": read, "refused": refused})
    assert min(read, refused) > of_long_form(100)


def test_a_long_name_is_cut_in_messages(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(b"client,start_s,end_s\n" + (b"a" * 50_000 + b",0,5\n") * 2)
    with pytest.raises(InvalidInput, match="log.csv, line 3: intervals of client 'aaa") as caught:
        intervals.read_intervals(1, np.random.default_rng(0), path=path)
    assert len(str(caught.value)) < 500
