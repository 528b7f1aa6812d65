"""Several threads run overlapping rounds on one scheduler, with a journal and callbacks."""

import threading
import time
from collections import Counter

import numpy as np
import pytest

from bsfl import Observation, Pace, Scheduler, UniformRandom
from bsfl.monitoring import Journal, read_journal
from memory_journal import MemoryJournal

N_THREADS, LIMIT, N_ROUNDS = 4, 6, 40
IDS = [f"phone-{i:02}" for i in range(30)]


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


def life(scheduler, seed):
    """Return a function that runs rounds: some responses come late, some never."""

    def run():
        rng = np.random.default_rng(seed)
        older = None
        for i in range(N_ROUNDS):
            cohort = scheduler.select(rng.choice(IDS, 20, replace=False).tolist())
            for client in cohort:
                fate = rng.choice(["now", "later", "failed", "never"], p=[0.6, 0.2, 0.1, 0.1])
                if fate == "now":
                    scheduler.observe({client: 1.0 + rng.random()}, round=cohort)
                elif fate == "failed":
                    scheduler.observe({client: Observation(outcome="failed")}, round=cohort)
            if older is not None:
                scheduler.observe(dict.fromkeys(older, 9.0), round=older)
            older = cohort
            if i % 3 == 0:
                scheduler.close(cohort)
            if i % 10 == 9:
                scheduler.abandon(rng.choice(IDS, 5, replace=False).tolist())

    return run


@pytest.mark.parametrize("policy", [Pace(), UniformRandom()], ids=["pace", "random"])
def test_every_round_is_opened_closed_and_announced_once(policy, tmp_path):
    announced = Counter()
    scheduler = Scheduler(
        policy,
        cohort_size=3,
        over_selection=1.5,
        max_open_rounds=LIMIT,
        journal=Journal(tmp_path / "journal", availability=True),
        on_round=[lambda record: announced.update([record.round]), lambda record: time.sleep(0)],
    )
    scheduler.join(IDS)
    together(*(life(scheduler, seed) for seed in range(N_THREADS)))
    assert scheduler.round == N_THREADS * N_ROUNDS
    assert len(scheduler.pending()) <= LIMIT
    while scheduler.pending():
        scheduler.close(scheduler.pending()[0])
    everything = set(range(1, scheduler.round + 1))
    assert announced == Counter(everything)
    entries = list(read_journal(tmp_path / "journal"))
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    opened, closed = (
        Counter(entry["round"] for entry in entries if entry["kind"] == kind)
        for kind in ("opened", "closed")
    )
    assert opened == closed == Counter(everything)
    reported = Counter(
        (entry["round"], client)
        for entry in entries
        if entry["kind"] == "responses"
        for client in entry["clients"]
    )
    assert set(reported.values()) == {1}, "each invitation is reported at most once"
    rows = scheduler.table()
    assert sum(row["invitations"] for row in rows) == sum(
        len(entry["invited"]) for entry in entries if entry["kind"] == "opened"
    )


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

    scheduler = Scheduler(
        UniformRandom(), cohort_size=2, on_round=on_round, journal=MemoryJournal()
    )
    first = scheduler.select(IDS)

    def second():
        begun.wait()
        scheduler.observe(dict.fromkeys(scheduler.select(), 1.0))
        done.set()

    together(lambda: scheduler.observe(dict.fromkeys(first, 1.0)), second)
    assert scheduler.round == 2
