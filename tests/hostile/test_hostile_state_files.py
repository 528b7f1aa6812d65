"""Whatever a state file holds: it is rejected in one line, or its scheduler works."""

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
from hostile_files import content_of, hostile, originals, response, result

from attacks import of_long_form
from bsfl import BSFL, Scheduler
from bsfl.errors import InvalidInput, StateFileError
from every_policy import is_forgettable, registered
from saved_state import finalised

N_FILES, BATCHES = 8_000, 4
"""Changed files in the attack."""
ROUNDS = 12
LONGEST_LINE = 1_000
"""Characters of a message."""
TIMES_ITS_SIZE, AT_LEAST = 10, 4 * 2**20
"""Memory that loading may take."""
AT_ITS_LIMIT = re.compile(r"\w+ holds -?(\d+|\d\.?\d*e\+\d+), which cannot be")
"""Message about a number beyond its limit; from LARGEST on it may have been at the limit before."""
LARGEST = 1e15
OWN_RULES = re.compile(
    "samples|candidates must be at least|must cover all|round must be .* at most"
)
"""Messages of rules that a scheduler with these settings breaks whether or not it was saved."""
MAX_MEMORY = 2 * 2**30
"""Address space that all of it may take beyond what the program starts with."""
LONGEST_S = 900
"""Seconds after which one file hangs, far more than any machine needs."""


def outcome(path, policy=None, trace=True):
    """Load a file and use the scheduler. Return what became of it; raise if it is a fault."""
    if trace:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
    try:
        scheduler = Scheduler.load(path, policy=policy)
    except StateFileError as error:
        if "\n" in str(error) or len(str(error)) > LONGEST_LINE + len(str(path)):
            raise
        return type(error).__name__
    except InvalidInput as error:
        if policy is None or "none can be forgotten" not in str(error):
            raise
        return "needs another policy"
    finally:
        if trace:
            taken = tracemalloc.get_traced_memory()[1] - before
            assert taken <= TIMES_ITS_SIZE * path.stat().st_size + AT_LEAST, f"{taken:,} bytes"
    return used(scheduler, path, policy)


def used(scheduler, path, policy):
    """Use a scheduler in every way, save it and load it again."""
    dice = random.Random(1)
    check_consistent(scheduler)
    scheduler.save(path.with_suffix(".first"))
    Scheduler.load(path.with_suffix(".first"), policy=policy)
    if not scheduler.clients:
        scheduler.join([new_id(scheduler)])
    for number in range(ROUNDS):
        read(scheduler)
        m = min(scheduler.cohort_size, len(scheduler.clients))
        everyone = number % 3 == 0 or not len(scheduler._engine.available(0.0)[0])
        try:
            cohort = scheduler.select(scheduler.clients if everyone else None, cohort_size=m)
        except InvalidInput as error:
            if not OWN_RULES.search(str(error)):
                raise
            return "needs other settings"
        assert set(cohort) <= set(scheduler.clients)
        assert cohort or not everyone or scheduler.plan.lifetime_s
        scheduler.observe(
            {k: result(dice.randrange(99)) for k in cohort[number % 2 :]}, round=cohort
        )
        if number % 4 == 1:
            late = dice.sample(scheduler.in_flight, min(3, len(scheduler.in_flight)))
            scheduler.observe({k: response(dice.randrange(99)) for k in late}, strict=True)
        if number % 3 == 1:
            scheduler.close(cohort, discard=number % 2 == 0)
        if number == 4:
            change_clients(scheduler)
    scheduler.abandon()
    assert not scheduler.in_flight
    read(scheduler)
    check_consistent(scheduler)
    again = path.with_suffix(".again")
    scheduler.save(again)
    try:
        assert Scheduler.load(again, policy=policy).round == scheduler.round
    except StateFileError as error:
        number = AT_ITS_LIMIT.search(str(error))
        if not number or float(number[1]) < LARGEST:
            raise
        return "works up to its limits"
    return "works"


def read(scheduler):
    """Read everything that can be known."""
    scheduler.table()
    scheduler.summary()
    scheduler.diagnostics()
    scheduler.pending()
    last = scheduler.last_round
    if last and last.cohort:
        scheduler.explain(last.cohort[0])
        try:
            weights = scheduler._engine.weights(scheduler._ids.indices_of(last.cohort))
        except InvalidInput as error:
            if not OWN_RULES.search(str(error)):
                raise
        else:
            assert weights is None or np.isfinite(weights).all()


def change_clients(scheduler):
    """Let clients join, be described, leave, be forgotten, come and go."""
    joining = [*scheduler.clients[:2], new_id(scheduler)]
    scheduler.join(joining, samples=[3.0] * len(joining))
    a, *others = scheduler.clients
    scheduler.leave(others[2:3])
    if is_forgettable(scheduler.policy):
        scheduler.forget(others[1:2])
    scheduler.online(others[:1])
    scheduler.offline([a])


def new_id(scheduler):
    names = scheduler._ids.names
    return 1000 if names and isinstance(names[0], int) else "new"


def check_consistent(scheduler):
    """Check that what is kept twice, to be found fast, agrees; a save writes it once."""
    engine, ids = scheduler._engine, scheduler._ids
    n = engine.pool.n
    assert ids._index == {client: k for k, client in enumerate(ids.names)}
    assert len(ids.names) == n
    pending = {}
    for one in engine.rounds:
        for client in one.pending.tolist():
            pending.setdefault(client, []).append(one.number)
    found = {k: list(engine.rounds.pending_rounds(k)) for k in engine.rounds.in_flight}
    assert found == pending
    assert engine.rounds.n_pending == sum(map(len, pending.values()))
    assert engine.pool.n_members == np.count_nonzero(engine.pool.member[:n])
    assert not np.any(engine.pool.online[:n] & ~engine.pool.member[:n])


def attack(folder, n_files, seed, trace=True):
    """Load changed files and print what became of them; collect the faults."""
    warnings.simplefilter("error")
    contents = originals(folder, seed)
    dice, counts, faults = random.Random(seed), Counter(), []
    others = list(registered().values())
    path = folder / "hostile.bsfl"
    if trace:
        tracemalloc.start()
    for number in range(n_files):
        if trace:
            faulthandler.dump_traceback_later(LONGEST_S, exit=True)
        data, done = hostile(contents[number % len(contents)], dice)
        path.write_bytes(data)
        policy = dice.choice(others) if number % 6 == 5 else None
        try:
            counts[outcome(path, policy, trace)] += 1
        except BaseException as error:
            faults.append(f"file {number} of seed {seed}, {done}: {error!r}"[:500])
    tracemalloc.stop()
    faulthandler.cancel_dump_traceback_later()
    return counts, faults


def test_a_few_changed_files_are_rejected_or_work(fast_folder):
    counts, faults = attack(fast_folder, 150, seed=0, trace=False)
    assert not faults, "\n".join(faults)
    assert counts.total() == 150


@pytest.mark.attack
@pytest.mark.parametrize("batch", range(BATCHES))
def test_changed_files_are_rejected_or_work(batch, fast_folder):
    n = of_long_form(N_FILES // BATCHES)
    command = [sys.executable, __file__, str(fast_folder), str(n), str(batch + 1)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


@pytest.fixture
def saved(tmp_path):
    """Return a file that was saved."""
    scheduler = Scheduler(cohort_size=2)
    scheduler.select(["ann", "bob", "cem"])
    scheduler.save(tmp_path / "s.bsfl")
    return tmp_path / "s.bsfl"


HEADS = ["null", "5", '"policy"', "[]", "{}", "true", "NaN", '{"arrays": 5}', '{"arrays": [5]}']
HEADS += ["", "{", '{"arrays": [{}]}', "[" * 100_000, '{"arrays": [], "policy": "pace"}']
HEADS += ['{"arrays": {"a": 1}}', '{"arrays": "abc"}', "1" * 10_000, "\ufeff{}"]
BODIES = [len(head.encode()).to_bytes(8, "little") + head.encode() for head in HEADS]
BODIES += [b"", b"\0", b"\xff" * 8, b"\xff" * 100]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:40]))
def test_a_body_without_a_header_or_with_another_one_is_rejected(saved, body):
    saved.write_bytes(finalised(body))
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


def test_other_things_than_files_are_rejected(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").touch()
    (tmp_path / "zeros").write_bytes(bytes(1000))
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    paths = [tmp_path / name for name in ("fifo", "empty", "zeros", "link", "")]
    for other in [*paths, Path("/dev/zero")]:
        with pytest.raises(StateFileError, match="nothing was loaded"):
            Scheduler.load(other)


EVIL = "from pathlib import Path\nPath(__file__).with_suffix('.run').touch()\ndef rule(*a, **k): 1"


@pytest.mark.parametrize(
    "changed",
    [
        {"policy": "EVIL"},
        {"settings": {"solver": "EVIL"}},
        {"settings": {"generalization": "EVIL"}},
        {"settings": {"index": "EVIL"}},
        {"settings": {"index": {"kind": "EVIL"}}},
        {"settings": {"index": {"kind": "ucb", "confidence_width": "EVIL"}}},
        {"settings": {"memory": {"kind": "EVIL"}}},
        {"settings": {"alpha": {"kind": "EVIL"}}},
    ],
    ids=json.dumps,
)
def test_no_code_is_run_that_a_file_names(fast_folder, changed):
    """A setting may be the name of a function in a file; a state file must not make us run it."""
    code, path = fast_folder / "evil.py", fast_folder / "s.bsfl"
    code.write_text(EVIL)
    Scheduler(BSFL(), cohort_size=1).save(path)
    content = content_of(path)
    content.header |= json.loads(json.dumps(changed).replace("EVIL", f"{code}:rule"))
    path.write_bytes(content.to_bytes())
    with pytest.raises(StateFileError):
        Scheduler.load(path)
    assert not code.with_suffix(".run").exists()


if __name__ == "__main__":
    reserved = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = reserved + MAX_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    _, found = attack(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    print("\n".join(found))
    sys.exit(bool(found))
