"""Several threads, copies and forked processes use one scheduler, and no round is lost."""

import copy
import json
import os
import pickle
import select
import signal
import threading
from collections import Counter

import numpy as np
import pytest
from every_policy import saved_state
from killed_writers import forked

from attacks import of_long_form
from bsfl import Observation, Pace, Scheduler
from bsfl.errors import BsflError, FileInUse

ROUNDS, ROUNDS_FEW = 3_000, 80
"""Rounds of each thread that selects."""
PAUSE_S = 0.001
"""Time for which those that save and forget let the others play."""
POOL = [f"c{k:02}" for k in range(30)]


def without_times(scheduler):
    """Return what a save would write, but for times: the clock moves on."""
    state = saved_state(scheduler)
    header = json.loads(state["header"])
    del header["clock_s"], state["rounds/opened_s"]
    return {**state, "header": header}


class Crowd:
    """Four threads on one scheduler: two play rounds, one saves and loads, one forgets."""

    def __init__(self, folder, rounds):
        self.scheduler = Scheduler(Pace(), cohort_size=3, over_selection="auto", forget_after=50)
        self.scheduler.join(POOL)
        self.path, self.rounds = folder / "s.bsfl", rounds
        self.counts, self.errors, self.over = Counter(), [], threading.Event()

    def play(self, seed):
        dice = np.random.default_rng(seed)
        for _ in range(self.rounds):
            cohort = self.scheduler.select(dice.choice(POOL, 20, replace=False).tolist())
            self.counts[f"selects of {seed}"] += 1
            answers = {c: Observation(latency_s=1.0 + dice.random(), loss=1.0) for c in cohort}
            self.scheduler.observe(answers)
            if dice.random() < 0.1:
                self.scheduler.abandon()

    def keep(self):
        while not self.over.wait(PAUSE_S):
            self.scheduler.save(self.path, wait=bool(self.counts["saves"] % 2))
            self.counts["saves"] += 1
            self.scheduler.saved()
            loaded = Scheduler.load(self.path)
            assert loaded.round <= self.scheduler.round
            loaded.select(POOL)
            self.counts["loads"] += 1

    def forget(self):
        dice = np.random.default_rng(5)
        while not self.over.wait(PAUSE_S):
            who = dice.choice(POOL, 2, replace=False).tolist()
            try:
                [self.scheduler.forget, self.scheduler.leave][int(dice.integers(2))](who)
                self.counts["forgotten"] += 1
            except BsflError:
                self.counts["refused"] += 1
            assert len(self.scheduler.clients) <= len(POOL)
            assert set(self.scheduler.in_flight) <= set(POOL)

    def guarded(self, work, *args):
        try:
            work(*args)
        except BaseException as error:
            self.errors.append(error)

    def run(self):
        players = [threading.Thread(target=self.guarded, args=(self.play, k)) for k in (1, 2)]
        others = [
            threading.Thread(target=self.guarded, args=(w,)) for w in (self.keep, self.forget)
        ]
        for thread in players + others:
            thread.start()
        for thread in players:
            thread.join()
        self.over.set()
        for thread in others:
            thread.join()


def crowd(folder, rounds):
    life = Crowd(folder, rounds)
    life.run()
    print(", ".join(f"{n:,} {what}" for what, n in sorted(life.counts.items())))
    assert not life.errors, life.errors
    assert (
        life.scheduler.round
        == life.counts["selects of 1"] + life.counts["selects of 2"]
        == 2 * rounds
    )
    assert life.counts["loads"]
    life.scheduler.save(life.path)
    assert without_times(Scheduler.load(life.path)) == without_times(life.scheduler)


def test_a_few_rounds_of_four_threads(fast_folder):
    crowd(fast_folder, ROUNDS_FEW)


@pytest.mark.attack
def test_thousands_of_rounds_of_four_threads(fast_folder):
    crowd(fast_folder, of_long_form(ROUNDS))


def started():
    scheduler = Scheduler(cohort_size=3)
    for _ in range(5):
        scheduler.observe(dict.fromkeys(scheduler.select(POOL), 2.0))
    scheduler.select()
    return scheduler


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_go_their_own_way(fast_folder, copied):
    scheduler = started()
    scheduler.save(fast_folder / "s.bsfl", wait=False)
    other = copied(scheduler)
    scheduler.saved()
    before = without_times(scheduler)
    assert without_times(other) == before
    cohort = other.select()
    other.save(fast_folder / "other.bsfl", wait=False)
    other.saved()
    assert without_times(scheduler) == before
    assert scheduler.select() == cohort


def test_a_copy_is_another_writer(fast_folder):
    scheduler = started()
    scheduler.save(fast_folder / "s.bsfl")
    other = copy.deepcopy(scheduler)
    other.select()
    other.save(fast_folder / "s.bsfl")
    with pytest.raises(FileInUse):
        scheduler.save(fast_folder / "s.bsfl")


def locks_of(scheduler):
    """Return every lock that another thread may hold when a process is forked."""
    return {"scheduler": scheduler._lock, "writer": scheduler._files._writer._lock}


@pytest.mark.parametrize("name", ["scheduler", "writer"])
def test_a_fork_does_not_wait_for_a_thread_that_it_does_not_have(fast_folder, name):
    scheduler = started()
    held, done = threading.Event(), threading.Event()

    def hold():
        with locks_of(scheduler)[name]:
            held.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()

    def work(pipe):
        scheduler.select()
        scheduler.save(fast_folder / "child.bsfl", wait=False)
        scheduler.saved()
        os.write(pipe, b"done")

    child, reading = forked(work)
    told = wait_for(child, reading)
    done.set()
    holder.join()
    assert told == b"done"
    assert Scheduler.load(fast_folder / "child.bsfl").round == 7


def wait_for(child, reading, seconds=60):
    """Return what a child tells, or nothing if it hangs; then it is killed."""
    ready, _, _ = select.select([reading], [], [], seconds)
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return os.read(reading, 1000)


def test_a_fork_does_not_write_what_its_parent_is_asked_to(fast_folder):
    """Writes that wait in the parent are the parent's own."""
    scheduler = started()
    held, done = threading.Event(), threading.Event()
    writer = scheduler._files._writer

    def slow():
        held.set()
        done.wait()

    writer.put(fast_folder / "slow", slow)
    held.wait()
    scheduler.save(fast_folder / "parent.bsfl", wait=False)  # waits for the slow one

    def work(pipe):
        scheduler.save(fast_folder / "child.bsfl", wait=False)
        scheduler.saved()
        os.write(pipe, b"no" if (fast_folder / "parent.bsfl").exists() else b"done")

    told = wait_for(*forked(work))
    done.set()
    scheduler.saved()
    assert told == b"done"
    assert Scheduler.load(fast_folder / "parent.bsfl").round == 6
