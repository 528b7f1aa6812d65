"""State files: nothing broken is read, and a file has one writer."""

import copy
import hashlib
import json
import logging
import os
import pickle
import platform
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from bsfl.errors import (
    CorruptFile,
    FileInUse,
    NewerFormat,
    NotAStateFile,
    StateFileError,
    TruncatedFile,
)
from bsfl.persistence import statefile
from bsfl.persistence.statefile import Owner, other_writer, read, stamp_of, write

needs_posix = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")
needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="starts of processes")
pytestmark = [  # children here run nothing that has threads, whatever other tests have imported
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]

HEADER = {"t": 3, "name": "ü"}
ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.arange(5, dtype=np.int32)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.bsfl"


@pytest.fixture
def living():
    """The number of another process, which runs until the test is over."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


# --- the format


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3)),
        np.float64(2.5).reshape(()),
        np.arange(24.0).reshape(2, 3, 4).T,
        np.arange(3, dtype=">i8"),
        np.array([True, False]),
        np.ones((1,) * 32, dtype=np.uint8),
    ],
)
def test_arrays_come_back(path, array):
    write(path, HEADER, {"a": array})
    header, arrays = read(path)
    assert header == HEADER
    assert np.array_equal(arrays["a"], array)
    assert arrays["a"].shape == array.shape
    assert arrays["a"].dtype.isnative


def test_writing_replaces_and_leaves_nothing_behind(path):
    for t in range(3):
        stamp = write(path, {"t": t}, ARRAYS)
        assert stamp_of(path) == stamp
    assert [p.name for p in path.parent.iterdir()] == ["s.bsfl"]
    assert read(path)[0] == {"t": 2}


def test_a_truncated_file_at_every_length(path):
    write(path, HEADER, ARRAYS)
    content = path.read_bytes()
    for length in range(1, len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(
            TruncatedFile, match=r"is truncated \(expected [\d,]+ bytes, found [\d,]+\)"
        ):
            read(path)
        assert other_writer(path) is None
    path.write_bytes(b"")
    with pytest.raises(NotAStateFile, match="is not a saved scheduler"):
        read(path)


def test_every_changed_byte_is_noticed(path):
    write(path, HEADER, ARRAYS)
    content = path.read_bytes()
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 0x40
        path.write_bytes(changed)
        with pytest.raises(StateFileError, match="nothing was loaded"):
            read(path)
    path.write_bytes(content + b"x")
    with pytest.raises(CorruptFile, match="checksum differs"):
        read(path)


def test_a_newer_format_and_foreign_files(path, tmp_path):
    write(path, HEADER, ARRAYS)
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, len(statefile.MAGIC), statefile.FORMAT + 1)
    path.write_bytes(content)
    with pytest.raises(NewerFormat, match="has format 2, this bsfl reads up to 1; upgrade bsfl"):
        read(path)
    path.write_text(json.dumps({"hello": 1}))
    with pytest.raises(NotAStateFile, match="is not a saved scheduler"):
        read(path)
    with pytest.raises(NotAStateFile, match="is not a file"):
        read(tmp_path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "missing.bsfl")


@needs_posix
@pytest.mark.parametrize("function", [stamp_of, other_writer])
def test_a_pipe_holds_nothing_up(function, path):
    os.mkfifo(path)
    assert not function(path)


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "a", "dtype": "<f8", "shape": [2**40]},
        {"name": "a", "dtype": "<f8", "shape": [-1]},
        {"name": "a", "dtype": "<f8", "shape": [1] * 33},
        {"name": "a", "dtype": "|O", "shape": [1]},
        {"name": "a", "shape": [1]},
    ],
)
def test_nothing_is_reserved_that_is_not_in_the_file(path, entry):
    write_by_hand(path, json.dumps({"arrays": [entry]}).encode())
    with pytest.raises(CorruptFile, match="its checksum is right"):
        read(path)


def write_by_hand(path, head, n_head=None):
    """Write a header with a right checksum."""
    body = struct.pack("<Q", len(head) if n_head is None else n_head) + head
    digest = hashlib.sha256(struct.pack("<I", 1) + body).digest()
    path.write_bytes(struct.pack("<12sIQ32s", statefile.MAGIC, 1, len(body), digest) + body)


# --- one writer

SAVE_AND_WAIT = """
import sys
from pathlib import Path
from bsfl.persistence.statefile import Owner, write
write(Path(sys.argv[1]), {}, {}, owner=Owner())
print("saved", flush=True)
sys.stdin.read()
"""


@contextmanager
def saved_by_another_process(path):
    """Start a process that saves a file, and end it."""
    command = [sys.executable, "-c", SAVE_AND_WAIT, path]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        try:
            assert other.stdout.readline() == "saved\n"
            yield other
        finally:
            other.kill()


def in_child(work):
    """Run work in a forked process; return what it returns, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, str(work()).encode())
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read().decode()


def owner_entry(**changed):
    return Owner().entry() | changed


def test_the_header_says_who_wrote_the_file(path):
    owner = Owner()
    write(path, {"owner": "x"}, ARRAYS, owner=owner)
    entry = read(path)[0]["owner"]
    assert entry == owner.entry()
    assert entry["host"] == platform.node()
    assert entry["pid"] == os.getpid()
    assert len(entry["token"]) == 16


@needs_proc
@needs_posix
@pytest.mark.parametrize("has_proc", [True, False])
def test_another_process_that_runs_is_named(path, has_proc, monkeypatch, caplog):
    with saved_by_another_process(path) as other:
        if not has_proc:
            header, arrays = read(path)
            owner = Owner()
            owner._entries[os.getpid()] = {**header["owner"], "start": None}
            write(path, header, arrays, stamp=stamp_of(path), owner=owner)
            monkeypatch.setattr(statefile, "_process_start", lambda pid: None)
        name = f"process {other.pid} on host {platform.node()}"
        assert other_writer(path) == other_writer(read(path)[0]) == name
        statefile.warn_of_other_writer(path)
        assert [r.levelno for r in caplog.records] == [logging.WARNING]
        assert name in caplog.text
        with pytest.raises(FileInUse, match=f"belongs to {name}, which is still running"):
            write(path, {}, {}, owner=Owner())
        write(path, {}, {})  # without an owner, any process may write
    caplog.clear()
    statefile.warn_of_other_writer(path)
    assert not caplog.records


@needs_proc
def test_a_file_that_was_loaded_may_be_saved_and_its_other_writer_is_rejected(path):
    """As after a takeover: the process that loads continues, and the one before has to notice."""
    with saved_by_another_process(path):
        stamp = stamp_of(path)
        read(path)
        write(path, {}, {}, stamp=stamp, owner=Owner())
        with pytest.raises(FileInUse, match="was written by another scheduler since"):
            write(path, {}, {}, stamp=stamp, owner=Owner())


@needs_posix
def test_a_file_of_a_process_that_ended_is_replaced(path):
    with saved_by_another_process(path) as other:
        other.kill()
        other.wait()
        assert other_writer(path) is None
        write(path, {}, {}, owner=Owner())


@needs_proc
def test_a_process_that_is_not_waited_for_has_ended_too(path):
    with saved_by_another_process(path) as other:
        other.kill()
        assert other.stdout.read() == ""  # it has ended, and its parent has not looked
        while b") Z " not in Path(f"/proc/{other.pid}/stat").read_bytes():
            time.sleep(0.001)
        assert other_writer(path) is None


@needs_proc
def test_a_number_that_another_process_has_got_again_is_no_owner(living):
    start = statefile._process_start(living)
    saved = owner_entry(pid=living, start=start)
    assert other_writer({"owner": saved}) == f"process {living} on host {platform.node()}"
    assert other_writer({"owner": saved | {"start": start + 1}}) is None


def test_owners_of_this_process_other_hosts_and_no_host_reject_no_save(living, monkeypatch):
    start = statefile._process_start(living)
    assert other_writer({"owner": owner_entry()}) is None
    assert other_writer({"owner": owner_entry(start=0)}) is None, "a container starts as 1 again"
    assert other_writer({"owner": owner_entry(pid=living, start=start, host="elsewhere")}) is None
    monkeypatch.setattr(platform, "node", lambda: "")
    assert other_writer({"owner": owner_entry(pid=living, start=start)}) is None


@pytest.mark.parametrize("content", [b"", b"my thesis", b'{"owner": 1}', b"\x00" * 1000])
def test_other_files_have_no_owner(path, content):
    path.write_bytes(content)
    assert other_writer(path) is None
    write(path, {}, {}, owner=Owner())


@pytest.mark.parametrize("n_head", [None, 0, 1, 2**63])
@pytest.mark.parametrize(
    "head", [b"", b"{", b"[]", b"1", b"\xff\xfe", b"[" * 100_000, b'{"owner": []}']
)
def test_damaged_headers_have_no_owner(path, head, n_head):
    write_by_hand(path, head, n_head)
    assert other_writer(path) is None
    write(path, {}, {}, owner=Owner())


@pytest.mark.parametrize(
    "changed",
    [
        {"pid": 0},
        {"pid": -1},
        {"pid": 2**70},
        {"pid": "1"},
        {"pid": None},
        {"start": "yesterday"},
        {"start": 10**30},
        {"host": 5},
        {"host": "x" * 10_000},
    ],
)
def test_owners_that_no_writer_writes_are_ignored(changed, living, monkeypatch):
    asked = []
    monkeypatch.setattr(os, "kill", lambda pid, signal: asked.append((pid, signal)))
    running = {"pid": living, "start": None}
    if os.name == "posix":
        assert other_writer({"owner": owner_entry(**running)}) is not None
    assert other_writer({"owner": owner_entry(**(running | changed))}) is None
    assert set(asked) <= {(living, 0)}, "no other process is looked for, least of all 0 and -1"


@needs_proc
def test_only_prelude_and_header_are_read(path, living):
    owner, start = Owner(), statefile._process_start(living)
    owner._entries[os.getpid()] = owner_entry(pid=living, start=start)
    write(path, {}, {"a": np.zeros(10**6)}, owner=owner)
    os.truncate(path, path.stat().st_size - 8 * 10**6)
    assert other_writer(path) == f"process {living} on host {platform.node()}"


def test_a_file_that_another_writer_changed_is_not_replaced(path):
    first, second = Owner(), Owner()
    one = write(path, {"by": 1}, {}, owner=first)
    other = write(path, {"by": 2}, {}, stamp=one, owner=second)
    for owner in (first, None):
        with pytest.raises(FileInUse, match="another scheduler since this one saved or loaded it"):
            write(path, {"by": 1}, {}, stamp=one, owner=owner)
    assert read(path)[0]["by"] == 2
    write(path, {"by": 2}, {}, stamp=other, owner=second)
    path.unlink()
    write(path, {"by": 1}, {}, stamp=one, owner=first)  # a file that is gone may be written again


def test_a_new_writer_of_the_same_process_takes_a_file_over(path):
    first, second = Owner(), Owner()
    stamp = write(path, {}, {}, owner=first)
    write(path, {}, {}, owner=second)
    with pytest.raises(FileInUse):
        write(path, {}, {}, stamp=stamp, owner=first)


@pytest.mark.parametrize("fault", [OSError("the disk fails"), KeyboardInterrupt()])
@pytest.mark.parametrize("has_saved", [True, False])
def test_a_writer_that_was_interrupted_is_not_locked_out(path, fault, has_saved, monkeypatch):
    """The file is replaced, and the writer does not know its stamp: in 0.2 it never saved again."""
    owner = Owner()
    stamp = write(path, {"t": 0}, {}, owner=owner) if has_saved else None
    replace = os.replace

    def replace_and_fail(*args):
        replace(*args)
        raise fault

    monkeypatch.setattr(os, "replace", replace_and_fail)
    with pytest.raises(type(fault)):
        write(path, {"t": 1}, {}, stamp=stamp, owner=owner)
    monkeypatch.undo()
    assert read(path)[0]["t"] == 1
    monkeypatch.setattr(platform, "node", lambda: "renamed")
    write(path, {"t": 2}, {}, stamp=stamp, owner=owner)
    assert read(path)[0]["t"] == 2


@needs_posix
@pytest.mark.parametrize("has_proc", [True, False])
def test_a_forked_process_is_another_writer(path, has_proc, monkeypatch):
    if not has_proc:
        monkeypatch.setattr(statefile, "_process_start", lambda pid: None)
        monkeypatch.setattr(platform, "node", lambda: "localhost")
    owner = Owner()
    stamp = write(path, {}, {}, owner=owner)
    token = owner.entry()["token"]

    def new_scheduler():
        write(path, {}, {}, owner=Owner())

    def same_scheduler():
        mine = write(path, {}, {}, stamp=stamp, owner=owner)
        assert owner.entry()["pid"] == os.getpid()
        write(path, {}, {}, stamp=mine, owner=owner)
        return owner.entry()["token"]

    message = in_child(new_scheduler)
    assert message.startswith(f"FileInUse: {path} belongs to process {os.getpid()} on host")
    child_token = in_child(same_scheduler)  # its own previous save stands in the file
    assert len(child_token) == len(token)
    assert child_token != token
    with pytest.raises(FileInUse, match="was written by another scheduler since"):
        write(path, {}, {}, stamp=stamp, owner=owner)
    write(path, {}, {}, owner=Owner())  # the child has ended


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_a_copy_is_another_writer(path, copied):
    owner = Owner()
    stamp = write(path, {}, {}, owner=owner)
    other = copied(owner)
    write(path, {}, {}, stamp=stamp, owner=other)
    with pytest.raises(FileInUse):
        write(path, {}, {}, stamp=stamp, owner=owner)
