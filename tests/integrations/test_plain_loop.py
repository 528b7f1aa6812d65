"""The example of a custom training loop, on virtual seconds: no test here depends on speed."""

from concurrent.futures import Executor, Future

import numpy as np
import pytest

from bsfl import RoundPlan, Scheduler, UniformRandom
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


def test_rounds_with_late_and_failing_clients(example, monkeypatch):
    """Those that respond move the model by 1; "late" takes 15 s, and comes after the deadline."""

    def fail(w):
        raise RuntimeError("no battery")

    clients = {"good": lambda w: w + 1.0, "bad": fail, "late": lambda w: w - 1.0}
    pool = VirtualPool({clients["good"]: 1.0, clients["bad"]: 2.0, clients["late"]: 15.0})
    monkeypatch.setattr(example, "wait", pool.wait)
    plan = RoundPlan(target_responses=3, deadline_s=10.0, late="drop")
    scheduler = Scheduler(UniformRandom(), cohort_size=3)
    rounds = RoundManager(scheduler, plan, clock=pool.clock)
    closed, close = [], rounds.close
    monkeypatch.setattr(rounds, "close", lambda: closed.append(close()) or closed[-1])
    w = np.array([7.0])
    for _ in range(5):
        w = example.run_round(rounds, clients, w, pool)
    assert w.tolist() == [12.0]
    first = closed[0]
    assert (first.kept, first.failed, first.timeouts) == (("good",), ("bad",), ("late",))
    assert first.duration_s == pytest.approx(10.0, abs=0.002), "to the last pause"
    assert ["late" in played.cohort for played in closed] == [True, False, False, False, True]
    assert [played.n_late for played in closed] == [0, 0, 0, 1, 0], "rounds of two seconds"

    del clients["good"], clients["late"]
    assert example.run_round(rounds, clients, w, pool).tolist() == [12.0], "all clients fail"
