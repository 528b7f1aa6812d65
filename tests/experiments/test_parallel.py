"""Runs on a Dask or Ray cluster: equal records, written by one process, though workers are killed."""

import os
import signal
import sys
import threading
import time
import warnings

import joblib
import pytest
from typer.testing import CliRunner

import bsfl
from bsfl.cli.app import app
from bsfl.errors import InvalidInput, WorkerDied
from bsfl.experiments import open_results, run_scenario
from bsfl.experiments.parallel import on_cluster
from small_scenario import SMALL, parse

distributed = pytest.importorskip("distributed", reason="a cluster needs the extra cluster")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ROUNDS = 4000


@pytest.fixture
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as started:
            yield started


def records(folder):
    results = open_results(folder)
    return {run: results.run(*run).records.tobytes() for run in results.runs()}


def forbid(folder):
    """Let a process open no file below a folder, as if it were on another disk."""

    def refuse(event, args):
        if event == "open" and str(args[0]).startswith(folder):
            raise PermissionError(f"a worker opened {args[0]}")

    sys.addaudithook(refuse)


def test_workers_need_not_see_the_folder(cluster, tmp_path):
    folder = tmp_path / "there"
    with distributed.Client(cluster) as client, joblib.parallel_config(backend="dask"):
        client.run(forbid, str(folder))
        with pytest.raises(PermissionError):
            client.submit(open, str(folder / "a"), "w").result()
        found = bsfl.compare(
            {"mine": bsfl.UniformRandom(), "bsfl": "bsfl"},
            parse(),
            seeds=2,
            folder=folder,
            progress=False,
        )
    here = bsfl.compare(
        {"mine": bsfl.UniformRandom(), "bsfl": "bsfl"}, parse(), seeds=2, jobs=1, progress=False
    )
    for run in found.results.runs():
        ours, theirs = (one.results.run(*run).records for one in (here, found))
        assert ours.tobytes() == theirs.tobytes()


def test_a_worker_killed_in_mid_run_costs_its_run_only(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(SMALL.replace("rounds = 30", f"rounds = {ROUNDS}"))
    address = cluster.scheduler_address.replace("tcp://", "dask://")
    with distributed.Client(cluster) as client:
        victim, *_ = client.run(os.getpid).values()
    kept = {}

    def kill():
        for _ in range(6000):
            if written := list(tmp_path.glob("there/runs/*/*.run")):
                os.kill(victim, signal.SIGKILL)  # it works on another run by now
                kept.update({path: path.stat().st_mtime_ns for path in written})
                return
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    words = ["run", "study.toml", "--seeds", "3", "--backend", address, "--out", "there"]
    done = CliRunner().invoke(app, words)
    killer.join()
    assert done.exit_code == 0, done.output
    assert kept
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "finished runs are kept"
    run_scenario(parse(rounds=ROUNDS), tmp_path / "here", seeds=3, jobs=1)
    assert records(tmp_path / "there") == records(tmp_path / "here")
    assert len(records(tmp_path / "here")) == 6


DIES = """
import os, signal
from pathlib import Path
from bsfl import UniformRandom

class Dies(UniformRandom):
    def observe(self, state, context, report):
        if context.round == 5 and not Path(__file__).with_suffix(".fixed").exists():
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_that_kills_its_workers_is_named_and_the_others_are_kept(cluster, tmp_path):
    """Dask tries it four times; joblib alone would wait for ever for it."""
    (tmp_path / "mine.py").write_text(DIES)
    scenario = parse(policies__x={"policy": f"{tmp_path}/mine.py:Dies"}, seeds=1)
    with distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        with pytest.raises(WorkerDied) as died:
            run_scenario(scenario, tmp_path / "out", progress=True)
        (tmp_path / "mine.fixed").touch()
        kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.run")}
        results = run_scenario(scenario, tmp_path / "out")
    assert str(died.value) == (
        "workers died again and again: killed, or out of memory; 2 of 3 runs are in "
        f"{tmp_path / 'out'}, without x, seed 0. The same command resumes"
    )
    assert len(kept) == 2
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert results.missing() == []


@pytest.fixture
def ray(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else a token is written into the home folder
    ray = pytest.importorskip(
        "ray", reason="it is not among the extras, as it listens on all addresses"
    )
    from ray.util.joblib import register_ray

    register_ray()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    yield ray
    ray.shutdown()


def test_a_ray_cluster_names_lost_and_failing_runs_and_keeps_the_others(ray, tmp_path):
    (tmp_path / "mine.py").write_text(DIES)
    scenario = parse(policies__x={"policy": f"{tmp_path}/mine.py:Dies"}, seeds=1)
    with joblib.parallel_config(backend="ray"):
        with pytest.raises(WorkerDied, match=r"2 of 3 runs are in .*, without x, seed 0"):
            run_scenario(scenario, tmp_path / "out")
        (tmp_path / "mine.py").write_text(
            DIES.replace("os.kill(os.getpid(), signal.SIGKILL)", "1 / 0")
        )
        with pytest.raises(ZeroDivisionError):
            run_scenario(scenario, tmp_path / "other")
    here = run_scenario(parse(seeds=1), tmp_path / "here", jobs=1)
    there = open_results(tmp_path / "out")
    for run in here.runs():
        assert here.run(*run).records.tobytes() == there.run(*run).records.tobytes()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://here:1", "backend must be dask://host:port, got 'ray://here:1'"),
        ("dask://127.0.0.1:9", "no Dask scheduler answers at 127.0.0.1:9"),
    ],
)
def test_wrong_backends(address, message):
    with pytest.raises(InvalidInput, match=message), on_cluster(address):
        pass
