"""A grid of runs on a Dask cluster: the same records, even when a worker is killed."""

import os
import signal
import threading
import time
import warnings

import pytest
from typer.testing import CliRunner

from bsfl.cli.app import app
from bsfl.errors import InvalidInput
from bsfl.experiments import run_scenario
from bsfl.extras import on_cluster
from small_scenario import SMALL, parse

distributed = pytest.importorskip("distributed", reason="a cluster needs the extra cluster")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as started:
            yield started


def records(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*.records")}


def test_a_cluster_of_two_one_of_which_is_killed(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(SMALL.replace("rounds = 30", "rounds = 4000"))
    address = cluster.scheduler_address.replace("tcp://", "dask://")
    with distributed.Client(cluster) as client:
        victim, *_ = client.run(os.getpid).values()

    def kill():
        for _ in range(6000):
            if list(tmp_path.glob("there/runs/*/*.records")):
                os.kill(victim, signal.SIGKILL)
                killed.append(victim)
                return
            time.sleep(0.01)

    killed = []
    killer = threading.Thread(target=kill)
    killer.start()
    words = ["run", "study.toml", "--seeds", "3", "--backend", address, "--out", "there"]
    done = CliRunner().invoke(app, words)
    killer.join()
    assert done.exit_code == 0, done.output
    assert killed
    run_scenario(parse(rounds=4000), tmp_path / "here", seeds=3, jobs=1)
    assert records(tmp_path / "there") == records(tmp_path / "here")
    assert len(records(tmp_path / "here")) == 6


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
