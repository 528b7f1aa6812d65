"""Programs that save until they are killed. They are forked, so that each starts at once.

Run as `killed_writers.py WHAT FOLDER COUNT SEED`; prints counts, and raises what is wrong.
"""

import faulthandler
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

from bsfl import Scheduler
from bsfl.errors import FileInUse

N_CLIENTS = 600
LONGEST_S = 7_200
"""Seconds after which it hangs, far more than any machine needs."""


def fresh(seed=0):
    scheduler = Scheduler(cohort_size=3, seed=seed)
    scheduler.join([f"client-{k}" for k in range(N_CLIENTS)])
    return scheduler


def play(scheduler):
    cohort = scheduler.select()
    scheduler.observe({client: 1.0 + len(client) for client in cohort})


def temporaries(folder):
    return [name for name in os.listdir(folder) if name.endswith(".tmp")]


def forked(work):
    """Run work(pipe) in a process of its own; return its number and where to read its pipe."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():  # JAX warns of every fork if another test has loaded it
        warnings.filterwarnings("ignore", message=r"os\.fork")
        child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    code = 1
    try:
        os.close(reading)
        work(writing)
        code = 0
    except BaseException as error:
        os.write(writing, f"!{error!r}".encode())
    finally:
        os._exit(code)


def save_for_ever(path, *, wait):
    """Return work that tells each round that it is about to save, and saves it."""

    def work(pipe):
        scheduler = Scheduler.load(path)
        while True:
            play(scheduler)
            os.write(pipe, f"{scheduler.round} {hash_of(scheduler)}\n".encode())
            scheduler.save(path, wait=wait)

    return work


def hash_of(scheduler):
    return ",".join(scheduler.last_round.cohort)


def kill(folder, n_kills, seed, *, wait):
    """Kill writers at random moments; each time the file is whole, and one that was saved."""
    path, dice = folder / "s.bsfl", random.Random(seed)
    fresh().save(path)
    saved, last, moved, most_left = {0: ""}, 0, 0, 0
    for _ in range(n_kills):
        child, reading = forked(save_for_ever(path, wait=wait))
        told, n_lines = b"", dice.randint(1, 4)
        while told.count(b"\n") < n_lines:
            more = os.read(reading, 4096)
            assert more, f"the writer ended: {told!r}"
            told += more
        time.sleep(dice.random() * 0.004)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while more := os.read(reading, 4096):
            told += more
        os.close(reading)
        assert b"!" not in told, told
        saved |= {int(line.split()[0]): line.split()[1] for line in told.decode().splitlines()}
        loaded = Scheduler.load(path)
        assert loaded.round >= last, "a save was lost"
        assert loaded.round in saved
        assert not loaded.round or saved[loaded.round] == hash_of(loaded)
        moved, last = moved + (loaded.round > last), loaded.round
        most_left = max(most_left, len(temporaries(folder)))
    scheduler = Scheduler.load(path)
    scheduler.save(path)
    assert most_left <= 1, f"{most_left} temporary files"
    assert not temporaries(folder), "a temporary file survived the next save"
    print(f"{n_kills} kills, {moved} after a whole save, {last} rounds, at most {most_left} left")


def save_as_one_of_two(path, n_saves, number):
    """Return work that saves what another one saves as well; tells `f` when it is told so."""

    def work(pipe):
        scheduler = fresh(number)
        for _ in range(n_saves):
            play(scheduler)
            try:
                scheduler.save(path)
                os.write(pipe, b"s")
            except FileInUse:
                os.write(pipe, b"f")
                scheduler = Scheduler.load(path)

    return work


def compete(folder, n_saves, seed):
    """Let two processes save one file; every load succeeds, and both are told of the other."""
    path = folder / "s.bsfl"
    fresh().save(path)
    children = [forked(save_as_one_of_two(path, n_saves, number)) for number in (1, 2)]
    n_loads, running = 0, {child for child, _ in children}
    while running:
        Scheduler.load(path)
        n_loads += 1
        for child in list(running):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                assert status == 0
                running.discard(child)
    told = [os.read(reading, 1_000_000) for _, reading in children]
    for one in told:
        assert len(one) == n_saves, one[-300:]
    n_refused = sum(one.count(b"f") for one in told)
    assert n_refused, "nobody was told of the other"
    assert not temporaries(folder)
    print(f"2 writers, {2 * n_saves} saves, {n_refused} refused, {n_loads} loads")


if __name__ == "__main__":
    faulthandler.dump_traceback_later(LONGEST_S, exit=True)
    what, place, count, start = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    if what == "compete":
        compete(place, count, start)
    else:
        kill(place, count, start, wait=what == "kill")
