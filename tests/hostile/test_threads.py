"""Several threads, copies and forked processes use one scheduler, and no round is lost."""

import copy
import os
import pickle
import select
import signal
import threading
import time
from collections import Counter

import numpy as np
import pytest
from killed_writers import forked

from attacks import of_long_form
from bsfl import Observation, Pace, Scheduler, UniformRandom
from bsfl.errors import UnknownClient
from bsfl.monitoring import Journal, read_journal
from memory_journal import MemoryJournal
from saved_state import differences, saved_state

IDS = [f"phone-{i:02}" for i in range(30)]
N_THREADS, MAX_OPEN_ROUNDS = 3, 6


def together(*works):
    """Run functions in threads of their own, and raise the first error."""
    errors = []

    def guarded(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Crowd:
    """Threads on one scheduler: some run rounds, one saves and loads, one forgets clients."""

    def __init__(self, policy, folder, n_rounds):
        self.announced, self.n_rounds, self.finished = Counter(), n_rounds, []
        self.state, self.journal = folder / "state", folder / "journal"
        self.scheduler = Scheduler(
            policy,
            cohort_size=3,
            over_selection=1.5,
            max_open_rounds=MAX_OPEN_ROUNDS,
            journal=Journal(self.journal, availability=True),
            on_round=lambda record: self.announced.update([record.round]),
        )
        self.scheduler.join(IDS)

    def play(self, seed):
        try:
            self.run_rounds(seed)
        finally:
            self.finished.append(seed)

    def run_rounds(self, seed):
        """Run rounds in which some responses come late, and some never."""
        rng, older = np.random.default_rng(seed), None
        for i in range(self.n_rounds):
            cohort = self.scheduler.select(rng.choice(IDS, 20, replace=False).tolist())
            fates = rng.choice(
                ["now", "later", "failed", "never"], len(cohort), p=[0.6, 0.2, 0.1, 0.1]
            )
            for client, fate in zip(cohort, fates, strict=True):
                if fate == "now":
                    self.scheduler.observe({client: 1.0 + rng.random()}, round=cohort)
                elif fate == "failed":
                    self.scheduler.observe({client: Observation(outcome="failed")}, round=cohort)
            if older is not None:
                self.scheduler.observe(dict.fromkeys(older, 9.0), round=older)
            older = cohort
            if i % 3 == 0:
                self.scheduler.close(cohort)
            if i % 10 == 9:
                self.scheduler.abandon()

    def save_and_load(self):
        while len(self.finished) < N_THREADS:
            for wait in (True, False):
                self.scheduler.save(self.state, wait=wait)
                self.scheduler.saved()
                loaded = Scheduler.load(self.state)
                assert loaded.round <= self.scheduler.round
                loaded.select(IDS)

    def forget(self):
        rng = np.random.default_rng(5)
        while len(self.finished) < N_THREADS:
            try:
                self.scheduler.forget(rng.choice(IDS, 2, replace=False).tolist())
            except UnknownClient:
                self.scheduler.join(IDS[:2])
            time.sleep(0.001)


def check_crowd(policy, folder, n_rounds):
    crowd = Crowd(policy, folder, n_rounds)
    players = [lambda seed=seed: crowd.play(seed) for seed in range(N_THREADS)]
    together(*players, crowd.save_and_load, crowd.forget)
    scheduler = crowd.scheduler
    assert scheduler.round == N_THREADS * n_rounds
    assert len(scheduler.pending()) <= MAX_OPEN_ROUNDS
    for cohort in scheduler.pending():
        scheduler.close(cohort)
    rounds = Counter(range(1, scheduler.round + 1))
    assert crowd.announced == rounds
    entries = list(read_journal(crowd.journal))
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    for kind in ("opened", "closed"):
        assert Counter(entry["round"] for entry in entries if entry["kind"] == kind) == rounds
    scheduler.save(crowd.state)
    loaded = Scheduler.load(crowd.state)
    assert set(differences(saved_state(loaded), saved_state(scheduler))) <= {"rounds/opened_s"}


@pytest.mark.parametrize("policy", [Pace(), UniformRandom()], ids=["pace", "random"])
def test_every_round_of_several_threads_is_opened_closed_and_announced_once(policy, fast_folder):
    check_crowd(policy, fast_folder, 40)


@pytest.mark.attack
def test_thousands_of_rounds_of_several_threads(fast_folder):
    check_crowd(Pace(), fast_folder, of_long_form(3_000))


def test_events_are_written_in_their_order_when_a_thread_is_held_up():
    class Slow(MemoryJournal):
        def put(self, entries):
            if not begun.is_set():
                begun.set()
                time.sleep(0.2)
            super().put(entries)

    begun, journal = threading.Event(), Slow()
    scheduler = Scheduler(UniformRandom(), cohort_size=2, journal=journal)

    def second():
        begun.wait()
        scheduler.join(["cem", "dan"])

    together(lambda: scheduler.join(["ann", "bob"]), second)
    assert [entry["new"] for entry in journal.entries] == [["ann", "bob"], ["cem", "dan"]]


def test_a_thread_waits_for_no_callback_of_another():
    begun, done = threading.Event(), threading.Event()

    def on_round(record):
        if record.round == 1:
            begun.set()
            assert done.wait(timeout=30)

    scheduler = Scheduler(cohort_size=2, on_round=on_round, journal=MemoryJournal())
    first = scheduler.select(IDS)

    def second():
        begun.wait()
        scheduler.observe(dict.fromkeys(scheduler.select(), 1.0))
        done.set()

    together(lambda: scheduler.observe(dict.fromkeys(first, 1.0)), second)
    assert scheduler.round == 2


def started():
    scheduler = Scheduler(cohort_size=3)
    for _ in range(5):
        scheduler.observe(dict.fromkeys(scheduler.select(IDS), 2.0))
    scheduler.select()
    return scheduler


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_go_their_own_way(fast_folder, copied):
    scheduler = started()
    scheduler.save(fast_folder / "s.bsfl", wait=False)
    other = copied(scheduler)
    scheduler.saved()
    before = saved_state(scheduler)
    assert saved_state(other) == before
    cohort = other.select()
    other.save(fast_folder / "other.bsfl", wait=False)
    other.saved()
    assert saved_state(scheduler) == before
    assert scheduler.select() == cohort


def test_a_fork_does_not_wait_for_a_thread_that_it_does_not_have(fast_folder):
    scheduler = started()
    held, done = threading.Event(), threading.Event()

    def hold():
        with scheduler._lock:
            held.set()
            done.wait()

    def work(pipe):
        scheduler.select()
        scheduler.save(fast_folder / "child.bsfl", wait=False)
        scheduler.saved()
        os.write(pipe, b"done")

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child, reading = forked(work)
    if not select.select([reading], [], [], 60)[0]:
        os.kill(child, signal.SIGKILL)  # it hangs
    os.waitpid(child, 0)
    done.set()
    holder.join()
    assert os.read(reading, 1000) == b"done"
    assert Scheduler.load(fast_folder / "child.bsfl").round == 7
