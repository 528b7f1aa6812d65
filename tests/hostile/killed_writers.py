"""Programs that save until they are killed. They are forked, so that each starts at once.

Run as `killed_writers.py WHAT FOLDER COUNT SEED`; raises what is wrong.
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

LONGEST_S = 7_200
"""Seconds after which it hangs, far more than any machine needs."""


def fresh(seed=0):
    scheduler = Scheduler(cohort_size=3, seed=seed)
    scheduler.join([f"client-{k}" for k in range(600)])
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
        warnings.filterwarnings("ignore", message=".*use of fork")
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
    """Return work that writes each round to the pipe when it is about to save it."""

    def work(pipe):
        scheduler = Scheduler.load(path)
        while True:
            play(scheduler)
            os.write(pipe, f"{scheduler.round} {last_cohort(scheduler)}\n".encode())
            scheduler.save(path, wait=wait)

    return work


def last_cohort(scheduler):
    return ",".join(scheduler.last_round.cohort) if scheduler.round else ""


def kill(folder, n_kills, seed, *, wait):
    """Kill writers at random moments; each time the file is whole, and one that was saved."""
    path, dice = folder / "s.bsfl", random.Random(seed)
    fresh().save(path)
    saved, last = {0: ""}, 0
    for _ in range(n_kills):
        child, reading = forked(save_for_ever(path, wait=wait))
        lines, n_lines = b"", dice.randint(1, 4)
        while lines.count(b"\n") < n_lines:
            more = os.read(reading, 4096)
            assert more, f"the writer ended: {lines!r}"
            lines += more
        time.sleep(dice.random() * 0.004)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while more := os.read(reading, 4096):
            lines += more
        os.close(reading)
        assert b"!" not in lines, lines
        saved |= {int(line.split()[0]): line.split()[1] for line in lines.decode().splitlines()}
        loaded = Scheduler.load(path)
        assert loaded.round >= last, "a save was lost"
        assert saved[loaded.round] == last_cohort(loaded)
        assert len(temporaries(folder)) <= 1
        last = loaded.round
    assert last > 0 or not wait
    Scheduler.load(path).save(path)
    assert not temporaries(folder), "a temporary file survived the next save"


if __name__ == "__main__":
    faulthandler.dump_traceback_later(LONGEST_S, exit=True)
    what, place, count, start = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    kill(place, count, start, wait=what == "kill")
