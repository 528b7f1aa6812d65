"""The example of a custom training loop: late and failing clients on a clock, then real threads."""

from concurrent.futures import Future

import numpy as np
import pytest

from bsfl import RoundPlan, Scheduler, UniformRandom
from bsfl.rounds import RoundManager
from fake_clock import FakeClock


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


class Pool:
    """Jobs that add 1 to the model and end at their time on a clock; "bad" fails after 2 s."""

    def __init__(self):
        self.clock, self.ends = FakeClock(), {}

    def submit(self, client, w):
        job = Future()
        self.ends[job] = (self.clock.now + {"good": 1.0, "bad": 2.0, "late": 15.0}[client], client)
        if client == "bad":
            job.set_exception(RuntimeError("no battery"))
        else:
            job.set_result(w + 1.0)
        return job

    def wait(self, jobs, timeout, return_when):
        first = min(self.ends[job][0] for job in jobs)
        self.clock.now = max(self.clock.now, min(first, self.clock.now + timeout))
        return {job for job in jobs if self.ends[job][0] <= self.clock.now}, set()


def test_rounds_with_late_and_failing_clients(example, monkeypatch):
    """The late client trains for 15 s: over the deadline of round 1 and rounds of two seconds."""
    pool, plan = Pool(), RoundPlan(target_responses=3, deadline_s=10.0, late="drop")
    rounds = RoundManager(Scheduler(UniformRandom(), cohort_size=3), plan, clock=pool.clock)
    closed, close = [], rounds.close
    monkeypatch.setattr(example, "wait", pool.wait)
    monkeypatch.setattr(rounds, "close", lambda: closed.append(close()) or closed[-1])
    clients, w = {name: name for name in ("good", "bad", "late")}, np.array([7.0])
    for _ in range(5):
        w = example.run_round(rounds, clients, w, pool)
    assert w.tolist() == [12.0], "the model of the good client, five times"
    first = closed[0]
    assert (first.kept, first.failed, first.timeouts) == (("good",), ("bad",), ("late",))
    assert ["late" in played.cohort for played in closed] == [True, False, False, False, True]
    assert [played.n_late for played in closed] == [0, 0, 0, 1, 0]
    assert example.run_round(rounds, {"bad": "bad"}, w, pool).tolist() == [12.0], "all fail"
