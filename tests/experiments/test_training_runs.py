"""Scenarios that train: time limits, losses for policies, the same digits in any process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax", reason="training needs the extra sim")

from bsfl.errors import InvalidInput
from bsfl.experiments import open_results, parse_scenario
from bsfl.experiments.metrics import Target, time_to
from bsfl.experiments.runner import (
    XLA_PROGRAMS,
    XLA_THREADS,
    keep_programs,
    run_scenario,
    xla_threads,
)
from bsfl.experiments.summary import summarise
from bsfl.policies import UniformRandom
from bsfl.simulation import Training, simulate


def content(**learning):
    return {
        "title": "lessons",
        "time_s": 400.0,
        "cohort_size": 4,
        "seeds": 2,
        "clients": {
            "n_clients": 20,
            "tau_min": 1.0,
            "tau_max": 40.0,
            "latency": {"population": "lognormal"},
        },
        "learning": {"dataset": "linear", "learning_rate": 0.02, "evaluate_every_s": 60.0}
        | learning,
        "policies": {"bsfl": {"alpha": 2.0}, "random": {}},
    }


def scenario(**learning):
    return parse_scenario(content(**learning), name="lessons", file="lessons.toml")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run_scenario(scenario(), tmp_path_factory.mktemp("lessons"), jobs=1)


def contents(folder):
    results = open_results(folder)
    return {run: results.run(*run).records.tobytes() for run in results.runs()}


def test_every_policy_trains_for_the_same_virtual_time(finished):
    for label in ("bsfl", "random"):
        for records in finished.records(label):
            assert records["clock_s"][-1] >= 400.0 > records["clock_s"][-2]
    assert np.mean([len(r) for r in finished.records("bsfl")]) > np.mean(
        [len(r) for r in finished.records("random")]
    )


def test_the_model_is_evaluated_when_asked_and_at_the_end(finished):
    records = finished.run("random", 0).records
    asked = ~np.isnan(records["test_loss"])
    minute = records["clock_s"] // 60.0
    expected = np.diff(minute, prepend=-1.0) > 0
    expected[-1] = True
    assert 5 <= expected.sum() < len(records)
    assert asked.tolist() == expected.tolist()
    losses = records["test_loss"][asked]
    assert losses[-1] < 0.1 * losses[0], "it learns"


def test_a_regression_is_timed_to_a_loss(finished):
    summary = summarise(open_results(finished.folder)).as_json()
    ends = {
        label: np.mean([records["test_loss"][-1] for records in finished.records(label)])
        for label in ("bsfl", "random")
    }
    target = 2.0 * max(ends.values())
    assert summary["target"]["column"] == "test_loss"
    assert summary["target"]["value"] == pytest.approx(target)
    first = []
    for records in finished.records("bsfl"):
        met = records[records["test_loss"] <= target]
        first.append(met["clock_s"][0] if len(met) else np.inf)
    assert time_to(finished, "bsfl", Target("test_loss", target)).tolist() == first
    last = [finished.run("bsfl", s).records["test_loss"][-1] for s in range(2)]
    assert summary["policies"]["bsfl"]["final_loss"]["mean"] == pytest.approx(np.mean(last))
    assert (summary["rounds"], summary["time_s"]) == (None, 400.0)


def test_data_sizes_of_the_clients_are_those_of_the_partition():
    uneven = scenario(partition={"kind": "quantity", "sigma": 1.0, "quality": [0.5, 1.0]})
    partition = uneven.learning.make_partition(20, seed=3)
    fleet = uneven.simulated_clients(3)
    assert fleet.samples.tolist() == partition.sizes.tolist()
    assert fleet.quality.tolist() == partition.quality.tolist()
    assert uneven.training(3).task.samples.tolist() == partition.sizes.tolist()


def test_only_those_who_answered_in_time_train_and_policies_hear_their_losses():
    heard = []

    class Listener(UniformRandom):
        def observe(self, state, context, seen):
            heard.append(seen)

    fleet = scenario().simulated_clients(0)
    trained = []

    class Spy:
        def __init__(self, task):
            self.task = task

        def init(self, seed):
            return self.task.init(seed)

        def train(self, params, clients, **more):
            trained.append(clients.tolist())
            return self.task.train(params, clients, **more)

        def aggregate(self, *args):
            return self.task.aggregate(*args)

        def evaluate(self, params):
            return self.task.evaluate(params)

    training = Training(Spy(scenario().training(0).task), seed=0)
    list(simulate(Listener(), fleet, cohort_size=10, rounds=30, training=training))
    assert any(np.any(seen.outcome == 1) for seen in heard), "some were late"
    for seen, who in zip(heard, trained, strict=True):
        in_time = seen.outcome == 0
        assert seen.clients[in_time].tolist() == who
        assert not np.isnan(seen.loss[in_time]).any()
        assert np.isnan(seen.loss[~in_time]).all()
        assert (seen.samples[in_time] == 112).all(), "2,240 points for 20 clients"


@pytest.mark.slow
def test_images_reach_a_target(tmp_path):
    images = scenario(
        dataset="fashion-mnist-small", learning_rate=0.05, batch_size=20, target_accuracy=0.3
    )
    results = run_scenario(images, tmp_path, seeds=1, jobs=1)
    summary = summarise(results).as_json()
    row = summary["policies"]["random"]
    assert summary["target"] == {"column": "test_accuracy", "value": 0.3, "name": "accuracy 30.0%"}
    assert row["reached_target"]["mean"] == 1.0
    records = results.run("random", 0).records
    first = records[records["test_accuracy"] >= 0.3][0]
    assert time_to(results, "random", Target("test_accuracy", 0.3)).tolist() == [first["clock_s"]]
    assert row["target_speed_up"]["mean"] == 1.0
    assert np.isinf(time_to(results, "random", Target("test_accuracy", 0.9999))).all()


STUDY = """
title = "images"
rounds = 3
cohort_size = 2
seeds = 1
clients = { n_clients = 20, tau_min = 1.0, tau_max = 40.0, latency = { population = "lognormal" } }
learning = { dataset = "fashion-mnist-small", batch_size = 20 }
policies = { bsfl = {}, random = {} }
"""


@pytest.mark.slow
def test_the_last_digits_do_not_depend_on_the_number_of_processes(tmp_path):
    (tmp_path / "images.toml").write_text(STUDY)
    free = {k: v for k, v in os.environ.items() if k != XLA_THREADS}
    one_thread = free | {XLA_THREADS: "1"}
    for jobs, env in (("1", one_thread), ("1", free), ("2", free)):
        out = tmp_path / f"{len(env)}-{jobs}"
        command = [sys.executable, "-m", "bsfl.cli", "run", "images.toml", "--jobs", jobs]
        subprocess.run([*command, "--out", str(out)], cwd=tmp_path, env=env, check=True)
    one, *others = (contents(out) for out in tmp_path.iterdir() if out.is_dir())
    assert len(one) == 2
    assert others == [one, one]


def test_threads_of_a_process_are_the_users_choice(monkeypatch, tmp_path):
    monkeypatch.setenv(XLA_THREADS, "3")
    assert xla_threads() == 3
    monkeypatch.delenv(XLA_THREADS)
    assert xla_threads() == 1
    assert os.environ[XLA_THREADS] == "1"
    for wrong in ("0", "-1", "all"):
        monkeypatch.setenv(XLA_THREADS, wrong)
        with pytest.raises(InvalidInput, match=f"PJRT_NPROC must be 1, 2, ...; got '{wrong}'"):
            run_scenario(scenario(), tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("learning", "message"),
    [
        (
            {"dataset": "mnist"},
            r"\[learning\]: unknown data set 'mnist'; known are fashion-mnist-small",
        ),
        (
            {"learning_rat": 1},
            r"\[learning\]: unknown key 'learning_rat'; did you mean 'learning_r",
        ),
        (
            {"partition": {"kind": "random"}},
            r"\[learning.partition\]: unknown partition 'random'; known",
        ),
        (
            {"partition": {"kind": "iid", "alpha": 1}},
            r"\[learning.partition\]: unknown key 'alpha'",
        ),
        (
            {"evaluate_every_s": -1},
            "evaluate_every_s must be a finite number of at least 0, got -1",
        ),
        ({"target_accuracy": 0.8}, "target_accuracy belongs to labels; a regression has a loss"),
        (
            {"dataset": "fashion-mnist-small", "target_accuracy": 80},
            "target_accuracy must be between 0 and 1, got 80",
        ),
    ],
)
def test_mistakes_are_named(learning, message):
    with pytest.raises(InvalidInput, match=message):
        scenario(**learning)


def test_a_run_that_diverges_sets_no_target(tmp_path):
    wild = content(learning_rate=5.0) | {"seeds": 1}
    results = run_scenario(parse_scenario(wild, name="wild", file="x"), tmp_path, jobs=1)
    assert all(np.isinf(results.records(k)[0]["test_loss"][-1]) for k in ("bsfl", "random"))
    text = json.dumps(summarise(results).as_json(), allow_nan=False)
    assert json.loads(text)["policies"]["bsfl"]["reached_target"]["mean"] == 0.0


def test_noise_needs_samples_of_ones_own(tmp_path):
    shared = {"kind": "iid", "samples": 2000, "reuse": True, "quality": [0.0, 1.0]}
    with pytest.raises(InvalidInput, match="noise needs a partition in which no two clients share"):
        run_scenario(scenario(partition=shared), tmp_path, jobs=1)


def test_mistakes_in_training_show_before_anything_runs(tmp_path):
    for learning, message in (
        ({"learning_rate": -1.0}, r"lessons.toml \[learning\]: learning_rate must be"),
        ({"optimizer": "adm"}, r"lessons.toml \[learning\]: optimizer must be 'sgd' or 'adam'"),
        (
            {"partition": {"kind": "iid", "samples": 10**6}},
            r"lessons \[learning.partition\]: samples",
        ),
    ):
        with pytest.raises(InvalidInput, match=message):
            run_scenario(scenario(**learning), tmp_path, jobs=1)
    assert list(tmp_path.rglob("*.run")) == []


def test_policies_that_need_losses_are_tried_with_losses(tmp_path):
    table = content() | {"policies": {"afl": {}, "oort": {}, "fedcs": {}}, "time_s": 100.0}
    results = run_scenario(
        parse_scenario(table, name="lessons", file="lessons.toml"),
        tmp_path / "out",
        seeds=1,
        jobs=1,
    )
    assert all(len(results.run(label, 0).records) for label in table["policies"])
    del table["learning"]
    table["clients"] = table["clients"] | {"data": {}}
    with pytest.raises(InvalidInput, match=r"\[policies.afl\]: this policy needs losses"):
        parse_scenario(table, name="idle", file="idle.toml")


def test_two_tables_about_data_are_refused():
    both = content()
    both["clients"]["data"] = {"mean_samples": 10}
    with pytest.raises(InvalidInput, match="both say how much data there is"):
        parse_scenario(both, name="x", file="x.toml")
    neither = content()
    del neither["time_s"]
    with pytest.raises(InvalidInput, match="missing key 'rounds' or 'time_s'"):
        parse_scenario(neither, name="x", file="x.toml")


def test_compiled_programs_are_kept_where_the_user_says(monkeypatch):
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    monkeypatch.setenv(XLA_PROGRAMS, "")
    keep_programs(1)
    assert os.environ[XLA_PROGRAMS] == ""
    monkeypatch.delenv(XLA_PROGRAMS)
    keep_programs(2)
    assert Path(os.environ[XLA_PROGRAMS]).parent.name == "programs"
    assert os.environ[XLA_PROGRAMS].endswith("-2")


@pytest.mark.slow
def test_the_fast_engine_is_chosen_in_the_scenario(tmp_path):
    """Two runs have equal bytes, and the manifest names numba."""
    pytest.importorskip("numba")
    images = {"dataset": "fashion-mnist-small", "batch_size": 100, "evaluate_every_s": 300.0}
    fast = scenario(**images, engine="fast")
    short = fast.changed(time_s=40.0, seeds=1)
    whole, _ = (run_scenario(short, tmp_path / name, jobs=1) for name in ("one", "two"))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert "numba" in json.loads((whole.folder / "manifest.json").read_text())["versions"]
    for settings, message in (
        ({"engine": "torch"}, "engine must be 'jax' or 'fast', got 'torch'"),
        ({"engine": "fast"}, 'engine "fast" is for images'),
    ):
        with pytest.raises(InvalidInput, match=message):
            scenario(**settings)
