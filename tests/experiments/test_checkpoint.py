"""A cut run goes on from its checkpoint: nothing is trained twice, and the end is the same."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("jax", reason="training needs the extra sim")

from bsfl.experiments import parse_scenario, run_scenario
from bsfl.experiments.checkpoint import Checkpointed
from bsfl.learning import shares

pytestmark = pytest.mark.slow
CONTENT = {
    "title": "cut",
    "rounds": 12,
    "cohort_size": 3,
    "seeds": 1,
    "clients": {
        "n_clients": 10,
        "tau_min": 1.0,
        "tau_max": 9.0,
        "latency": {"population": "lognormal"},
    },
    "learning": {"dataset": "fashion-mnist-small", "evaluate_every_s": 15.0},
    "policies": {"random": {}},
}


class Counting:
    """A task that notes which rounds were really trained."""

    def __init__(self, task):
        self.task, self.trained, self.evaluated = task, [], 0

    def __getattr__(self, name):
        return getattr(self.task, name)

    def train(self, params, clients, *, t, seed):
        self.trained.append(t)
        return self.task.train(params, clients, t=t, seed=seed)

    def evaluate(self, params):
        self.evaluated += 1
        return self.task.evaluate(params)


@pytest.fixture(scope="module")
def task():
    scenario = parse_scenario(CONTENT, name="cut", file="cut.toml")
    return scenario.training(0).task


def play(task, path, rounds, save_every_s=0.0):
    """Train some rounds, evaluate after every second one, and return all results."""
    counted = Counting(task)
    kept = Checkpointed(counted, path, save_every_s)
    params, results = kept.init(0), []
    for t in range(1, rounds + 1):
        updates = kept.train(params, np.array([t % 10, (t + 3) % 10]), t=t, seed=0)
        samples = [update.samples for update in updates]
        params = kept.aggregate(params, updates, shares(samples))
        results.append(([(update.client, update.loss) for update in updates], samples))
        if t % 2 == 0:
            test = kept.evaluate(params)
            results.append((test.loss, test.accuracy, test.label_accuracy.tolist()))
    return counted, params, results


def test_what_is_on_disk_is_returned_and_not_trained(task, tmp_path):
    whole, params, results = play(task, tmp_path / "whole", 9)
    play(task, tmp_path / "cut", 6)
    resumed, again, results_again = play(task, tmp_path / "cut", 9)
    assert whole.trained == list(range(1, 10))
    assert resumed.trained == [7, 8, 9], "round 6 was the last one saved"
    assert (whole.evaluated, resumed.evaluated) == (4, 2)
    assert results_again == results
    for layer, arrays in params.params.items():
        for name, array in arrays.items():
            assert np.array_equal(array, again.params[layer][name]), (layer, name)


@pytest.mark.parametrize("damage", [lambda b: b[:-7], lambda b: b[:-1] + b"?", lambda b: b"what"])
def test_a_damaged_checkpoint_costs_time_only(task, tmp_path, damage):
    path = tmp_path / "run.model"
    _, _, results = play(task, path, 4)
    path.write_bytes(damage(path.read_bytes()))
    resumed, _, results_again = play(task, path, 4)
    assert resumed.trained == [1, 2, 3, 4]
    assert results_again == results


def test_a_finished_run_keeps_no_checkpoint(tmp_path, monkeypatch):
    scenario = parse_scenario(CONTENT, name="cut", file="cut.toml")
    monkeypatch.setattr("bsfl.experiments.checkpoint.Checkpointed.__init__.__defaults__", (0.0,))
    run_scenario(scenario, tmp_path, jobs=1)
    assert not list(tmp_path.rglob("*.model"))


@pytest.mark.parametrize(
    "round_",
    [
        {"kind": "synchronous"},
        {"kind": "synchronous", "over_selection": 1.7, "late": "apply"},
        {"kind": "buffered", "concurrency": 4, "buffer_size": 2},
    ],
    ids=["synchronous", "late", "buffered"],
)
def test_a_killed_training_run_ends_with_the_same_accuracy(tmp_path, round_):
    """Kill -9 the real command in the middle of training, as often as it takes."""
    content = {**CONTENT, "rounds": 60, "round": round_}
    whole = run_scenario(parse_scenario(content, name="cut", file="x"), tmp_path / "a", jobs=1)
    script = (
        "import json, sys; from pathlib import Path\n"
        "from bsfl.experiments import checkpoint\n"
        "checkpoint.Checkpointed.__init__.__defaults__ = (0.0,)\n"
        "from bsfl.experiments.runner import run_scenario\n"
        "from bsfl.experiments import parse_scenario\n"
        "scenario = parse_scenario(json.loads(sys.argv[1]), name='cut', file='x')\n"
        "run_scenario(scenario, Path(sys.argv[2]), jobs=1)\n"
    )
    folder = tmp_path / "b"
    command = [sys.executable, "-c", script, json.dumps(content), str(folder)]
    checkpoint = folder / "runs" / "random" / "seed-0000.model"
    kills, seen = 0, b""
    for _ in range(20):
        run = subprocess.Popen(command)
        while run.poll() is None:
            if kills < 2 and checkpoint.exists() and checkpoint.read_bytes() != seen:
                seen = checkpoint.read_bytes()
                os.kill(run.pid, signal.SIGKILL)
                run.wait()
                kills += 1
            time.sleep(0.02)
        if run.returncode == 0:
            break
        assert run.returncode == -signal.SIGKILL
    assert kills == 2
    name = "runs/random/seed-0000.records"
    assert (folder / name).read_bytes() == (tmp_path / "a" / name).read_bytes()
    accuracy = whole.records("random")[0]["test_accuracy"]
    assert accuracy[-1] > 0.15, "it learned something worth keeping"
