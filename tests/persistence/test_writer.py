"""Saving: a file has one writer, and the rounds go on while it is written."""

import copy
import hashlib
import logging
import os
import pickle
import platform
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from bsfl import BSFL, Scheduler
from bsfl.errors import FileInUse
from bsfl.persistence import statefile, writer
from bsfl.persistence.statefile import read, stamp_of, write
from bsfl.persistence.writer import StateFiles, other_writer, warn_of_other_writer

needs_posix = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")
needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="starts of processes")
pytestmark = [  # children here run nothing that has threads, whatever other tests have imported
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]


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


def write_by_hand(path, head, n_head=None):
    """Write a header with a right checksum."""
    body = struct.pack("<Q", len(head) if n_head is None else n_head) + head
    digest = hashlib.sha256(struct.pack("<I", 1) + body).digest()
    path.write_bytes(struct.pack("<12sIQ32s", statefile.MAGIC, 1, len(body), digest) + body)


# --- one writer

SAVE_AND_WAIT = """
import sys
from pathlib import Path
from bsfl.persistence.writer import StateFiles
StateFiles().write(Path(sys.argv[1]), {}, {})
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


def continued(path):
    """Return the writer of a scheduler that was loaded from a file."""
    files = StateFiles()
    files.loaded(path, stamp_of(path))
    return files


def owner_entry(**changed):
    return writer._this_process() | changed


def test_the_header_says_who_wrote_the_file(path):
    StateFiles().write(path, {"owner": "x"}, {})
    entry = read(path)[0]["owner"]
    assert entry == owner_entry()
    assert entry["host"] == platform.node()
    assert entry["pid"] == os.getpid()


@needs_proc
@needs_posix
@pytest.mark.parametrize("has_proc", [True, False])
def test_another_process_that_runs_is_named(path, has_proc, monkeypatch, caplog):
    with saved_by_another_process(path) as other:
        if not has_proc:
            header, arrays = read(path)
            header["owner"]["start"] = None
            write(path, header, arrays)
            monkeypatch.setattr(writer, "_process_start", lambda pid: None)
        name = f"process {other.pid} on host {platform.node()}"
        assert other_writer(path) == other_writer(read(path)[0]) == name
        warn_of_other_writer(path)
        assert [r.levelno for r in caplog.records] == [logging.WARNING]
        assert name in caplog.text
        with pytest.raises(FileInUse, match=f"belongs to {name}, which is still running"):
            StateFiles().write(path, {}, {})
    caplog.clear()
    warn_of_other_writer(path)
    assert not caplog.records


@needs_proc
def test_a_file_that_was_loaded_may_be_saved_and_its_other_writer_is_rejected(path):
    """As after a takeover: the process that loads continues, and the one before has to notice."""
    with saved_by_another_process(path):
        one, other = continued(path), continued(path)
        one.write(path, {}, {})
        with pytest.raises(FileInUse, match="was written by another scheduler since"):
            other.write(path, {}, {})


@needs_posix
def test_a_file_of_a_process_that_ended_is_replaced(path):
    with saved_by_another_process(path) as other:
        other.kill()
        other.wait()
        assert other_writer(path) is None
        StateFiles().write(path, {}, {})


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
    start = writer._process_start(living)
    saved = owner_entry(pid=living, start=start)
    assert other_writer({"owner": saved}) == f"process {living} on host {platform.node()}"
    assert other_writer({"owner": saved | {"start": start + 1}}) is None


def test_owners_of_this_process_other_hosts_and_no_host_reject_no_save(living, monkeypatch):
    start = writer._process_start(living)
    assert other_writer({"owner": owner_entry()}) is None
    assert other_writer({"owner": owner_entry(start=0)}) is None, "a container starts as 1 again"
    assert other_writer({"owner": owner_entry(pid=living, start=start, host="elsewhere")}) is None
    monkeypatch.setattr(platform, "node", lambda: "")
    assert other_writer({"owner": owner_entry(pid=living, start=start)}) is None


@pytest.mark.parametrize("content", [b"", b"my thesis", b'{"owner": 1}', b"\x00" * 1000])
def test_other_files_have_no_owner(path, content):
    path.write_bytes(content)
    assert other_writer(path) is None
    StateFiles().write(path, {}, {})


@pytest.mark.parametrize("n_head", [None, 0, 1, 2**63])
@pytest.mark.parametrize(
    "head", [b"", b"{", b"[]", b"1", b"\xff\xfe", b"[" * 100_000, b'{"owner": []}']
)
def test_damaged_headers_have_no_owner(path, head, n_head):
    write_by_hand(path, head, n_head)
    assert other_writer(path) is None
    StateFiles().write(path, {}, {})


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
    owner = owner_entry(pid=living, start=writer._process_start(living))
    write(path, {"owner": owner}, {"a": np.zeros(10**6)})
    os.truncate(path, path.stat().st_size - 8 * 10**6)
    assert other_writer(path) == f"process {living} on host {platform.node()}"


def test_a_file_that_another_writer_changed_is_not_replaced(path):
    first, second = StateFiles(), StateFiles()
    first.write(path, {"by": 1}, {})
    second.loaded(path, stamp_of(path))
    second.write(path, {"by": 2}, {})
    for _ in range(2):
        with pytest.raises(FileInUse, match="another scheduler since this one saved or loaded it"):
            first.write(path, {"by": 1}, {})
    assert read(path)[0]["by"] == 2
    second.write(path, {"by": 3}, {})
    path.unlink()
    first.write(path, {"by": 1}, {})  # a file that is gone may be written again


def test_a_new_writer_of_the_same_process_takes_a_file_over(path):
    first, second = StateFiles(), StateFiles()
    first.write(path, {"by": 1}, {})
    second.write(path, {"by": 2}, {})
    with pytest.raises(FileInUse):
        first.write(path, {"by": 1}, {})


@pytest.mark.parametrize("fault", [OSError("the disk fails"), KeyboardInterrupt()])
@pytest.mark.parametrize("is_replaced", [True, False])
@pytest.mark.parametrize("has_saved", [True, False])
def test_a_writer_that_was_interrupted_is_not_locked_out(
    path, fault, has_saved, is_replaced, monkeypatch
):
    """The writer does not know whether the file was replaced: in 0.2 it never saved again."""
    files, replace = StateFiles(), os.replace
    if has_saved:
        files.write(path, {"t": 0}, {})

    def replace_and_fail(*args):
        if is_replaced:
            replace(*args)
        raise fault

    monkeypatch.setattr(os, "replace", replace_and_fail)
    with pytest.raises(type(fault)):
        files.write(path, {"t": 1}, {})
    monkeypatch.undo()
    assert path.exists() == (has_saved or is_replaced)
    assert not path.exists() or read(path)[0]["t"] == is_replaced
    monkeypatch.setattr(platform, "node", lambda: "renamed")
    files.write(path, {"t": 2}, {})
    assert read(path)[0]["t"] == 2


@needs_posix
@pytest.mark.parametrize("has_proc", [True, False])
def test_a_forked_process_is_another_writer(path, has_proc, monkeypatch):
    if not has_proc:
        monkeypatch.setattr(writer, "_process_start", lambda pid: None)
        monkeypatch.setattr(platform, "node", lambda: "localhost")
    files = StateFiles()
    files.write(path, {}, {})

    def new_scheduler():
        StateFiles().write(path, {}, {})

    def same_scheduler():
        files.write(path, {}, {})
        assert read(path)[0]["owner"]["pid"] == os.getpid()
        files.write(path, {}, {})
        return "saved"

    message = in_child(new_scheduler)
    assert message.startswith(f"FileInUse: {path} belongs to process {os.getpid()} on host")
    assert in_child(same_scheduler) == "saved", "its own previous save stands in the file"
    with pytest.raises(FileInUse, match="was written by another scheduler since"):
        files.write(path, {}, {})
    StateFiles().write(path, {}, {})  # the child has ended


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_a_copy_is_another_writer(path, copied):
    files = StateFiles()
    files.write(path, {}, {})
    copied(files).write(path, {"by": "the copy"}, {})
    with pytest.raises(FileInUse):
        files.write(path, {}, {})


# --- while the rounds go on


def play(scheduler, rounds):
    for _ in range(rounds):
        scheduler.observe({c: 1.0 + c % 5 for c in scheduler.select()})


def fresh(n_clients=200):
    scheduler = Scheduler(BSFL(alpha=4.0), cohort_size=10, seed=1, clock=lambda: 0.0)
    scheduler.join(range(n_clients))
    play(scheduler, 5)
    return scheduler


def test_what_is_written_is_the_moment_of_the_call(tmp_path, monkeypatch):
    go, write = threading.Event(), statefile.write

    def slow(*args, **who):
        go.wait(10)
        return write(*args, **who)

    scheduler = fresh()
    scheduler.save(tmp_path / "now")
    monkeypatch.setattr(statefile, "write", slow)
    scheduler.save(tmp_path / "later", wait=False)
    play(scheduler, 7)
    scheduler.join(range(200, 400))
    play(scheduler, 3)
    go.set()
    scheduler.saved()
    assert (tmp_path / "later").read_bytes() == (tmp_path / "now").read_bytes()
    assert Scheduler.load(tmp_path / "later").round == 5


@pytest.mark.parametrize(
    "ids", [range(40), [f"phone-{i}" for i in range(40)], range(2**70, 2**70 + 40)]
)
def test_every_kind_of_id_comes_back(tmp_path, ids):
    scheduler = Scheduler(BSFL(), cohort_size=4)
    scheduler.join(ids)
    scheduler.save(tmp_path / "s", wait=False)
    scheduler.saved()
    assert Scheduler.load(tmp_path / "s").clients == list(ids)


def test_a_failure_comes_with_the_next_call(tmp_path):
    scheduler = fresh()
    scheduler.save(tmp_path / "no" / "such" / "folder", wait=False)
    with pytest.raises(FileNotFoundError):
        scheduler.saved()
    for wait in (True, False):
        scheduler.save(tmp_path / "no" / "such" / "folder", wait=False)
        scheduler._files._writer.join()
        with pytest.raises(FileNotFoundError):
            scheduler.save(tmp_path / f"fine-{wait}", wait=wait)
        scheduler.saved()
        assert Scheduler.load(tmp_path / f"fine-{wait}").round == 5, (
            "this one is written all the same"
        )


def test_saving_at_once_waits_for_what_is_being_written(tmp_path):
    scheduler = fresh()
    for _ in range(5):
        scheduler.save(tmp_path / "s", wait=False)
        play(scheduler, 1)
        scheduler.save(tmp_path / "s")
        assert Scheduler.load(tmp_path / "s").round == scheduler.round


def test_a_scheduler_can_be_copied_while_it_saves(tmp_path):
    scheduler = fresh()
    scheduler.save(tmp_path / "s", wait=False)
    other = copy.deepcopy(scheduler)
    scheduler.saved()
    assert np.array_equal(other.select(), scheduler.select())


def test_a_copy_reuses_the_memory_of_what_is_written_and_nothing_else(tmp_path, monkeypatch):
    written = []
    write = statefile.write

    def noted(path, header, arrays, **who):
        written.append({name: a for name, a in arrays.items() if name == "policy/memory.mean"})
        return write(path, header, arrays, **who)

    monkeypatch.setattr(statefile, "write", noted)
    scheduler = fresh()
    for _ in range(2):
        play(scheduler, 2)
        scheduler.save(tmp_path / "s", wait=False)
        scheduler.saved()
    scheduler.join(range(200, 400))
    play(scheduler, 1)
    scheduler.save(tmp_path / "s", wait=False)
    scheduler.saved()
    first, second, third = (arrays["policy/memory.mean"] for arrays in written)
    assert first is second, "no new memory"
    assert third is not second, "the fleet has grown"
    scheduler.save(tmp_path / "now")
    assert (tmp_path / "s").read_bytes() == (tmp_path / "now").read_bytes()


def test_a_background_save_goes_where_it_was_asked_to(tmp_path, monkeypatch):
    scheduler = Scheduler(BSFL(), cohort_size=2)
    scheduler.join(range(5))
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    scheduler.save("s", wait=False)
    scheduler.save("t", wait=False)
    os.chdir(there)
    scheduler.saved()
    assert sorted(os.listdir(here)) == ["s", "t"]
    assert os.listdir(there) == []
