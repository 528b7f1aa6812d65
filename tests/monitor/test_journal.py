"""The journal: one line a round, whatever happens to the program, the disk and the file."""

import copy
import json
import logging
import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import time

import pytest

from bsfl import Observation, Pace, Scheduler, UniformRandom
from bsfl.errors import InvalidInput
from bsfl.monitor import Journal, read_journal
from bsfl.monitor.journal import under_way

pytestmark = [  # children here run nothing that has threads, whatever other tests have imported
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rounds.jsonl"


def play(scheduler, rounds, fleet=range(9)):
    for _ in range(rounds):
        scheduler.observe(dict.fromkeys(scheduler.select(fleet), 2.0))


def test_a_line_tells_who_was_invited_and_what_became_of_each(path):
    scheduler = Scheduler(Pace(), cohort_size=3, journal=path)
    a, b, c = scheduler.select(["ann", "bob", "cem", "<b>dan</b>\ud800"])
    assert list(read_journal(path)) == []
    scheduler.observe(
        {
            a: Observation(latency=2.5, loss=1.5),
            b: Observation(latency=60.0, outcome="timeout"),
            c: Observation(outcome="failed"),
        }
    )
    (line,) = read_journal(path)
    assert abs(line.pop("time") - time.time()) < 60
    assert line.pop("figures").keys() == {"evenness", "price_of_a_second"}
    assert line == {
        "kind": "round",
        "t": 1,
        "available": 4,
        "cohort_size": 3,
        "enough": 3,
        "duration_s": 60.0,
        "invited": [a, b, c],
        "outcome": ["ok", "timeout", "failed"],
        "latency_s": [2.5, 60.0, None],
        "loss": [1.5, None, None],
    }


def test_late_answers_have_lines_of_their_own(path):
    scheduler = Scheduler(UniformRandom(), cohort_size=2, invite=1.5, journal=path)
    a, b, c = scheduler.select(range(9))
    scheduler.observe({a: 1.0})
    scheduler.observe({b: 2.0})  # enough: the round is over
    scheduler.observe({c: Observation(latency=9.0, outcome="late", loss=0.5)})
    (d, *_) = scheduler.select(range(20, 29))
    (e, *_) = scheduler.select(range(30, 39))  # the second round is over with nobody heard
    scheduler.observe({d: 7.0, e: 1.0})
    lines = list(read_journal(path))
    assert [(x["kind"], x["t"]) for x in lines] == [
        ("round", 1),
        ("late", 1),
        ("round", 2),
        ("late", 2),
    ]
    assert lines[0]["outcome"] == ["ok", "ok", None]
    assert lines[1] | {"time": 0} == {
        "kind": "late", "t": 1, "time": 0, "client": c, "outcome": "late", "latency_s": 9.0, "loss": 0.5,
    }  # fmt: skip
    assert lines[2]["outcome"] == [None, None, None]
    assert lines[3]["client"] == d


def test_the_round_under_way_tells_for_whom_it_waits(path):
    scheduler = Scheduler(UniformRandom(), cohort_size=3, invite=1.3, journal=path)
    cohort = scheduler.select([f"phone-{k}" for k in range(9)])
    shown = under_way(path)
    assert abs(shown.pop("time") - time.time()) < 60
    assert shown == {
        "kind": "under way", "t": 1, "invited": 4, "enough": 3, "n_waits_for": 4, "waits_for": cohort,
    }  # fmt: skip
    scheduler.observe({cohort[1]: 2.0})
    scheduler.observe({cohort[3]: Observation(outcome="failed")})
    assert under_way(path)["waits_for"] == [cohort[0], cohort[2]]
    assert list(read_journal(path)) == []


def test_of_a_large_cohort_under_way_some_are_named(path):
    Scheduler(UniformRandom(), cohort_size=250, journal=path).select(range(300))
    shown = under_way(path)
    assert (shown["n_waits_for"], len(shown["waits_for"])) == (250, 20)


def _link(now, elsewhere):
    now.symlink_to(elsewhere)


def _pipe(now, elsewhere):
    os.mkfifo(now)


def _folder(now, elsewhere):
    now.mkdir()


@pytest.mark.parametrize("plant", [_link, _pipe, _folder])
def test_what_is_planted_beside_a_journal_is_not_written_to_and_holds_nobody_up(
    plant, path, tmp_path, caplog
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    plant(path.with_name("rounds.jsonl.now"), elsewhere)
    play(Scheduler(UniformRandom(), cohort_size=2, journal=path), 3)
    assert elsewhere.read_text() == "mine"
    assert len(list(read_journal(path))) == 3
    assert len([r for r in caplog.records if "rounds.jsonl.now" in r.message]) == 1


def test_ids_of_the_available_if_asked(path):
    scheduler = Scheduler(
        UniformRandom(), cohort_size=2, journal=Journal(path, lists_available=True)
    )
    play(scheduler, 1, ["ann", "bob"])
    play(scheduler, 1, ["ann", "cem", "bob"])
    scheduler.select(["bob", "dan"])
    scheduler.select(["ann", "bob"])
    found = [line["available_ids"] for line in read_journal(path)]
    assert found == [["ann", "bob"], ["ann", "bob", "cem"], ["bob", "dan"]]


def test_a_loaded_scheduler_goes_on_with_the_journal(path, tmp_path):
    scheduler = Scheduler(UniformRandom(), cohort_size=2, journal=path)
    play(scheduler, 2)
    cohort = scheduler.select()
    scheduler.observe({cohort[0]: 5.0})
    scheduler.save(tmp_path / "s")
    again = Scheduler.load(tmp_path / "s", journal=path)
    again.observe({cohort[1]: 7.0})
    play(again, 1)
    lines = list(read_journal(path))
    assert [line["t"] for line in lines] == [1, 2, 3, 4]
    assert lines[2]["latency_s"] == [5.0, 7.0]
    again.save(tmp_path / "s")
    third = Scheduler.load(tmp_path / "s", journal=path)
    third.select()
    assert [line["t"] for line in read_journal(path)] == [1, 2, 3, 4], "round 4 is told already"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copy_writes_no_journal(path, copied):
    scheduler = Scheduler(UniformRandom(), cohort_size=2, journal=path, on_round=lambda r: None)
    play(scheduler, 1)
    play(copied(scheduler), 3)
    assert len(list(read_journal(path))) == 1


def test_a_line_that_is_torn_anywhere_is_passed_over_and_repaired(path):
    play(Scheduler(UniformRandom(), cohort_size=2, journal=path), 3)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in range(len(whole) - len(lines[2]), len(whole)):
        path.write_bytes(whole[:cut])
        n = 3 if cut == len(whole) - 1 else 2  # it lacks nothing but its end
        assert len(list(read_journal(path))) == n
        Journal(path).write({"kind": "round", "t": 9})
        assert [line["t"] for line in read_journal(path)] == [*range(1, n + 1), 9]
        assert path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("content", [b"my thesis", b"\x00" * 100_000, b'{"name": 1}'])
def test_another_file_is_refused_and_stays_as_it_is(path, content):
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="is not a journal"):
        Scheduler(cohort_size=2, journal=path)
    assert path.read_bytes() == content


def test_a_folder_or_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(InvalidInput, match="is not a file"):
            Scheduler(cohort_size=2, journal=place)
    with pytest.raises(FileNotFoundError):
        Scheduler(cohort_size=2, journal=tmp_path / "no" / "such")


def test_a_torn_line_longer_than_a_block_is_repaired(path):
    good = b'{"kind":"round","t":1}\n'
    path.write_bytes(good + b'{"kind":"round","invited":[' + b"1," * 200_000)
    Journal(path)
    assert path.read_bytes() == good


def test_a_full_file_becomes_an_older_one(path):
    scheduler = Scheduler(
        UniformRandom(), cohort_size=2, journal=Journal(path, max_bytes=1000, n_kept=2)
    )
    play(scheduler, 40)
    files = sorted(p.name for p in path.parent.iterdir())
    assert files == ["rounds.jsonl", "rounds.jsonl.1", "rounds.jsonl.2", "rounds.jsonl.now"]
    assert all(p.stat().st_size <= 1000 for p in path.parent.iterdir())
    rounds = [line["t"] for line in read_journal(path)]
    assert rounds == list(range(rounds[0], 41)), "the newest, in order"
    none_kept = Journal(path.with_name("other"), max_bytes=100, n_kept=0)
    for t in range(20):
        none_kept.write({"kind": "round", "t": t})
    assert [line["t"] for line in read_journal(none_kept.path)][-1] == 19


def test_a_journal_whose_program_died_between_two_files_is_read_and_gone_on_with(path):
    with pytest.raises(FileNotFoundError):
        list(read_journal(path))
    play(Scheduler(UniformRandom(), cohort_size=2, journal=path), 2)
    path.rename(path.with_name("rounds.jsonl.1"))
    assert [line["t"] for line in read_journal(path)] == [1, 2]
    Journal(path).write({"kind": "round", "t": 3})
    assert [line["t"] for line in read_journal(path)] == [1, 2, 3]


def test_a_line_longer_than_a_file_is_written_all_the_same(path):
    play(Scheduler(UniformRandom(), cohort_size=2, journal=Journal(path, max_bytes=10)), 3)
    assert [line["t"] for line in read_journal(path)] == [1, 2, 3]


def test_a_file_that_is_taken_away_is_made_again(path):
    scheduler = Scheduler(UniformRandom(), cohort_size=2, journal=path)
    play(scheduler, 2)
    path.rename(path.with_name("moved"))
    play(scheduler, 1)
    assert [line["t"] for line in read_journal(path)] == [3]


def test_two_schedulers_may_append_to_one_file(path):
    one = Scheduler(UniformRandom(), cohort_size=2, journal=path)
    other = Scheduler(UniformRandom(), cohort_size=2, journal=path)
    for _ in range(5):
        play(one, 1)
        play(other, 1)
    assert len(list(read_journal(path))) == 10


def within_limit(path, limit, n):
    """Play n rounds in a process whose files may not grow beyond a limit; return its exit code."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            messages = []
            handler = logging.Handler()
            handler.emit = lambda record: messages.append(record.getMessage())
            logging.getLogger("bsfl").addHandler(handler)
            scheduler = Scheduler(UniformRandom(), cohort_size=2, journal=path)
            play(scheduler, 2)
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            play(scheduler, n)
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            play(scheduler, 1)
            errors = [m for m in messages if "cannot be written" in m]
            code = 0 if len(errors) == 1 and scheduler.t == n + 3 else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_full_disk_stops_no_round_and_is_reported_once(path):
    """The limit cuts a line in the middle, as a full disk does."""
    assert within_limit(path, 700, n=20) == 0
    lines = list(read_journal(path))
    assert all(json.loads(line) for line in path.read_text().splitlines()), "none is torn"
    (lost,) = [line for line in lines if line["kind"] == "lost"]
    rounds = [line["t"] for line in lines if line["kind"] == "round"]
    assert rounds[:2] == [1, 2]
    assert rounds[-1] == 23
    assert lost["n"] + len(rounds) == 23


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_full_file_system(tmp_path, caplog):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount here")
    try:
        scheduler = Scheduler(UniformRandom(), cohort_size=5, journal=disk / "rounds.jsonl")
        play(scheduler, 400)
        assert scheduler.t == 400
        assert sum("cannot be written" in m for m in caplog.messages) == 1
        n = len(list(read_journal(disk / "rounds.jsonl")))
        assert 50 < n < 400
        assert (disk / "rounds.jsonl").read_bytes().endswith(b"\n")
    finally:
        scheduler._events._journal.close()
        subprocess.run(["umount", str(disk)], check=True)


def killed_while_writing(path, rng):
    """Write in another process, kill it, and return the last round that it had written."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            journal = Journal(path, max_bytes=20_000, n_kept=5)
            entries = list(read_journal(path))
            t = entries[-1]["t"] if entries else 0
            while True:
                t += 1
                journal.write({"kind": "round", "t": t, "invited": list(range(rng.randrange(500)))})
                os.write(write, t.to_bytes(8, "little"))
        finally:
            os._exit(1)
    os.close(write)
    told = os.read(read, 8)  # it is at work
    time.sleep(rng.random() * 0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while more := os.read(read, 2**16):
        told += more
    os.close(read)
    return int.from_bytes(told[-8:], "little")


def survive(path, kills):
    rng = random.Random(kills)
    for _ in range(kills):
        last = killed_while_writing(path, rng)
        rounds = [entry["t"] for entry in read_journal(path)]
        assert rounds == list(range(rounds[0], rounds[-1] + 1)), "none lost, none torn, none twice"
        assert last <= rounds[-1] <= last + 1, "at most the one whose writing nobody heard of"
        if rng.random() < 0.3:  # as if the machine had died
            with path.open("ab") as file:
                file.write(b'{"kind":"round","t":12,"inv'[: rng.randrange(1, 27)])


def test_kills_lose_nothing_that_was_written(path):
    survive(path, kills=10)


@pytest.mark.attack
def test_300_kills_lose_nothing_that_was_written(path):
    survive(path, kills=300)


def test_another_file_is_no_journal(tmp_path):
    (tmp_path / "notes.txt").write_text("round 1\nround 2\n")
    with pytest.raises(InvalidInput, match=r"notes.txt is not a journal, as of Scheduler"):
        list(read_journal(tmp_path / "notes.txt"))
