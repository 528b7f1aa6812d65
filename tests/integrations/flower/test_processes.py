"""The plug-in in real federations: Flower's own programs, on loopback, with injected delays."""

import importlib.util
import statistics
import sys
import time

import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from deployment import EXAMPLE, Deployment, Probe, kill

from bsfl import Scheduler

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="finds the processes it started through /proc"
)

SLOW, FAST = {"0", "1"}, {"2", "3"}


@pytest.fixture
def deployment(tmp_path):
    with Deployment(tmp_path) as deployment:
        yield deployment


def finish(deployment, run, probe, n_rounds, patience_s):
    """Wait until so many rounds were played; stop early if the run ends before."""
    deployment.wait(
        lambda: len(probe.rounds()) >= n_rounds or run.poll() is not None,
        f"round {n_rounds}",
        patience_s,
    )
    assert len(probe.rounds()) >= n_rounds, deployment.logs()


def test_bsfl_learns_the_slow_ones_and_believes_no_lies(deployment, tmp_path):
    """Two of four clients sleep nine seconds; one fast and one slow client lie.

    Rounds of BSFL and of random selection take turns, so that a busy machine slows both alike.
    """
    probe = Probe(tmp_path, slow_s=9.0, slow_share=0.5)
    common = {"min_clients": 4, "wait_s": 120.0}
    strategies = {
        "bsfl": {"policy": "bsfl", "cohort_size": 2, **common},
        "random": {"policy": "random", "cohort_size": 2, **common},
        "reported": {"policy": "random", "cohort_size": 4, "latency": "reported", **common},
    }
    order = [*["bsfl", "random", "bsfl", "random", "bsfl"] * 5, "reported"]
    probe.follow(strategies, order)
    deployment.start_superlink()
    claims = {1: {"claims-s": 1e9}, 3: {"claims-s": 1e-9}}
    for partition in range(4):
        deployment.start_node(partition, 4, **claims.get(partition, {}))
    run = deployment.run(probe.app)
    finish(deployment, run, probe, len(order), patience_s=900.0)

    learned = probe.rounds("bsfl")
    assert len(learned) == 15
    together = [note for note in learned[2:] if set(note["cohort"]) in (SLOW, FAST)]
    assert len(together) >= 10, "once everybody was met, slow clients go with slow ones"
    means = {
        name: statistics.mean(note["duration_s"] for note in probe.rounds(name))
        for name in ("bsfl", "random")
    }
    print(
        f"\nmean round: bsfl {means['bsfl']:.2f} s ({len(learned)} rounds), "
        f"random {means['random']:.2f} s ({len(probe.rounds('random'))} rounds), "
        f"ratio {means['bsfl'] / means['random']:.2f}"
    )
    assert means["bsfl"] < means["random"]

    (reported,) = probe.rounds("reported")
    latencies = reported["latencies"]
    honest = max(9.0, min(latencies.values()))
    assert latencies["0"] == pytest.approx(honest, abs=1.0), "an honest report is believed"
    assert latencies["1"] <= reported["duration_s"], "not longer than the server waited"
    assert latencies["3"] > 0.1, "not faster than the fastest round trip"
    assert latencies["3"] >= latencies["2"], "nobody is ahead by lying"


def test_killed_nodes_and_servers_cost_a_deadline_and_no_knowledge(deployment, tmp_path):
    probe, state = Probe(tmp_path, slow_s=0.0, slow_share=0.0), tmp_path / "scheduler.bsfl"
    settings = {
        "policy": "bsfl",
        "cohort_size": 4,
        "deadline_s": 30.0,
        "wait_s": 120.0,
        "state_path": str(state),
    }
    probe.follow({"bsfl": settings}, ["bsfl"] * 100)
    deployment.start_superlink()
    for partition in range(4):
        deployment.start_node(partition, 4)
    run = deployment.run(probe.app)
    finish(deployment, run, probe, 1, patience_s=180.0)

    # one SuperNode is killed while it works
    time.sleep(0.5)
    deployment.kill_node(3)
    finish(deployment, run, probe, 2, patience_s=120.0)
    hit = probe.rounds()[1]
    assert (sorted(hit["kept"]), hit["timeouts"]) == (["0", "1", "2"], ["3"])
    assert 29.0 <= hit["duration_s"] <= 40.0, "the deadline, not Flower's 49 s"
    finish(deployment, run, probe, 3, patience_s=120.0)
    assert sorted(probe.rounds()[2]["cohort"]) == ["0", "1", "2"], "training goes on"

    # it comes back as another node and is the same client
    deployment.start_node(3, 4)
    deployment.wait(lambda: "3" in probe.rounds()[-1]["kept"], "the restarted node", 120.0)
    kept = Scheduler.load(state)
    assert kept.clients == ["0", "1", "2", "3"]
    back = kept._clients.index_of("3")
    assert kept._state.observed[back] >= 3, "its first round, its timeout, and its return"

    # the server is killed in the middle of a round, and another one goes on from the file
    (server,) = deployment.processes("flwr-serverapp")
    kill(server)
    n_before = len(probe.rounds())
    before = Scheduler.load(state)
    assert before.t == probe.rounds()[-1]["t"]
    run = deployment.run(probe.app)
    finish(deployment, run, probe, n_before + 1, patience_s=180.0)
    assert probe.rounds()[n_before]["t"] == before.t + 1
    after = Scheduler.load(state)
    assert after.clients == before.clients
    assert (after._state.selected >= before._state.selected).all()


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="simulation needs ray")
def test_a_simulation_of_a_thousand_clients(deployment):
    """The example as it stands, on Flower's simulation engine."""
    deployment.start_superlink("--simulation")
    run = deployment.run(
        EXAMPLE,
        *("-c", "num-rounds=3 cohort-size=20 slow-s=0.05"),
        *("--federation-config", "num-supernodes=1000"),
    )
    deployment.wait(lambda: run.poll() is not None, "the end of the simulation", 400.0)
    log = (deployment.folder / "run.log").read_text()
    assert log.count("bsfl: 20 of 20 clients in") == 3, deployment.logs()
    assert "60 of 1000 seen" in log
