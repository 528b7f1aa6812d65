"""Whatever a file holds, loading it is refused in one line, or the scheduler plays on."""

import faulthandler
import json
import os
import random
import re
import resource
import subprocess
import sys
import tracemalloc
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hostile_files import content_of, good, hostile, originals, sealed

from bsfl import BSFL, Scheduler
from bsfl.errors import InvalidInput, StateFileError

N_FILES = 6_000
"""Changed files in the attack."""
N_FILES_FEW = 60
BATCHES = 4
ROUNDS = 20
EVERY = 11
"""Bytes from one place to the next where a file is cut, or changed."""
LONGEST_LINE = 1_000
"""Characters of a message."""
TIMES_ITS_SIZE, AT_LEAST = 10, 4 * 2**20
"""Memory that loading may take."""
AT_ITS_LIMIT = re.compile(r"1[0,]{12,}|1e\+?15")
"""A message about a count of more than 10^15, as far as a file may count."""
MOST_MEMORY = 2 * 2**30
"""Address space that all of it may take beyond what the program starts with."""
LONGEST_S = 900
"""Seconds after which one file hangs, far more than any machine needs."""


def verdict(path, trace=True):
    """Load a file and play on. Return what became of it, or raise what should not have been."""
    size = path.stat().st_size
    if trace:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
    try:
        scheduler = Scheduler.load(path)
    except StateFileError as error:
        line = str(error)
        assert "\n" not in line, line
        assert len(line) <= LONGEST_LINE + len(str(path)), f"{len(line):,} characters: {line}"
        return type(error).__name__
    finally:
        if trace:
            taken = tracemalloc.get_traced_memory()[1] - before
            assert taken <= TIMES_ITS_SIZE * size + AT_LEAST, f"{taken:,} bytes for {size:,}"
    return played(scheduler, path)


def played(scheduler, path):
    """Play rounds, save what was learned and load it again."""
    dice = np.random.default_rng(1)
    if not scheduler.clients:
        scheduler.join(["newcomer"] if not is_int(scheduler) else [99])
    for _ in range(ROUNDS):
        m = min(scheduler.cohort_size, len(scheduler.clients))
        try:
            cohort = scheduler.select(cohort_size=m)
        except InvalidInput as error:
            if "samples" in str(error):
                return "asks for samples"
            raise
        assert cohort
        assert set(cohort) <= set(scheduler.clients)
        scheduler.observe({k: good(int(dice.integers(100))) for k in cohort}, strict=True)
        assert not set(cohort) & set(scheduler.outstanding) or scheduler.outstanding
    again = path.with_suffix(".again")
    scheduler.save(again)
    try:
        assert Scheduler.load(again).t == scheduler.t
    except StateFileError as error:
        if not AT_ITS_LIMIT.search(str(error)):
            raise
        return "plays to the largest number"
    return "plays"


def is_int(scheduler):
    ids = scheduler._clients.ids
    return bool(ids) and isinstance(ids[0], int)


def attack(folder, n_files, seed, trace=True):
    """Load changed files and print what became of them; collect what should not have been."""
    warnings.simplefilter("error")
    contents = [content_of(path) for path in originals(folder)]
    dice, counts, faults = random.Random(seed), Counter(), []
    path = folder / "hostile.bsfl"
    if trace:
        tracemalloc.start()
    for number in range(n_files):
        if trace:
            faulthandler.dump_traceback_later(LONGEST_S, exit=True)
        data, done = hostile(contents[number % len(contents)], dice)
        path.write_bytes(data)
        try:
            counts[verdict(path, trace)] += 1
        except BaseException as error:
            keep = folder / f"fault-{seed}-{number}.bsfl"
            keep.write_bytes(data)
            faults.append(f"{keep} {done}: {error!r}"[:500])
    tracemalloc.stop()
    faulthandler.cancel_dump_traceback_later()
    print(f"{n_files:,} files:", ", ".join(f"{n:,} {what}" for what, n in counts.most_common()))
    return counts, faults


def test_a_few_changed_files_are_refused_or_play(fast_folder):
    counts, faults = attack(fast_folder, N_FILES_FEW, seed=0, trace=False)
    assert not faults, "\n".join(faults)
    assert counts.total() == N_FILES_FEW


@pytest.mark.attack
@pytest.mark.parametrize("batch", range(BATCHES))
def test_changed_files_are_refused_or_play(batch, fast_folder):
    n = N_FILES // BATCHES
    command = [sys.executable, __file__, str(fast_folder), str(n), str(batch + 1)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


@pytest.fixture
def saved(tmp_path):
    """Return a file that was saved."""
    scheduler = Scheduler(cohort_size=2)
    scheduler.select(["ann", "bob", "cem"])
    scheduler.save(tmp_path / "s.bsfl")
    return tmp_path / "s.bsfl"


def test_cut_extended_and_flipped_files_are_refused(saved):
    whole = saved.read_bytes()
    places = range(0, len(whole), EVERY)
    cuts = [whole[:n] for n in places]
    longer = [whole + b"\0" * n for n in (1, 100)] + [whole * 2]
    flips = [whole[:n] + bytes([whole[n] ^ 1]) + whole[n + 1 :] for n in places]
    for content in (*cuts, *longer, *flips):
        saved.write_bytes(content)
        with pytest.raises(StateFileError):
            Scheduler.load(saved)
    print(f"{len(cuts):,} cut, {len(longer)} extended, {len(flips):,} with one bit flipped")


HEADS = ["null", "5", '"policy"', "[]", "{}", "true", "NaN", '{"arrays": 5}', '{"arrays": [5]}']
HEADS += ["", "{", '{"arrays": [{}]}', "[" * 100_000, '{"arrays": [], "policy": "pace"}']
HEADS += ['{"arrays": {"a": 1}}', '{"arrays": "abc"}', "1" * 10_000, "\ufeff{}"]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head[:40])
def test_a_header_of_another_kind_is_refused(saved, head):
    saved.write_bytes(sealed(len(head.encode()).to_bytes(8, "little") + head.encode()))
    with pytest.raises(StateFileError):
        Scheduler.load(saved)


@pytest.mark.parametrize("shape", [[2**40, "x" * 1000], ["x", 2**62], [2**62] * 3, [1] * 100_000])
def test_a_shape_that_cannot_be_reserves_nothing(saved, shape):
    """A number times a text is a text that many times as long."""
    content = content_of(saved)
    content.arrays[0][2] = shape
    saved.write_bytes(content.to_bytes())
    tracemalloc.start()
    try:
        with pytest.raises(StateFileError):
            Scheduler.load(saved)
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20 + 10 * saved.stat().st_size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("body", [b"", b"\0", b"\xff" * 8, b"\xff" * 100, b"\0" * 8])
def test_a_body_without_a_header_is_refused(saved, body):
    saved.write_bytes(sealed(body))
    with pytest.raises(StateFileError):
        Scheduler.load(saved)


def test_other_things_than_files_are_refused(tmp_path, saved):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").touch()
    (tmp_path / "text.json").write_text(json.dumps({"policy": "pace", "arrays": []}))
    (tmp_path / "zeros").write_bytes(bytes(1000))
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    names = ["fifo", "empty", "text.json", "zeros", "link", ""]
    for other in [*(tmp_path / name for name in names), Path("/dev/zero"), Path("/dev/null")]:
        with pytest.raises(StateFileError, match="nothing was loaded"):
            Scheduler.load(other)
    with pytest.raises(FileNotFoundError):
        Scheduler.load(tmp_path / "missing")


TOUCHED = (
    "from pathlib import Path; Path(__file__).with_suffix('.run').touch()\ndef rule(*a, **k): 1"
)
PLACES = [("solver",), ("generalization",), ("index",), ("index", "kind"), ("memory", "kind")]
PLACES += [("alpha", "kind"), ("index", "radius")]


@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_no_code_is_run_that_a_file_names(fast_folder, place):
    """A setting may be the name of a function in a file; a state file must not make us run it."""
    code = fast_folder / "evil.py"
    code.write_text(TOUCHED)
    path = fast_folder / "s.bsfl"
    Scheduler(BSFL(), cohort_size=1).save(path)
    content = content_of(path)
    settings = content.header["settings"]
    *outer, last = place
    for step in outer:
        settings[step] = settings[step] if isinstance(settings[step], dict) else {}
        settings = settings[step]
    settings[last] = f"{code}:rule"
    path.write_bytes(content.to_bytes())
    with pytest.raises(StateFileError):
        Scheduler.load(path)
    content.header["policy"] = f"{code}:rule"
    path.write_bytes(content.to_bytes())
    with pytest.raises(StateFileError):
        Scheduler.load(path)
    assert not code.with_suffix(".run").exists()


if __name__ == "__main__":
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, used + MOST_MEMORY))
    _, found = attack(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    print("\n".join(found))
    sys.exit(bool(found))
