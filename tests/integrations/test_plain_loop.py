"""The example of a custom training loop, on virtual seconds: no test here depends on speed."""

from concurrent.futures import Executor, Future

import numpy as np
import pytest

from bsfl import BSFL, RoundPlan, Scheduler, UniformRandom
from bsfl.rounds import RoundManager
from fake_clock import FakeClock


class VirtualPool(Executor):
    """Runs jobs that end when a clock has reached their time; `wait` lets it pass."""

    def __init__(self, seconds):
        self.clock, self.seconds, self.ends = FakeClock(), seconds, {}

    def submit(self, work, w):
        job = Future()
        self.ends[job] = (self.clock.now + self.seconds[work], work, w)
        return job

    def wait(self, jobs, timeout, return_when):
        first = min(self.ends[job][0] for job in jobs)
        self.clock.now = max(self.clock.now, min(first, self.clock.now + timeout))
        done = {job for job in jobs if self.ends[job][0] <= self.clock.now}
        for job in done:
            _, work, w = self.ends.pop(job)
            try:
                job.set_result(work(w))
            except RuntimeError as error:
                job.set_exception(error)
        return done, set(jobs) - done


class Loop:
    """The example's rounds; `takes` tells the seconds of each client."""

    def __init__(self, example, monkeypatch, takes, clients=None, policy=None, **plan):
        self.example = example
        self.clients = {name: lambda w: w + 1.0 for name in takes} | (clients or {})
        self.pool = VirtualPool({self.clients[name]: takes[name] for name in takes})
        monkeypatch.setattr(example, "wait", self.pool.wait)
        self.scheduler = Scheduler(policy or UniformRandom(), cohort_size=plan["target_responses"])
        plan = RoundPlan(late="drop", **plan)
        self.rounds = RoundManager(self.scheduler, plan, clock=self.pool.clock)
        self.closed = []
        close = self.rounds.close
        monkeypatch.setattr(
            self.rounds, "close", lambda: self.closed.append(close()) or self.closed[-1]
        )

    def play(self, w=0.0):
        return self.example.run_round(self.rounds, self.clients, np.array([w]), self.pool)


@pytest.fixture(scope="module")
def example(load_example):
    return load_example("plain_loop")


@pytest.mark.slow
def test_it_runs_in_real_threads(example, capsys):
    example.main(n_rounds=15)
    printed = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in printed] == ["pace", "random"]
    for line in printed:
        weights = np.array(line.partition("[")[2].rstrip("]").split(), dtype=float)
        assert np.abs(weights - example.TRUTH).max() < 0.2, "it learned under any policy"


def test_responses_count_in_the_order_of_arrival(example, monkeypatch):
    takes = {"a": 3.0, "b": 1.0, "c": 2.0}
    loop = Loop(example, monkeypatch, takes, target_responses=3, deadline_s=10.0)
    assert loop.play().tolist() == [1.0]
    (closed,) = loop.closed
    assert closed.kept == ("b", "c", "a")
    assert closed.latencies == pytest.approx({"b": 1.0, "c": 2.0, "a": 3.0})
    assert closed.duration_s == pytest.approx(3.0)


def test_late_and_failing_clients_are_reported(example, monkeypatch):
    def fail(w):
        raise RuntimeError("no battery")

    takes = {"good": 1.0, "bad": 2.0, "late": 15.0}
    loop = Loop(example, monkeypatch, takes, {"bad": fail}, target_responses=3, deadline_s=10.0)
    assert loop.play().tolist() == [1.0]
    (closed,) = loop.closed
    assert (closed.kept, closed.failed, closed.timeouts) == (("good",), ("bad",), ("late",))
    assert closed.duration_s == pytest.approx(10.0, abs=0.002), "to the last pause"
    assert loop.scheduler.in_flight == []
    for _ in range(3):  # rounds of two seconds; after five, "late" comes in
        loop.play()
    assert [r.n_late for r in loop.closed] == [0, 0, 0, 1]
    assert "late" not in loop.closed[2].cohort, "it is busy"
    loop.play()
    assert "late" in loop.closed[4].cohort


def test_the_first_responses_are_kept(example, monkeypatch):
    takes = {"a": 8.0, "b": 1.0, "c": 2.0}
    loop = Loop(
        example, monkeypatch, takes, target_responses=2, over_selection=1.5, deadline_s=10.0
    )
    loop.play()
    (closed,) = loop.closed
    assert (len(closed.cohort), closed.kept, closed.timeouts) == (3, ("b", "c"), ())
    assert closed.duration_s == pytest.approx(2.0)
    assert loop.scheduler.in_flight == ["a"], "its response is pending"


def test_nothing_is_kept_when_all_clients_fail(example, monkeypatch):
    def fail(w):
        raise RuntimeError("no battery")

    takes = {"a": 1.0}
    loop = Loop(example, monkeypatch, takes, {"a": fail}, target_responses=1, deadline_s=10.0)
    assert loop.play(w=7.0).tolist() == [7.0], "the model stays as it was"


def test_it_saves_time(example, monkeypatch):
    """Rounds of slow clients alone and of fast ones alone, instead of slow ones in each."""
    took = {}
    for policy in (BSFL(alpha=2.0), UniformRandom()):
        takes = {f"device-{k}": 1.0 if k < 6 else 10.0 for k in range(12)}
        plan = {"target_responses": 3, "deadline_s": 60.0}
        loop = Loop(example, monkeypatch, takes, policy=policy, **plan)
        start = loop.pool.clock.now
        for _ in range(40):
            loop.play()
        took[type(policy)] = loop.pool.clock.now - start
    assert took[BSFL] < 0.8 * took[UniformRandom]
