"""Writes that happen while the caller continues."""

import copy
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bsfl.persistence import writer as writer_module
from bsfl.persistence.writer import BackgroundWriter

HERE = Path("here")
LONG_S = 60
"""Far more than any machine needs."""

pytestmark = [  # children here run nothing that has threads, whatever other tests have imported
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]


@pytest.fixture
def writer():
    writer = BackgroundWriter()
    yield writer
    writer.join()


@pytest.fixture
def busy(writer):
    """Let the writer be busy until the function that this returns is called."""
    begun, end = threading.Event(), threading.Event()

    def write():
        begun.set()
        end.wait(LONG_S)

    writer.put(HERE / "slow", write)
    assert begun.wait(LONG_S)
    yield end.set
    end.set()


def test_of_those_that_wait_the_newest_is_written(writer, busy):
    done = []
    for word in ("first", "second", "third"):
        writer.put(HERE, lambda word=word: done.append(word))
    writer.put(HERE / "other", lambda: done.append("other"))
    assert done == []
    busy()
    writer.wait()
    assert done == ["third", "other"]
    writer.put(HERE, lambda: done.append("fourth"))
    writer.wait()
    assert done[-1] == "fourth"


def test_a_write_that_has_begun_is_not_dropped(writer):
    begun, end, done = threading.Event(), threading.Event(), []

    def first():
        begun.set()
        end.wait(LONG_S)
        done.append("first")

    writer.put(HERE, first)
    assert begun.wait(LONG_S)
    writer.put(HERE, lambda: done.append("second"))
    end.set()
    writer.wait()
    assert done == ["first", "second"]


def fail():
    raise OSError("disk full")


def test_a_failure_is_logged_at_once_and_raised_by_the_next_call(writer, caplog):
    writer.put(HERE, fail)
    writer.join()
    assert [(r.name, r.levelno) for r in caplog.records] == [("bsfl", logging.ERROR)]
    assert caplog.messages == ["here was not saved: OSError: disk full"]
    done = []
    with pytest.raises(OSError, match="disk full"):
        writer.put(HERE, lambda: done.append("written all the same"))
    writer.wait()
    assert done == ["written all the same"]
    writer.put(HERE, fail)
    with pytest.raises(OSError, match="disk full"):
        writer.wait()
    writer.wait()
    assert len(caplog.records) == 2


def test_one_write_at_a_time_whatever_threads_put(writer):
    at_work, most, newest, n_threads = [0], [0], {}, 8
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
                writer.put(path, lambda path=path, n=total[path]: write(path, n))

    total = {}
    threads = [threading.Thread(target=put) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.wait()
    assert newest == total
    assert sum(total.values()) == 200 * n_threads
    assert most == [1]


def test_no_thread_stays_idle(writer):
    writer.put(HERE, lambda: None)
    writer.wait()
    for thread in threading.enumerate():
        if thread.name.startswith("bsfl-save"):
            thread.join(LONG_S)
            assert not thread.is_alive()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda w: pickle.loads(pickle.dumps(w))])
def test_a_copy_starts_empty(writer, busy, copied):
    writer.put(HERE, fail)
    other = copied(writer)
    assert other is not writer
    other.wait()
    done = []
    other.put(HERE, lambda: done.append("written"))
    other.wait()
    assert done == ["written"]
    busy()
    with pytest.raises(OSError, match="disk full"):
        writer.wait()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork of POSIX")
@pytest.mark.parametrize("is_locked", [False, True])
def test_a_forked_process_starts_with_nothing_to_write(writer, busy, is_locked):
    """Its parent has a thread that writes, writes that wait, and may hold the lock."""
    reading, writing = os.pipe()
    writer.put(HERE, lambda: os.write(writing, f"{os.getpid()} ".encode()))
    writer._error = OSError("an error of the parent")
    if is_locked:
        writer._lock.acquire()
    child = os.fork()
    if not child:
        try:
            signal.alarm(LONG_S)  # a child that hangs ends
            writer.wait()
            writer.put(HERE, lambda: os.write(writing, f"child {os.getpid()} ".encode()))
            writer.wait()
        finally:
            os._exit(0)
    if is_locked:
        writer._lock.release()
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reading, 1000) == f"child {child} ".encode()
    busy()
    with pytest.raises(OSError, match="an error of the parent"):
        writer.wait()
    assert os.read(reading, 1000) == f"{os.getpid()} ".encode()
    for handle in (reading, writing):
        os.close(handle)


def test_without_a_thread_the_caller_writes(writer, busy, monkeypatch):
    """As at the end of a program, or where no more threads can be started."""
    done = []
    writer.put(HERE, lambda: done.append("waits"))

    def submit(*args):
        busy()
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(writer_module.ThreadPoolExecutor, "submit", submit)
    writer.put(HERE / "other", lambda: done.append(threading.current_thread().name))
    assert done == ["waits", threading.current_thread().name]


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
import atexit
from pathlib import Path
from bsfl.persistence.writer import BackgroundWriter
atexit.register(print, "other exit handlers run once")
writer = BackgroundWriter()
writer.put(Path("here"), lambda: 1 / 0)
"""


def test_a_failure_at_the_end_of_a_program_is_logged_and_does_not_kill_it():
    """0.2 ran the exit handlers of the user's server itself, and ended it by os._exit."""
    done = run(FAILS)
    assert done.returncode == 0
    assert done.stdout == "other exit handlers run once\n"
    assert done.stderr == "here was not saved: ZeroDivisionError: division by zero\n"
