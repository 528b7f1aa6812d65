"""Saving: a file has one writer, and the rounds go on while it is written."""

import copy
import logging
import os
import pickle
import platform
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from bsfl import BSFL, Scheduler, UniformRandom
from bsfl.errors import FileInUse
from bsfl.persistence import statefile, writer
from bsfl.persistence.statefile import read, write
from bsfl.persistence.writer import BackgroundWriter, StateFiles, other_writer
from saved_state import finalised

HERE = Path("here")
LONG_S = 60
"""Far more than any machine needs."""

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


# --- one writer

SAVE_AND_WAIT = """
import sys
from bsfl import Scheduler
Scheduler(cohort_size=1).save(sys.argv[1])
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
            signal.alarm(LONG_S)  # a child that hangs ends
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
    return writer._this_process() | changed


def shown(pid):
    return f"process {pid} on host {platform.node()}"


def test_the_header_says_who_wrote_the_file(path):
    StateFiles().write(path, {"owner": "x"}, {})
    owner = read(path)[0]["owner"]
    assert owner == {"host": platform.node(), "pid": os.getpid(), "start": owner["start"]}


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
        assert other_writer(path) == other_writer(read(path)[0]) == shown(other.pid)
        with pytest.raises(FileInUse, match=f"belongs to {shown(other.pid)}, which is still run"):
            Scheduler(cohort_size=1).save(path)
        loaded = Scheduler.load(path)
        assert [r.levelno for r in caplog.records] == [logging.WARNING]
        assert shown(other.pid) in caplog.text
        before = Scheduler.load(path)  # as the one that goes on after a takeover
        loaded.save(path)
        with pytest.raises(FileInUse, match="was written by another scheduler since"):
            before.save(path)
    caplog.clear()
    Scheduler.load(path).save(path)
    assert not caplog.records


@needs_proc
@pytest.mark.parametrize("is_waited_for", [True, False])
def test_a_file_of_a_process_that_ended_is_replaced(path, is_waited_for):
    with saved_by_another_process(path) as other:
        other.kill()
        assert other.stdout.read() == ""  # it has ended, and its parent has not looked
        if is_waited_for:
            other.wait()
        else:
            while b") Z " not in Path(f"/proc/{other.pid}/stat").read_bytes():
                time.sleep(0.001)
        assert other_writer(path) is None
        StateFiles().write(path, {}, {})


@needs_proc
@pytest.mark.parametrize(
    "changed",
    [
        *({"pid": pid} for pid in (0, -1, 2**70, "1", None, os.getpid())),
        *({"start": start} for start in (1, "yesterday", 10**30)),
        *({"host": host} for host in ("elsewhere", "", 5, "x" * 10_000)),
    ],
)
@pytest.mark.parametrize("has_start", [True, False])
def test_owners_that_ended_or_that_no_writer_writes_are_ignored(
    changed, has_start, living, monkeypatch
):
    signals = []
    monkeypatch.setattr(os, "kill", lambda pid, signal: signals.append((pid, signal)))
    start = writer._process_start(living) if has_start else None
    owner = owner_entry(pid=living, start=start)
    assert other_writer({"owner": owner}) == shown(living)
    assert other_writer({"owner": owner | changed}) is None
    assert set(signals) <= {(living, 0)}, "no other process is looked for, least of all 0 and -1"
    monkeypatch.setattr(platform, "node", lambda: "")
    assert other_writer({"owner": owner | {"host": ""}}) is None


HEADS = [b"", b"{", b"[]", b"1", b"\xff\xfe", b"[" * 100_000, b'{"owner": []}']
DAMAGED = [b"", b"my thesis", b'{"owner": 1}', b"\x00" * 1000]
DAMAGED += [
    finalised(n_head.to_bytes(8, "little") + head)
    for head in HEADS
    for n_head in (len(head), 0, 1, 2**63)
]


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_other_files_and_damaged_headers_have_no_owner(path, content):
    path.write_bytes(content)
    assert other_writer(path) is None
    StateFiles().write(path, {}, {})


@needs_proc
def test_only_prelude_and_header_are_read(path, living):
    owner = owner_entry(pid=living, start=writer._process_start(living))
    write(path, {"owner": owner}, {"a": np.zeros(10**6)})
    os.truncate(path, path.stat().st_size - 8 * 10**6)
    assert other_writer(path) == shown(living)


def test_a_file_that_another_scheduler_has_written_is_not_replaced(tmp_path):
    path, first = tmp_path / "s", Scheduler(UniformRandom(), cohort_size=1)
    first.select(["a", "b", "c"])
    first.save(path)
    second = Scheduler.load(path)
    first.select()
    first.save(path)
    second.select()
    second.select()
    for _ in range(2):
        with pytest.raises(FileInUse, match="was written by another scheduler since"):
            second.save(path)
    second.save(path, wait=False)
    with pytest.raises(FileInUse):
        second.saved()
    second.save(tmp_path / "elsewhere")
    first.save(path)
    assert Scheduler.load(path).round == 2
    path.unlink()
    second.save(path)
    assert Scheduler.load(path).round == 3, "a file that is gone may be written again"
    Scheduler(cohort_size=1).save(path)  # a new scheduler of this process takes it over once
    with pytest.raises(FileInUse):
        second.save(path)


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

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace_and_fail)
        with pytest.raises(type(fault)):
            files.write(path, {"t": 1}, {})
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

    def save_twice():
        files.write(path, {}, {})
        assert read(path)[0]["owner"]["pid"] == os.getpid()
        files.write(path, {}, {})
        return "saved"

    message = in_child(lambda: StateFiles().write(path, {}, {}))
    assert message.startswith(f"FileInUse: {path} belongs to {shown(os.getpid())}")
    assert in_child(save_twice) == "saved", "its own previous save stands in the file"
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


def fresh():
    scheduler = Scheduler(BSFL(alpha=4.0), cohort_size=10, seed=1, clock=lambda: 0.0)
    scheduler.join(range(200))
    play(scheduler, 5)
    return scheduler


def test_what_is_written_is_the_moment_of_the_call(tmp_path, monkeypatch):
    go = threading.Event()

    def slow(*args, **others):
        go.wait(LONG_S)
        return write(*args, **others)

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


def test_a_failure_comes_with_the_next_save_which_is_written_all_the_same(tmp_path):
    scheduler = fresh()
    for wait in (True, False):
        scheduler.save(tmp_path / "no" / "such" / "folder", wait=False)
        scheduler._files._writer.join()
        with pytest.raises(FileNotFoundError):
            scheduler.save(tmp_path / "s", wait=wait)
        scheduler.saved()
        assert Scheduler.load(tmp_path / "s").round == scheduler.round
        play(scheduler, 1)


def test_saving_at_once_waits_for_what_is_being_written(tmp_path):
    scheduler = fresh()
    for _ in range(5):
        scheduler.save(tmp_path / "s", wait=False)
        play(scheduler, 1)
        scheduler.save(tmp_path / "s")
        assert Scheduler.load(tmp_path / "s").round == scheduler.round


def test_a_copy_reuses_the_memory_of_what_is_written_and_nothing_else(tmp_path, monkeypatch):
    means = []

    def noted(path, header, arrays, **others):
        means.append(arrays["policy/memory.mean"])
        return write(path, header, arrays, **others)

    def save():
        play(scheduler, 2)
        scheduler.save(tmp_path / "s", wait=False)
        scheduler.saved()

    monkeypatch.setattr(statefile, "write", noted)
    scheduler = fresh()
    save()
    save()
    assert means[0] is means[1], "no new memory"
    scheduler.join(range(200, 400))
    save()
    assert means[2] is not means[1], "there are more clients"
    scheduler.save(tmp_path / "now")
    assert (tmp_path / "s").read_bytes() == (tmp_path / "now").read_bytes()


def test_a_background_save_goes_where_it_was_asked_to(tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    scheduler = fresh()
    scheduler.save("s", wait=False)
    scheduler.save("t", wait=False)
    os.chdir(there)
    scheduler.saved()
    assert sorted(os.listdir(here)) == ["s", "t"]
    assert os.listdir(there) == []


# --- in the background


@pytest.fixture
def background():
    writer = BackgroundWriter()
    yield writer
    writer.join()


@pytest.fixture
def busy(background):
    """Let the writer be busy until the function that this returns is called."""
    begun, end = threading.Event(), threading.Event()

    def write():
        begun.set()
        end.wait(LONG_S)

    background.put(HERE / "slow", write)
    assert begun.wait(LONG_S)
    yield end.set
    end.set()


def test_of_those_that_wait_the_newest_is_written(background, busy):
    done = []
    background.put(HERE / "slow", lambda: done.append("after the one that has begun"))
    for word in ("first", "second", "third"):
        background.put(HERE, lambda word=word: done.append(word))
    background.put(HERE / "other", lambda: done.append("other"))
    assert done == []
    busy()
    background.wait()
    assert done == ["after the one that has begun", "third", "other"]
    background.put(HERE, lambda: done.append("fourth"))
    background.wait()
    assert done[-1] == "fourth"


def fail():
    raise OSError("disk full")


def test_a_failure_is_logged_at_once_and_raised_by_the_next_call(background, caplog):
    background.put(HERE, fail)
    background.join()
    assert [(r.name, r.levelno) for r in caplog.records] == [("bsfl", logging.ERROR)]
    assert caplog.messages == ["here was not saved: OSError: disk full"]
    done = []
    with pytest.raises(OSError, match="disk full"):
        background.put(HERE, lambda: done.append("written all the same"))
    background.wait()
    assert done == ["written all the same"]
    background.put(HERE, fail)
    with pytest.raises(OSError, match="disk full"):
        background.wait()
    background.wait()


def test_one_write_at_a_time_whatever_threads_put(background):
    at_work, most, newest, total = [0], [0], {}, {}
    lock = threading.Lock()

    def write(path, n):
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        newest[path] = n
        at_work[0] -= 1

    def put():
        for n in range(200):
            path = HERE / str(n % 3)
            with lock:  # so that it is known which one is the newest
                total[path] = total.get(path, 0) + 1
                background.put(path, lambda path=path, n=total[path]: write(path, n))

    threads = [threading.Thread(target=put) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    background.wait()
    for thread in threading.enumerate():
        if thread.name.startswith("bsfl-save"):
            thread.join(LONG_S)
            assert not thread.is_alive(), "no thread stays idle"
    assert newest == total
    assert sum(total.values()) == 200 * len(threads)
    assert most == [1]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda w: pickle.loads(pickle.dumps(w))])
def test_a_copy_starts_empty(background, busy, copied):
    background.put(HERE, fail)
    other, done = copied(background), []
    other.wait()
    other.put(HERE, lambda: done.append("written"))
    other.wait()
    assert done == ["written"]
    busy()
    with pytest.raises(OSError, match="disk full"):
        background.wait()


@needs_posix
@pytest.mark.parametrize("is_locked", [False, True])
def test_a_forked_process_starts_with_nothing_to_write(background, busy, is_locked):
    """Its parent has a thread that writes, writes that wait, and may hold the lock."""
    written = []
    background.put(HERE, lambda: written.append("by the parent"))
    background._error = OSError("an error of the parent")

    def work():
        background.wait()
        background.put(HERE, lambda: written.append("by the child"))
        background.wait()
        return written

    if is_locked:
        background._lock.acquire()
    assert in_child(work) == "['by the child']"
    if is_locked:
        background._lock.release()
    busy()
    with pytest.raises(OSError, match="an error of the parent"):
        background.wait()
    assert written == ["by the parent"]


def run(program, *args):
    command = [sys.executable, "-c", program, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=LONG_S)


ENDS = """
import atexit, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from bsfl.persistence.writer import BackgroundWriter
writer, folder = BackgroundWriter(), Path(sys.argv[1])
def wait_for_the_end():
    try:
        while True:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(time.sleep, 0.001)
    except RuntimeError:  # the main thread has ended
        pass
def write(name):
    def wait_and_write():
        wait_for_the_end()
        (folder / name).write_text("written")
    return wait_and_write
def late():
    wait_for_the_end()
    writer.put(folder / "by-a-thread", write("by-a-thread"))
atexit.register(lambda: writer.put(folder / "at-exit", write("at-exit")))
threading.Thread(target=late).start()
writer.put(folder / "running", write("running"))
writer.put(folder / "waiting", write("waiting"))
"""


def test_a_program_that_ends_waits_for_what_was_put(tmp_path):
    done = run(ENDS, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == ["at-exit", "by-a-thread", "running", "waiting"]


FAILS = """
import atexit, sys
from bsfl import Scheduler
atexit.register(print, "other exit handlers run once")
Scheduler(cohort_size=1).save(sys.argv[1], wait=False)
"""


def test_a_failure_at_the_end_of_a_program_is_logged_and_does_not_kill_it(tmp_path):
    """0.2 ran the exit handlers of the user's server itself, and ended it by os._exit."""
    done = run(FAILS, tmp_path / "no" / "folder")
    assert (done.returncode, done.stdout) == (0, "other exit handlers run once\n")
    assert done.stderr.startswith(f"{tmp_path}/no/folder was not saved: FileNotFoundError")
    assert done.stderr.count("\n") == 1
