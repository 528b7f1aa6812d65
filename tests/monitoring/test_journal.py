"""The files of a journal: every line once, whole and in order, by one writer."""

import contextlib
import errno
import json
import logging
import os
import random
import resource
import signal
import threading
import time
from pathlib import Path

import pytest

from attacks import of_long_form
from bsfl.errors import FileInUse, InvalidInput
from bsfl.monitoring import journal as journal_module
from bsfl.monitoring.journal import START, Journal, check_journal, journal_files, read_journal
from bsfl.persistence import atomic

LONG_S = 60
"""Far more than any machine needs."""

needs_locks = pytest.mark.skipif(atomic.fcntl is None, reason="locks of POSIX")
pytestmark = [  # children here run nothing that has threads, whatever other tests have imported
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rounds.jsonl"


@pytest.fixture(autouse=True)
def no_wait(monkeypatch):
    """Where a file is open in another process, it stays open."""
    monkeypatch.setattr(journal_module, "OPEN_WAIT_S", 0.0)


def entry(seq, **more):
    return {"kind": "round", "seq": seq, **more}


def write(journal, seqs):
    """Write an entry with each of these numbers; return "done" for a child process."""
    for seq in seqs:
        journal.write([entry(seq)])
    return "done"


def numbers(path):
    return [line["seq"] for line in read_journal(path) if line["kind"] == "round"]


def numbers_or_lost(path):
    """Return the numbers of entries, and in their place how many entries were lost."""
    return [line["seq"] if line["kind"] == "round" else (line["n"],) for line in read_journal(path)]


def in_child(work):
    """Start a forked process; return how to wait for what it returns."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.alarm(LONG_S)  # a child that hangs ends
            os.close(reading)
            os.write(writing, str(work()).encode())
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writing)

    def result():
        os.waitpid(child, 0)
        with os.fdopen(reading, "rb") as pipe:
            return pipe.read().decode()

    return result


def write_in_child(path, seqs=()):
    """Write in another process; return "done", or the error."""
    return in_child(lambda: write(Journal(path), seqs))()


def logged():
    """Return a list that gets all messages from now on, in a process without pytest."""
    messages, handler = [], logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logging.getLogger("bsfl").addHandler(handler)
    return messages


# --- lines


def test_a_line_is_an_entry_and_begins_with_version_and_kind(path):
    entries = [entry(7, who=["ann", "\ud800", "<b>"]), {"t": 1, "kind": "late", "seq": 8}]
    Journal(path).write(entries)
    lines = path.read_bytes().splitlines(keepends=True)
    assert all(line.startswith(START) and line.endswith(b"}\n") for line in lines)
    assert list(read_journal(path)) == [{"v": 1, **one} for one in entries]
    Journal(path).write([{**entry(9), "v": 99}])
    assert path.read_bytes().splitlines()[2] == b'{"v":1,"kind":"round","seq":9}'


def test_a_batch_is_one_write(path, monkeypatch):
    journal, write, sizes = Journal(path), os.write, []

    def counted(handle, content):
        sizes.append(len(content))
        return write(handle, content)

    monkeypatch.setattr(os, "write", counted)
    journal.write([entry(n) for n in range(50)])
    journal.write([])
    assert sizes == [path.stat().st_size]


# --- failures


def test_entries_that_are_not_json_are_lost_alone(path, caplog):
    journal = Journal(path)
    journal.write([entry(0)])
    journal.write([entry(1), entry(2, x=object())])
    journal.write([entry(3, x=float("nan"))])
    journal.write([{"seq": 4}])
    assert numbers(path) == [0]
    journal.write([entry(5)])
    assert numbers_or_lost(path) == [0, (4,), 5]
    assert [r.levelno for r in caplog.records] == [logging.ERROR]


def test_a_failure_is_logged_once_and_the_lost_entries_are_counted(path, monkeypatch, caplog):
    journal, write = Journal(path), os.write
    journal.write([entry(0)])
    monkeypatch.setattr(os, "write", lambda handle, x: write(handle, x[: len(x) // 2]))
    for seq in range(1, 9, 2):
        journal.write([entry(seq), entry(seq + 1)])
    monkeypatch.undo()
    journal.write([entry(9)])
    assert numbers_or_lost(path) == [0, (8,), 9]
    assert len(path.read_bytes().splitlines()) == 3, "no half of a line is left"
    (message,) = caplog.messages
    assert message.startswith(f"{path} cannot be written; rounds continue without it: [Errno 28]")


def test_a_torn_line_that_cannot_be_removed_is_removed_later(path, monkeypatch):
    journal, write = Journal(path), os.write

    def truncate(*args):
        raise OSError(errno.EIO, "the disk fails")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, content: write(handle, content[:20]))
        patch.setattr(os, "ftruncate", truncate)
        journal.write([entry(0)])
    journal.write([entry(1)])
    lines = map(json.loads, path.read_text().splitlines())
    assert [line.get("n", line.get("seq")) for line in lines] == [1, 1]


def test_a_full_disk_is_reported_once_and_leaves_whole_lines(path):
    """A limit of the file size cuts a line in the middle, as a full disk does."""

    def work():
        messages, journal = logged(), Journal(path)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, hard))
        write(journal, range(51))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        journal.write([entry(51)])
        return sum("cannot be written" in message for message in messages)

    assert in_child(work)() == "1"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    *before, lost, last = [line.get("seq", line.get("n")) for line in lines]
    assert before == list(range(len(before)))
    assert 10 < len(before) < 50
    assert (len(before) + lost, last) == (51, 51)


def test_a_line_that_is_torn_anywhere_is_ignored_and_removed(path):
    journal = Journal(path)
    write(journal, range(3))
    journal.close()
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        n = sum(len(b"".join(lines[:k])) - 1 <= cut for k in (1, 2, 3))  # whole but for its end
        assert len(list(read_journal(path))) == n
        journal.write([entry(9)])
        assert numbers(path) == [*range(n), 9]
        assert path.read_bytes().endswith(b"\n")
        journal.close()


def test_a_torn_line_longer_than_a_block_is_removed(path):
    good = START + b'"round","seq":1}\n'
    path.write_bytes(good + START + b'"round","invited":[' + b"1," * 200_000)
    Journal(path)
    assert path.read_bytes() == good


def killed_while_writing(path, dice):
    """Write in another process, kill it, and return the last number that it had written."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            journal = Journal(path, max_bytes=20_000, n_kept=5)
            seq = max(numbers(path), default=0)
            while True:
                seq += 1
                journal.write([entry(seq, invited=list(range(dice.randrange(500))))])
                os.write(writing, seq.to_bytes(8, "little"))
        finally:
            os._exit(1)
    os.close(writing)
    written = os.read(reading, 8)  # it is at work
    time.sleep(dice.random() * 0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(reading, 2**16):
        written += more
    os.close(reading)
    return int.from_bytes(written[-8:], "little")


@pytest.mark.parametrize("kills", [10, pytest.param(of_long_form(300), marks=pytest.mark.attack)])
def test_kills_lose_nothing_that_was_written(path, kills):
    dice = random.Random(kills)
    for _ in range(kills):
        last = killed_while_writing(path, dice)
        found = numbers(path)
        assert found == list(range(found[0], found[-1] + 1)), "none lost, none torn, none twice"
        assert last <= found[-1] <= last + 1, "at most the one that was just being written"
        if dice.random() < 0.3:  # as if the machine had died
            with path.open("ab") as file:
                file.write(b'{"v":1,"kind":"round","seq":12,"inv'[: dice.randrange(1, 35)])


# --- full files


def test_a_full_file_becomes_an_older_one(path):
    write(Journal(path, max_bytes=1000, n_kept=2), range(100))
    files = sorted(path.parent.iterdir())
    assert [p.name for p in files] == ["rounds.jsonl", "rounds.jsonl.1", "rounds.jsonl.2"]
    assert all(p.stat().st_size <= 1000 for p in files)
    found = numbers(path)
    assert found == list(range(found[0], 100)), "the newest, in order"
    assert len(found) > 50


def test_no_full_file_may_be_kept(path):
    write(Journal(path, max_bytes=100, n_kept=0), range(20))
    assert numbers(path)[-1] == 19
    assert journal_files(path) == [path]


def test_full_files_move_as_far_as_the_first_number_that_is_free(path):
    journal = Journal(path, max_bytes=40, n_kept=5)
    write(journal, range(4))
    path.with_name("rounds.jsonl.2").unlink()
    oldest = path.with_name("rounds.jsonl.3").read_bytes()
    write(journal, [4])
    assert path.with_name("rounds.jsonl.3").read_bytes() == oldest
    assert numbers(path) == [0, 2, 3, 4]


def test_a_journal_whose_program_died_between_two_files_is_read_and_continued(path):
    with pytest.raises(FileNotFoundError, match="rounds.jsonl"):
        list(read_journal(path))
    journal = Journal(path)
    write(journal, [1, 2])
    path.rename(path.with_name("rounds.jsonl.1"))
    assert numbers(path) == [1, 2]
    write(journal, [3])
    assert numbers(path) == [1, 2, 3]


def test_a_line_longer_than_a_file_is_written_all_the_same(path):
    write(Journal(path, max_bytes=10), range(3))
    assert numbers(path) == [0, 1, 2]


def test_a_file_that_is_taken_away_is_made_again(path):
    journal = Journal(path)
    write(journal, [1])
    path.rename(path.with_name("moved"))
    write(journal, [2])
    assert (numbers(path), numbers(path.with_name("moved"))) == ([2], [1])


def test_a_link_leads_to_the_files_of_a_journal(path, tmp_path):
    (tmp_path / "disk").mkdir()
    path.symlink_to(tmp_path / "disk" / "real")
    write(Journal(path, max_bytes=100, n_kept=9), range(9))
    assert path.is_symlink()
    assert numbers(path) == list(range(9))
    assert len(journal_files(path)) > 2


def test_a_reader_misses_no_line_of_a_journal_whose_files_move(path):
    journal, stop, written = Journal(path, max_bytes=400, n_kept=900), threading.Event(), [0]

    def write_on():
        while not stop.is_set() and written[0] < 4000:
            write(journal, [written[0] + 1])
            written[0] += 1

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        for _ in range(40):
            least = written[0]
            found = numbers(path)
            assert found == list(range(1, len(found) + 1))
            assert len(found) >= least
    finally:
        stop.set()
        writer.join()


# --- other programs' files


@pytest.mark.parametrize(
    "content", [b"my thesis", b"\x00" * 100_000, b'{"name": 1}', b'{"kind":"round","t":1}\n']
)
def test_another_file_is_rejected_and_stays_as_it_is(path, content):
    path.write_bytes(content)
    for use in (Journal, lambda path: list(read_journal(path)), check_journal):
        with pytest.raises(InvalidInput, match="rounds.jsonl is not a journal"):
            use(path)
    assert path.read_bytes() == content


def test_a_folder_a_pipe_and_a_device_are_rejected(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe", "/dev/null"):
        with pytest.raises(InvalidInput, match="is not a file"):
            Journal(place)
        with pytest.raises(InvalidInput, match="is not a journal"):
            list(read_journal(place))
    with pytest.raises(FileNotFoundError):
        Journal(tmp_path / "no" / "such")


def content_of(folder):
    return {
        p.name: (p.lstat().st_mode, p.read_bytes() if p.is_file() else b"")
        for p in folder.iterdir()
        if p.name != "rounds.jsonl"
    }


PLANTS = {
    "file": lambda place: place.write_text("round,client\n1,ann\n"),
    "link": lambda place: place.symlink_to(place.with_name("elsewhere")),
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
}


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
@pytest.mark.parametrize("number", [1, 2])
def test_a_full_file_of_another_program_is_not_replaced(plant, number, path, tmp_path, caplog):
    """0.2 moved and replaced whatever was called NAME.1, NAME.2, ..."""
    (tmp_path / "elsewhere").write_text("mine")
    first = Journal(path, max_bytes=300, n_kept=2)
    write(first, range(12 if number == 2 else 0))
    caplog.clear()
    place = path.with_name(f"rounds.jsonl.{number}")
    place.unlink(missing_ok=True)
    plant(place)
    before = content_of(tmp_path)
    with pytest.raises(InvalidInput, match=f"rounds.jsonl.{number} is not a journal's file"):
        Journal(path, n_kept=2)
    write(first, range(12, 40))
    assert content_of(tmp_path) == before
    assert numbers(path)[-28:] == list(range(12, 40)), "no line is lost"
    (message,) = caplog.messages
    assert f"rounds.jsonl grows beyond its limit: {place} is not a journal's file" in message
    place.rename(path.with_name("renamed"))
    write(first, [40])
    assert path.stat().st_size < 300
    assert numbers(path)[-29:] == list(range(12, 41))


# --- one writer


@needs_locks
def test_a_second_process_is_rejected_until_the_first_closes(path):
    journal = Journal(path)
    assert write_in_child(path).startswith(f"FileInUse: {path} is open in another process")
    write(journal, [0])
    journal.close()
    assert write_in_child(path, [1]) == "done"
    write(journal, [2])
    assert write_in_child(path).startswith("FileInUse")
    del journal
    assert write_in_child(path, [3]) == "done"
    assert numbers(path) == [0, 1, 2, 3]


@needs_locks
def test_a_rejected_process_does_not_keep_the_file(path):
    journal, ready, go = Journal(path), os.pipe(), os.pipe()

    def work():
        with pytest.raises(FileInUse):
            Journal(path)
        os.write(ready[1], b"x")
        return os.read(go[0], 1)

    result = in_child(work)
    os.read(ready[0], 1)
    journal.close()
    assert write_in_child(path, [1]) == "done"
    os.write(go[1], b"x")
    assert result() == "b'x'"


@needs_locks
def test_two_processes_with_full_files_lose_no_line(path):
    """In 0.2 both moved the file away, and up to 32 of 300 lines were lost in silence."""
    go = os.pipe()

    def work(first):
        os.read(go[0], 1)
        while True:
            try:
                journal = Journal(path, max_bytes=400, n_kept=1000)
            except FileInUse:
                continue
            return write(journal, range(first, first + 150))

    results = [in_child(lambda first=first: work(first)) for first in (0, 1000)]
    os.write(go[1], b"xx")
    assert [result() for result in results] == ["done", "done"]
    one, other = [*range(150)], [*range(1000, 1150)]
    assert numbers(path) in (one + other, other + one), "the second waits for the first to end"


def test_journals_of_one_process_share_the_file(path):
    """A notebook makes a second scheduler while the first is still there."""
    journals = [Journal(path, max_bytes=500, n_kept=1000) for _ in range(4)]
    parts = [range(1000 * k, 1000 * k + 200) for k in range(4)]
    threads = [
        threading.Thread(target=write, args=both) for both in zip(journals, parts, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = numbers(path)
    assert [[seq for seq in found if seq in part] for part in parts] == list(map(list, parts))
    journals[0].close()
    if atomic.fcntl:
        assert write_in_child(path).startswith("FileInUse")
    write(journals[1], [1200])
    for journal in journals:
        journal.close()
    assert write_in_child(path) == "done"


@needs_locks
def test_a_forked_process_does_not_write_to_the_journal_of_its_parent(path):
    journal, ready, go = Journal(path), os.pipe(), os.pipe()
    write(journal, [0])

    def work():
        messages = logged()
        write(journal, range(100, 110))
        os.write(ready[1], b"x")
        os.read(go[0], 1)  # the parent has closed the file
        write(journal, [110])
        journal.close()
        return messages

    result = in_child(work)
    os.read(ready[0], 1)
    assert write_in_child(path).startswith("FileInUse"), "the parent holds it"
    write(journal, [1])
    assert numbers(path) == [0, 1]
    journal.close()
    assert write_in_child(path, [3]) == "done", "the child does not hold it"
    os.write(go[1], b"x")
    messages = result()
    assert messages.count("cannot be written") == 1
    assert "is open in another process" in messages
    assert numbers_or_lost(path) == [0, 1, 3, (10,), 110]


@needs_locks
def test_a_lock_that_a_thread_holds_at_a_fork_holds_no_child_up(path, tmp_path):
    journal, locked, end = Journal(path), threading.Event(), threading.Event()

    def hold():
        with journal._file.lock:
            locked.set()
            end.wait(LONG_S)

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(LONG_S)
    result = in_child(lambda: write(journal, [0]) and write(Journal(tmp_path / "own"), [1]))()
    end.set()
    holder.join()
    assert result == "done"


@needs_locks
def test_a_process_that_is_just_ending_is_waited_for(path, monkeypatch):
    monkeypatch.setattr(journal_module, "OPEN_WAIT_S", LONG_S)
    journal, ready, sleep = Journal(path), os.pipe(), time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: os.write(ready[1], b"x") and sleep(seconds))

    def work():
        try:
            return write(Journal(path), [1])
        finally:
            os.write(ready[1], b"x")

    result = in_child(work)
    os.read(ready[0], 1)  # it waits, or has failed
    journal.close()
    assert result() == "done"


# --- file systems without locks, Windows, file systems with changing numbers of files


@needs_locks
def test_without_locks_a_journal_is_written_all_the_same(path, monkeypatch):
    def fail(*args):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(atomic.fcntl, "flock", fail)
    write(Journal(path, max_bytes=300, n_kept=50), range(30))
    assert write_in_child(path, [30]) == "done"
    assert numbers(path) == list(range(31))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks which files are open")
def test_no_open_file_is_moved(path, monkeypatch):
    """As Windows wants it."""
    monkeypatch.setattr(atomic, "fcntl", None)
    replace = os.replace

    def replace_closed(source, target):
        links = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
        if os.path.realpath(source) in links or os.path.realpath(target) in links:
            raise PermissionError(errno.EACCES, "it is open")
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace_closed)
    write(Journal(path, max_bytes=300, n_kept=50), range(30))
    assert numbers(path) == list(range(30))
    assert len(journal_files(path)) > 3


def test_files_that_cannot_be_moved_grow(path, monkeypatch, caplog):
    def fail(*args):
        raise PermissionError(errno.EACCES, "a reader has it open")

    journal = Journal(path, max_bytes=300, n_kept=50)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        write(journal, range(30))
    assert len(journal_files(path)) == 1
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    write(journal, [30])
    assert len(journal_files(path)) == 2
    assert numbers(path) == list(range(31))


def test_a_file_system_with_changing_file_numbers_locks_no_writer_out(path, monkeypatch):
    monkeypatch.setattr(os.path, "samestat", lambda one, other: False)
    write(Journal(path, max_bytes=300, n_kept=50), range(30))
    assert numbers(path) == list(range(30))


@needs_locks
def test_a_folder_that_another_program_has_locked_holds_up_no_journal(path, monkeypatch):
    monkeypatch.setattr(atomic, "LOCK_WAIT_S", 0.01)
    handle = os.open(path.parent, os.O_RDONLY)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, handle)
        assert atomic.try_lock(handle)
        write(Journal(path, max_bytes=300, n_kept=50), range(20))
    assert numbers(path) == list(range(20))
