"""The plug-in in real federations: Flower's own programs, on loopback, with injected delays."""

import importlib.util
import runpy
import statistics
import sys
import time

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from deployment import EXAMPLE, HERE, PATIENCE_S, Deployment, Probe, kill

from bsfl import Scheduler
from bsfl.integrations.flower.checkpoint import Checkpoint

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="finds the processes it started through /proc"
    ),
]

SLOW, FAST = {"0", "1"}, {"2", "3"}


@pytest.fixture
def deployment(tmp_path):
    with Deployment(tmp_path) as deployment:
        yield deployment


def finish(deployment, run, probe, n_rounds):
    """Wait until so many rounds were played; stop early if the run ends before."""
    deployment.wait(
        lambda: len(probe.rounds()) >= n_rounds or run.poll() is not None,
        f"round {n_rounds}",
    )
    assert len(probe.rounds()) >= n_rounds, deployment.logs()


def test_bsfl_learns_the_slow_ones(deployment, tmp_path):
    """Two of four clients sleep six seconds longer than the others.

    What was learned shows in who trains with whom: a cohort of a slow and a fast client makes the
    fast one wait. At random 4 of 6 cohorts are such (with this seed 4 of 8). For so few rounds BSFL
    trusts its means: the paper's confidence width would still exceed the range of speeds. How long rounds
    take is printed and not tested, as it depends on what else the machine has to do.
    """
    probe = Probe(tmp_path, slow_s=6.0, slow_share=0.5)
    common = {"cohort_size": 2, "min_clients": 4, "wait_s": PATIENCE_S}
    trusting = {"alpha": 1.0, "index": {"kind": "ucb", "confidence_width": "none"}}
    strategies = {
        "bsfl": {"policy": "bsfl", "settings": trusting, **common},
        "random": {"policy": "random", **common},
    }
    order = [*["bsfl", "random", "bsfl"] * 7, "bsfl", "random"]
    probe.follow(strategies, order)
    deployment.start_superlink()
    for partition in range(4):
        deployment.start_node(partition, 4)
    run = deployment.run(probe.app)
    finish(deployment, run, probe, len(order))

    learned, at_random = probe.rounds("bsfl"), probe.rounds("random")
    assert (len(learned), len(at_random)) == (15, 8)
    together = [note for note in learned[2:] if set(note["cohort"]) in (SLOW, FAST)]
    assert len(together) >= 10, "once all clients were observed, slow clients go with slow ones"
    by_chance = [note for note in at_random if set(note["cohort"]) in (SLOW, FAST)]
    assert len(by_chance) <= 5, "10 of 13 by chance would come once in 600 times"
    bsfl_s, random_s = (
        statistics.mean(note["duration_s"] for note in notes) for notes in (learned, at_random)
    )
    print(
        f"\nmean round: bsfl {bsfl_s:.2f} s ({len(learned)} rounds), random {random_s:.2f} s "
        f"({len(at_random)} rounds), ratio {bsfl_s / random_s:.2f}"
    )


def test_killed_nodes_and_servers_cost_a_deadline_and_no_knowledge(deployment, tmp_path):
    probe, state = Probe(tmp_path, slow_s=2.0, slow_share=1.0), tmp_path / "scheduler.bsfl"
    settings = {
        "policy": "bsfl",
        "cohort_size": 4,
        "deadline_s": 40.0,
        "wait_s": PATIENCE_S,
        "latency": "reported",
        "state_path": str(state),
    }
    probe.follow({"bsfl": settings}, ["bsfl"] * 100)
    deployment.start_superlink()
    claims = {1: {"claims-s": 1e9}, 2: {"claims-s": 1e-9}}
    for partition in range(4):
        deployment.start_node(partition, 4, **claims.get(partition, {}))
    run = deployment.run(probe.app)
    finish(deployment, run, probe, 1)

    # two clients report false durations, which are clipped
    (first,) = probe.rounds()[:1]
    latencies = first["latencies"]
    assert latencies["1"] <= first["duration_s"], "not longer than the server waited"
    assert latencies["2"] >= 2.0, "not faster than any round trip: all sleep two seconds"
    assert latencies["2"] >= latencies["0"], "a false report gains nothing"

    # one SuperNode is killed while it works
    time.sleep(0.5)
    deployment.kill_node(3)
    deployment.wait(lambda: any(note["timeouts"] for note in probe.rounds()), "the loss")
    n_hit, hit = next((n, note) for n, note in enumerate(probe.rounds()) if note["timeouts"])
    assert (sorted(hit["kept"]), hit["timeouts"]) == (["0", "1", "2"], ["3"])
    assert hit["failed"] == [], "the deadline ended it, before Flower noticed after some 49 s"
    assert hit["duration_s"] >= 39.0
    finish(deployment, run, probe, n_hit + 2)
    assert sorted(probe.rounds()[n_hit + 1]["cohort"]) == ["0", "1", "2"], "training goes on"

    # it comes back as another node and is the same client
    deployment.start_node(3, 4)
    deployment.wait(lambda: "3" in probe.rounds()[-1]["kept"], "the restarted node")
    kept = Scheduler.load(state)
    assert kept.clients == ["0", "1", "2", "3"]
    back = kept.client("3")
    assert back["participations"] >= 2, "its first round and its return"
    assert back["timeouts"] >= 1

    # the server is killed in the middle of a round, and another one goes on from the file
    (server,) = deployment.processes("flwr-serverapp")
    kill(server)
    n_before = len(probe.rounds())
    before = Scheduler.load(state)
    assert before.round == probe.rounds()[-1]["round"]
    run = deployment.run(probe.app)
    finish(deployment, run, probe, n_before + 1)
    assert probe.rounds()[n_before]["round"] == before.round + 1
    after = Scheduler.load(state)
    assert after.clients == before.clients
    invitations = [[row["invitations"] for row in one.table()] for one in (before, after)]
    assert all(n <= n_after for n, n_after in zip(*invitations, strict=True))


def test_nodes_that_misbehave_corrupt_nothing(deployment, tmp_path):
    """One sends NaN, one fails, one never replies, one claims negative seconds, one has another's name."""
    probe = Probe(tmp_path, slow_s=0.0, slow_share=0.0)
    options = {"cohort_size": 5, "deadline_s": 60.0, "wait_s": PATIENCE_S, "latency": "reported"}
    probe.follow({"pace": {"policy": "pace", **options}}, ["pace"], n_rounds=3)
    deployment.start_superlink()
    does = {1: {"does": "nan"}, 2: {"does": "fail"}, 3: {"does": "nothing"}, 4: {"claims-s": -5.0}}
    for partition in range(5):
        deployment.start_node(partition, 5, **does.get(partition, {}))
    deployment.start_node(0, 5, number=5)
    run = deployment.run(probe.app)
    finish(deployment, run, probe, 2)

    first, second = probe.rounds()[:2]
    assert sorted(first["cohort"]) == ["0", "1", "2", "3", "4"], "one node of the two called 0"
    assert (sorted(first["kept"]), sorted(first["failed"])) == (["0", "4"], ["1", "2"])
    assert first["timeouts"] == ["3"]
    assert "not finite" in first["reasons"]["1"]
    assert 0.0 < first["latencies"]["4"] <= first["duration_s"], "negative seconds are clipped"
    assert first["is_finite"]
    assert second["is_finite"]
    assert "3" not in second["cohort"], "it is still busy"
    log, warning = deployment.folder / "run.log", "reports the name '0', as node"
    deployment.wait(lambda: warning in log.read_text(), "the warning of a duplicate name")


def test_a_node_that_replies_twice_counts_once(deployment, tmp_path):
    """It sends each reply four times, one of them as a new message; the SuperLink takes one.

    Model and scheduler hold one reply of each invited client. No deadline ends a round.
    """
    probe, state = Probe(tmp_path, slow_s=0.0, slow_share=0.0), tmp_path / "scheduler.bsfl"
    options = {"cohort_size": 2, "min_clients": 3, "wait_s": PATIENCE_S, "state_path": str(state)}
    probe.follow({"bsfl": {"policy": "bsfl", **options}}, ["bsfl"], n_rounds=5)
    deployment.start_superlink()
    twice = (sys.executable, str(HERE / "probe" / "replies_twice.py"))
    deployment.start_node(0, 3, program=twice)
    deployment.start_node(1, 3)
    deployment.start_node(2, 3)
    run = deployment.run(probe.app)
    deployment.wait(lambda: run.poll() is not None, "the end of the run")

    rounds = probe.rounds()
    assert len(rounds) == 5, deployment.logs()
    task = runpy.run_path(str(EXAMPLE / "flower_app" / "task.py"))
    w = np.zeros(task["N_FEATURES"])
    for note in rounds:
        cohort = sorted(note["cohort"])
        assert len(set(cohort)) == 2
        assert sorted(note["kept"]) == sorted(note["latencies"]) == cohort, (
            "each once, no other client"
        )
        assert (note["failed"], note["timeouts"], note["n_late"]) == ([], [], 0)
        w = np.mean([task["train"](w, *task["data"](int(client))) for client in cohort], axis=0)
        assert np.allclose(note["w"], w), "as much of each as of the other"
    learned = Scheduler.load(state)
    responses = [sum(client in note["kept"] for note in rounds) for client in learned.clients]
    assert sorted(learned.clients) == ["0", "1", "2"]
    assert [row["participations"] for row in learned.table()] == responses
    log = (deployment.folder / "node-0.log").read_text()
    assert log.count("sent again") >= 2 * responses[0] > 0, "for its name, and all but the last"


def test_a_node_that_is_killed_while_others_train_on(deployment, tmp_path):
    """In asynchronous training it is replaced by another one; it comes back as the same client."""
    probe = Probe(tmp_path, slow_s=2.0, slow_share=1.0)
    options = {
        "cohort_size": 3,
        "concurrency": 3,
        "buffer": 1,
        "deadline_s": 45.0,
        "wait_s": PATIENCE_S,
    }
    buffered = {"policy": "pace", "kind": "Buffered", **options}
    probe.follow({"buffered": buffered}, ["buffered"], n_rounds=200)
    deployment.start_superlink()
    for partition in range(4):
        deployment.start_node(partition, 4)
    run = deployment.run(probe.app)
    finish(deployment, run, probe, 4)
    deployment.kill_node(3)
    n_killed = len(probe.rounds())
    finish(deployment, run, probe, n_killed + 4)
    deployment.wait(
        lambda: any("3" in note["timeouts"] + note["failed"] for note in probe.rounds()),
        "the loss of the node",
    )
    n_back = len(probe.rounds())
    deployment.start_node(3, 4)
    deployment.wait(
        lambda: any("3" in note["kept"] for note in probe.rounds()[n_back:]),
        "the restarted node",
    )


@pytest.mark.parametrize("kind", ["Selected", "Buffered"])
@pytest.mark.parametrize("killed", ["server", "superlink"])
def test_a_killed_server_resumes_with_model_and_scheduler(kind, killed, deployment, tmp_path):
    """Kill -9 of the ServerApp, or of the SuperLink and with it of all; then the same line again."""
    probe, kept = Probe(tmp_path, slow_s=0.5, slow_share=1.0), tmp_path / "kept"
    options = {"cohort_size": 2, "deadline_s": 60.0, "wait_s": PATIENCE_S, "checkpoint": str(kept)}
    probe.follow({"it": {"policy": "pace", "kind": kind, **options}}, ["it"], n_rounds=200)
    deployment.start_superlink()
    for partition in range(3):
        deployment.start_node(partition, 3)
    finish(deployment, deployment.run(probe.app), probe, 3)

    if killed == "server":
        (server,) = deployment.processes("flwr-serverapp")
        kill(server)
    else:
        for pid in [*deployment.processes("flower-"), *deployment.processes("bin/flwr")]:
            kill(pid)
        deployment.start_superlink()
        for partition in range(3):
            deployment.start_node(partition, 3)
    n_before, model = len(probe.rounds()), Checkpoint(kept).load()
    before = Scheduler.load(kept / "scheduler.bsfl")
    assert model.server_round >= 3
    finish(deployment, deployment.run(probe.app), probe, n_before + 2)

    resumed, first = probe.rounds()[n_before : n_before + 2]
    assert resumed["is_resumed"]
    assert resumed["server_round"] == model.server_round
    assert resumed["w"] == model.arrays["w"].numpy().tolist(), "the very model"
    assert first["server_round"] == model.server_round + 1
    after = Scheduler.load(kept / "scheduler.bsfl")
    assert after.clients == ["0", "1", "2"], "new ids, same clients"
    assert after.round > before.round


def test_a_name_is_held_by_one_living_node(deployment, tmp_path):
    """Two nodes report the name 0; one is killed, and does not get the name back."""
    probe = Probe(tmp_path, slow_s=1.0, slow_share=1.0)
    options = {"cohort_size": 2, "deadline_s": 40.0, "wait_s": PATIENCE_S, "min_clients": 1}
    probe.follow({"pace": {"policy": "pace", **options}}, ["pace"], n_rounds=200)
    deployment.start_superlink()
    deployment.start_node(0, 2)
    deployment.start_node(1, 2)
    run = deployment.run(probe.app)
    finish(deployment, run, probe, 2)
    log = deployment.folder / "run.log"

    deployment.start_node(0, 2, number=7)
    warning = "reports the name '0', as node"
    deployment.wait(lambda: warning in log.read_text(), "the warning of a duplicate name")
    n_both = len(probe.rounds())
    finish(deployment, run, probe, n_both + 3)
    with_both = probe.rounds()[n_both : n_both + 3]
    assert all(sorted(note["cohort"]) == ["0", "1"] for note in with_both), "each name once"
    assert all(sorted(note["kept"]) == ["0", "1"] for note in with_both)

    deployment.kill_node(0)
    deployment.wait(
        lambda: any("0" in note["timeouts"] + note["failed"] for note in probe.rounds()),
        "the loss of the holder",
    )
    n_lost = len(probe.rounds())
    deployment.wait(
        lambda: any("0" in note["kept"] for note in probe.rounds()[n_lost:]),
        "the other node, once the first is gone",
    )
    deployment.start_node(0, 2, number=8)
    deployment.wait(lambda: log.read_text().count(warning) == 2, "the second warning")
    n_again = len(probe.rounds())
    finish(deployment, run, probe, n_again + 2)
    for note in probe.rounds()[n_again:]:
        assert sorted(note["kept"]) == ["0", "1"]


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="simulation needs ray")
def test_a_simulation_of_a_thousand_clients(deployment):
    """The example as it stands, on Flower's simulation engine."""
    deployment.start_superlink("--simulation")
    run = deployment.run(
        EXAMPLE,
        *("-c", "num-rounds=3 cohort-size=20 slow-s=0.05"),
        *("--federation-config", "num-supernodes=1000"),
    )
    deployment.wait(lambda: run.poll() is not None, "the end of the simulation")
    log = (deployment.folder / "run.log").read_text()
    assert log.count("bsfl: 20 of 20 clients in") == 3, deployment.logs()
    assert "60 of 1000 seen" in log
