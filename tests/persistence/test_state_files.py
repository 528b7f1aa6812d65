"""Saving while the rounds go on."""

import copy
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from bsfl import BSFL, Scheduler
from bsfl.persistence.background import BackgroundWriter

HERE = Path("here")


def play(scheduler, rounds):
    for _ in range(rounds):
        scheduler.observe({c: 1.0 + c % 5 for c in scheduler.select()})


def fresh(n_clients=200):
    scheduler = Scheduler(BSFL(alpha=4.0), cohort_size=10, seed=1, clock=lambda: 0.0)
    scheduler.join(range(n_clients))
    play(scheduler, 5)
    return scheduler


def test_what_is_written_is_the_moment_of_the_call(tmp_path, monkeypatch):
    from bsfl.persistence import statefile

    go, write = threading.Event(), statefile.write

    def slow(*args, **who):
        go.wait(10)
        return write(*args, **who)

    scheduler = fresh()
    scheduler.save(tmp_path / "now")
    monkeypatch.setattr(statefile, "write", slow)
    scheduler.save(tmp_path / "later", wait=False)
    play(scheduler, 7)
    scheduler.join(range(200, 400))
    play(scheduler, 3)
    go.set()
    scheduler.saved()
    assert (tmp_path / "later").read_bytes() == (tmp_path / "now").read_bytes()
    assert Scheduler.load(tmp_path / "later").round == 5


@pytest.mark.parametrize(
    "ids", [range(40), [f"phone-{i}" for i in range(40)], range(2**70, 2**70 + 40)]
)
def test_every_kind_of_id_comes_back(tmp_path, ids):
    scheduler = Scheduler(BSFL(), cohort_size=4)
    scheduler.join(ids)
    scheduler.save(tmp_path / "s", wait=False)
    scheduler.saved()
    assert Scheduler.load(tmp_path / "s").clients == list(ids)


def test_of_those_that_wait_the_newest_is_written():
    writer, go, begun, done = BackgroundWriter(), threading.Event(), threading.Event(), []

    def first():
        begun.set()
        go.wait(10)
        done.append("first")

    writer.put(HERE, first)
    begun.wait(10)
    writer.put(HERE, lambda: done.append("second"))
    writer.put(HERE, lambda: done.append("third"))
    writer.put(HERE / "other", lambda: done.append("other"))
    go.set()
    writer.wait()
    assert done == ["first", "third", "other"]
    writer.put(HERE, lambda: done.append("fourth"))
    writer.wait()
    assert done[-1] == "fourth"


def test_a_failure_comes_with_the_next_call(tmp_path):
    scheduler = fresh()
    scheduler.save(tmp_path / "no" / "such" / "folder", wait=False)
    with pytest.raises(FileNotFoundError):
        scheduler.saved()
    for wait in (True, False):
        scheduler.save(tmp_path / "no" / "such" / "folder", wait=False)
        scheduler._files._writer.join()
        with pytest.raises(FileNotFoundError):
            scheduler.save(tmp_path / f"fine-{wait}", wait=wait)
        scheduler.saved()
        assert Scheduler.load(tmp_path / f"fine-{wait}").round == 5, (
            "this one is written all the same"
        )


def test_saving_at_once_waits_for_what_is_being_written(tmp_path):
    scheduler = fresh()
    for _ in range(5):
        scheduler.save(tmp_path / "s", wait=False)
        play(scheduler, 1)
        scheduler.save(tmp_path / "s")
        assert Scheduler.load(tmp_path / "s").round == scheduler.round


def test_a_scheduler_can_be_copied_while_it_saves(tmp_path):
    scheduler = fresh()
    scheduler.save(tmp_path / "s", wait=False)
    other = copy.deepcopy(scheduler)
    scheduler.saved()
    assert np.array_equal(other.select(), scheduler.select())


def test_a_copy_reuses_the_memory_of_what_is_written_and_nothing_else(tmp_path, monkeypatch):
    from bsfl.persistence import statefile

    written = []
    write = statefile.write

    def noted(path, header, arrays, **who):
        written.append({name: a for name, a in arrays.items() if name == "policy/memory.mean"})
        return write(path, header, arrays, **who)

    monkeypatch.setattr(statefile, "write", noted)
    scheduler = fresh()
    for _ in range(2):
        play(scheduler, 2)
        scheduler.save(tmp_path / "s", wait=False)
        scheduler.saved()
    scheduler.join(range(200, 400))
    play(scheduler, 1)
    scheduler.save(tmp_path / "s", wait=False)
    scheduler.saved()
    first, second, third = (arrays["policy/memory.mean"] for arrays in written)
    assert first is second, "no new memory"
    assert third is not second, "the fleet has grown"
    scheduler.save(tmp_path / "now")
    assert (tmp_path / "s").read_bytes() == (tmp_path / "now").read_bytes()


def test_a_background_save_goes_where_it_was_asked_to(tmp_path, monkeypatch):
    scheduler = Scheduler(BSFL(), cohort_size=2)
    scheduler.join(range(5))
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    scheduler.save("s", wait=False)
    scheduler.save("t", wait=False)
    os.chdir(there)
    scheduler.saved()
    assert sorted(os.listdir(here)) == ["s", "t"]
    assert os.listdir(there) == []


def test_a_thread_that_did_not_survive_a_fork_is_replaced():
    writer, done = BackgroundWriter(), []
    writer._thread = threading.Thread(target=lambda: None)  # never started: dead, as in a child
    writer.put(HERE, lambda: done.append("written"))
    writer.wait()
    assert done == ["written"]
