"""Simulated latencies: a virtual clock for deadlines, invitations, stragglers and summaries."""

import math

import pytest
from fake_federation import train
from fake_grid import RAISED, fleet
from flwr.serverapp.strategy import FedAvg

from bsfl.errors import InvalidInput
from bsfl.integrations.flower import simulated, write_latencies

SECONDS = {"0": 40.0, "1": 20.0, "2": 300.0, "3": 10.0}


def by_table(client, reply):
    return SECONDS[client]


def queueing(n=4):
    """Return nodes as on a busy machine: the order of replies says nothing about their speed."""
    nodes = fleet(*[0.5 + 0.25 * k for k in range(n)])
    for node in nodes.values():
        node.metrics = {"seconds": SECONDS.get(node.name, math.nan)}
    return nodes


@pytest.mark.parametrize("source", ["seconds", by_table, SECONDS], ids=["metric", "call", "record"])
def test_seconds_come_from_a_metric_a_function_or_a_record(source):
    """Evaluation takes real time."""
    options = {"strategy": FedAvg(), "deadline_s": 60.0, "latency": simulated(source)}
    run = train(queueing(2), rounds=2, **options)
    for played in run.rounds:
        assert (played.latencies, played.duration_s) == ({"1": 20.0, "0": 40.0}, 40.0)
    assert run.result.train_metrics_clientapp[1]["bsfl-round-s"] == 40.0
    assert run.seconds < 5.0, "real time"
    assert run.scheduler.reported[:2] == [("1", "ok", 20.0), ("0", "ok", 40.0)]
    assert len(run.grid.evaluated) == 4


def test_a_round_in_simulated_time():
    """Client 4 fails, client 5 never replies, 6 and 7 have no seconds; 2 is a straggler."""
    seconds = {**SECONDS, "4": 5.0, "5": math.inf, "6": 0.0}
    nodes = queueing(8)
    nodes[105].fails = RAISED
    source = simulated(lambda client, reply: seconds[client])
    options = {"deadline_s": 60.0, "lifetime_s": 1000.0, "min_clients": 1, "latency": source}
    run = train(nodes, 2, cohort_size=8, **options)
    first, second = run.rounds
    assert (first.kept, first.duration_s) == (("3", "1", "0"), 60.0)
    assert sorted(first.timeouts) == ["2", "5"]
    assert sorted(first.failed) == ["4", "6", "7"]
    assert first.reasons["4"] == "training failed"
    assert "simulated seconds of client '6': seconds must be" in first.reasons["6"]
    assert "simulated seconds of client '7': KeyError('7')" in first.reasons["7"]
    assert "in 60.0 s, slowest '0' after 40.0 s, 2 timed out" in first.line()
    assert ("2", "timeout", 60.0) in run.scheduler.reported
    assert not {"2", "5"} & set(second.cohort), "they are busy"
    assert run.seconds < 10.0


def test_a_straggler_is_busy_for_its_simulated_seconds():
    options = {"deadline_s": 60.0, "lifetime_s": 1000.0, "latency": simulated(by_table)}
    run = train(queueing(), rounds=9, cohort_size=4, **options)
    back = run.cohorts.index(["0", "1", "2", "3"], 1)
    assert run.cohorts[1:back] == [["0", "1", "3"]] * (back - 1)
    assert sum(r.duration_s for r in run.rounds[:back]) == pytest.approx(300.0, abs=40.0)
    assert sum(played.n_late for played in run.rounds) == 1


def test_busy_clients_are_waited_for_in_simulated_time():
    options = {"deadline_s": 5.0, "lifetime_s": 100.0, "latency": simulated(by_table)}
    run = train(queueing(2), rounds=2, **options)
    assert run.cohorts == [["0", "1"]] * 2
    assert run.seconds < 10.0


def test_a_client_that_is_unresponsive_in_real_time_times_out(caplog):
    nodes = queueing(2)
    nodes[102].takes = None
    run = train(nodes, deadline_s=60.0, latency=simulated("seconds", patience_s=30.0))
    assert 30.0 <= run.seconds <= 32.0
    assert (run.rounds[0].timeouts, run.rounds[0].duration_s) == (("1",), 60.0)
    assert "1 clients have not replied in 30 s of real time" in caplog.text


def test_a_client_that_does_not_report_the_metric_has_failed():
    (played,) = train(queueing(5), cohort_size=5, latency=simulated("seconds")).rounds
    assert played.failed == ("4",)
    assert "it does not report the metric 'seconds' as a number" in played.reasons["4"]


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

    on_a_slow_machine = fleet(9.0, 9.0, 9.0, 9.0)
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
    if text is not None:
        (tmp_path / "log.csv").write_text(text)
    with pytest.raises(InvalidInput, match=message):
        simulated(tmp_path / "log.csv")


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
