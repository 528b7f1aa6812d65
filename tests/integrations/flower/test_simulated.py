"""Simulated latencies: a virtual clock for deadlines, invitations, stragglers and summaries."""

import itertools
import math

import pytest
from fake_federation import Spy, train
from fake_grid import RAISED, fleet
from flwr.serverapp.strategy import FedAvg

from bsfl import BSFL, UCBIndex
from bsfl.errors import InvalidInput
from bsfl.integrations.flower import simulated, write_latencies

SECONDS = {"0": 40.0, "1": 20.0, "2": 300.0, "3": 10.0}


def by_table(client, reply):
    return SECONDS[client]


def queueing(n=4):
    """Return nodes as on a busy machine: the order of replies says nothing about their speed."""
    nodes = fleet(*[0.5 + 0.25 * k for k in range(n)])
    for node in nodes.values():
        node.metrics = {"seconds": SECONDS[node.name]}
    return nodes


@pytest.mark.parametrize("source", ["seconds", by_table, SECONDS], ids=["metric", "call", "record"])
def test_seconds_come_from_a_metric_a_function_or_a_record(source):
    run = train(queueing(2), rounds=2, latency=simulated(source))
    for played in run.rounds:
        assert (played.latencies, played.duration_s) == ({"1": 20.0, "0": 40.0}, 40.0)
    assert run.result.train_metrics_clientapp[1]["bsfl-round-s"] == 40.0
    assert run.seconds < 3.0, "real time"
    assert run.scheduler.reported[:2] == [("1", "ok", 20.0), ("0", "ok", 40.0)]


def test_a_straggler_times_out_and_is_busy_for_its_simulated_seconds():
    source = simulated(by_table)
    run = train(queueing(), 9, cohort_size=4, deadline_s=60.0, lifetime_s=1000.0, latency=source)
    first = run.rounds[0]
    assert (first.kept, first.timeouts, first.duration_s) == (("3", "1", "0"), ("2",), 60.0)
    assert "in 60.0 s, slowest '0' after 40.0 s, 1 timed out ('2')" in first.line()
    assert ("2", "timeout", 60.0) in run.scheduler.reported
    assert run.cohorts[1] == ["0", "1", "3"]
    back = run.cohorts.index(["0", "1", "2", "3"], 1)
    assert sum(r.duration_s for r in run.rounds[:back]) == pytest.approx(300.0, abs=40.0)
    assert sum(played.n_late for played in run.rounds) == 1


def test_the_first_by_simulated_time_are_kept():
    run = train(queueing(), over_selection=2.0, min_clients=4, latency=simulated(by_table))
    assert run.rounds[0].kept == ("3", "1"), "not the first that the machine got to"
    assert run.rounds[0].duration_s == 20.0


def test_a_client_that_never_replies_times_out():
    source = simulated(lambda client, reply: {"0": 1.0, "1": math.inf}[client])
    run = train(queueing(2), deadline_s=60.0, latency=source)
    assert (run.rounds[0].timeouts, run.rounds[0].duration_s) == (("1",), 60.0)


def test_busy_clients_are_waited_for_in_simulated_time():
    source = simulated(by_table)
    run = train(queueing(2), 2, deadline_s=5.0, lifetime_s=100.0, latency=source)
    assert run.cohorts == [["0", "1"]] * 2
    assert run.seconds < 10.0


def test_errors_take_no_time():
    nodes = queueing(2)
    nodes[101].fails = RAISED
    (played,) = train(nodes, latency=simulated(by_table)).rounds
    assert (played.failed, played.kept, played.duration_s) == (("0",), ("1",), 20.0)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("seconds", "it does not report the metric 'seconds' as a number"),
        (lambda client, reply: {"1": 2.0}[client], "KeyError('0')"),
        (lambda client, reply: 2.0 * (client == "1"), "seconds must be a finite number above 0"),
    ],
)
def test_a_client_without_seconds_has_failed(source, reason):
    nodes = queueing(2)
    nodes[101].metrics = {"seconds": math.nan}
    (played,) = train(nodes, latency=simulated(source)).rounds
    assert (played.kept, played.failed) == (("1",), ("0",))
    assert f"simulated seconds of client '0': {reason}" in played.reasons["0"]


def test_a_client_that_is_unresponsive_in_real_time_times_out(caplog):
    nodes = queueing(2)
    nodes[102].takes = None
    run = train(nodes, deadline_s=60.0, latency=simulated(by_table, patience_s=30.0))
    assert 30.0 <= run.seconds <= 32.0
    assert (run.rounds[0].timeouts, run.rounds[0].duration_s) == (("1",), 60.0)
    assert "1 clients have not replied in 30 s of real time" in caplog.text


def test_evaluation_takes_real_time():
    source = simulated(by_table)
    run = train(queueing(2), 2, strategy=FedAvg(), deadline_s=60.0, latency=source)
    assert len(run.grid.evaluated) == 4
    assert [played.duration_s for played in run.rounds] == [40.0, 40.0]


def test_what_is_learned_is_what_was_simulated():
    """The slow clients reply first on this machine, and are still known to be slow."""
    policy = BSFL(alpha=0.0, index=UCBIndex(confidence_width="none"))
    scheduler = Spy(policy, cohort_size=2)
    run = train(queueing(), rounds=6, scheduler=scheduler, latency=simulated(by_table))
    assert run.cohorts[-1] == ["1", "3"]


# --- recordings -----------------------------------------------------------------------------------


def test_latencies_are_drawn_from_a_recording(tmp_path):
    run = train(queueing(3), rounds=3, cohort_size=3, deadline_s=60.0, latency=simulated(SECONDS))
    write_latencies(tmp_path / "log.csv", run.rounds)
    again = train(queueing(2), rounds=3, latency=simulated(tmp_path / "log.csv"))
    assert again.rounds[2].latencies == {"1": 20.0, "0": 40.0}


def test_draws_depend_on_the_seed_and_the_client_alone():
    recorded = {"a": [1.0, 2.0, 3.0, 4.0, 5.0], "b": [10.0, 20.0, 30.0, 40.0]}

    def draws(nodes, seed):
        run = train(nodes, rounds=5, cohort_size=4, latency=simulated(recorded, seed=seed))
        return [dict(sorted(played.latencies.items())) for played in run.rounds]

    on_a_slow_machine = fleet(*itertools.repeat(9.0, 4))
    assert draws(queueing(), 0) == draws(on_a_slow_machine, 0)
    assert draws(queueing(), 0) != draws(queueing(), 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,latency_s\n", "holds no latencies"),
        ("client,latency_s\na,fast\n", "line 2: a row must have a client and its latency_s"),
        ("who,latency_s\na,1\n", "line 2: a row must have a client"),
        ("client,latency_s\na,0\n", "latency of client 'a' must be"),
        (None, "cannot be read"),
    ],
)
def test_a_recording_must_hold_seconds(text, message, tmp_path):
    path = tmp_path / "log.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        simulated(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": 7}, "must get a metric, a function, latencies by client or"),
        ({"source": {"a": []}}, "client 'a' must have at least one latency"),
        ({"patience_s": 0}, "patience_s .* got 0"),
        ({"seed": -1}, "seed .* got -1"),
    ],
)
def test_wrong_sources(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        simulated(**arguments)
