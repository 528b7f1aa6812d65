"""Simulated latencies: a virtual clock for deadlines, invitations, stragglers and summaries."""

import itertools
import logging
import math

import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from fake_federation import Spy, federation, start
from fake_grid import RAISED, fleet
from flwr.serverapp.strategy import FedAvg

from bsfl import BSFL, Scheduler, UCBIndex, UniformRandom
from bsfl.errors import InvalidInput
from bsfl.integrations.flower import simulated, write_latencies

SECONDS = {"0": 40.0, "1": 20.0, "2": 300.0, "3": 10.0}


def by_table(client, reply):
    return SECONDS[client]


def queueing(n=4):
    """Return nodes as on a busy machine: the order of replies says nothing about their speed."""
    return fleet(*[0.5 + 0.25 * k for k in range(n)])


@pytest.mark.parametrize("kind", ["metric", "function", "recorded"])
def test_seconds_come_from_a_metric_a_function_or_a_record(kind):
    nodes = queueing(2)
    for node in nodes.values():
        node.metrics = {"seconds": SECONDS[node.name]}
    source = {"metric": "seconds", "function": by_table, "recorded": SECONDS}[kind]
    selected, grid = federation(nodes, latency=simulated(source))
    result = start(selected, grid, rounds=2)
    for played in selected.rounds:
        assert played.latencies == {"1": 20.0, "0": 40.0}
        assert played.duration_s == 40.0
    assert result.train_metrics_clientapp[1]["bsfl-round-s"] == 40.0
    assert grid.clock.now - 1000.0 < 3.0, "real time"
    assert selected.scheduler.reported[:2] == [("1", "ok", 20.0), ("0", "ok", 40.0)]


def test_the_deadline_is_simulated():
    selected, grid = federation(
        queueing(), cohort_size=4, deadline_s=60.0, latency=simulated(by_table)
    )
    start(selected, grid)
    (played,) = selected.rounds
    assert (played.kept, played.timeouts, played.duration_s) == (("3", "1", "0"), ("2",), 60.0)
    assert "in 60.0 s, slowest '0' after 40.0 s, 1 timed out ('2')" in played.line()


def test_the_first_by_simulated_time_are_kept():
    selected, grid = federation(
        queueing(), cohort_size=2, over_selection=2.0, min_clients=4, latency=simulated(by_table)
    )
    start(selected, grid)
    assert selected.rounds[0].kept == ("3", "1"), "not the first that the machine got to"
    assert selected.rounds[0].duration_s == 20.0


def test_a_straggler_is_busy_for_its_simulated_seconds():
    scheduler = Spy(UniformRandom(), cohort_size=4)
    selected, grid = federation(
        queueing(),
        scheduler=scheduler,
        deadline_s=60.0,
        lifetime_s=1000.0,
        latency=simulated(by_table),
    )
    start(selected, grid, rounds=9)
    cohorts = [sorted(r.cohort) for r in selected.rounds]
    assert cohorts[1] == ["0", "1", "3"]
    back = cohorts.index(["0", "1", "2", "3"], 1)
    assert sum(r.duration_s for r in selected.rounds[:back]) == pytest.approx(300.0, abs=40.0)
    assert sum(r.n_late for r in selected.rounds) == 1
    assert ("2", "timeout", 60.0) in scheduler.reported


def test_a_client_that_never_replies_times_out():
    seconds = {"0": 1.0, "1": math.inf}
    selected, grid = federation(
        queueing(2), deadline_s=60.0, latency=simulated(lambda client, reply: seconds[client])
    )
    start(selected, grid)
    assert (selected.rounds[0].timeouts, selected.rounds[0].duration_s) == (("1",), 60.0)


def test_busy_clients_are_waited_for_in_simulated_time():
    selected, grid = federation(
        queueing(2), deadline_s=5.0, lifetime_s=100.0, latency=simulated(by_table)
    )
    start(selected, grid, rounds=2)
    assert [len(r.cohort) for r in selected.rounds] == [2, 2]
    assert grid.clock.now - 1000.0 < 10.0


def test_errors_take_no_time():
    nodes = queueing(2)
    nodes[101].fails = RAISED
    selected, grid = federation(nodes, latency=simulated(by_table))
    start(selected, grid)
    (played,) = selected.rounds
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
    nodes[102].metrics = {"seconds": 2.0}
    nodes[101].metrics = {"seconds": math.nan}
    selected, grid = federation(nodes, latency=simulated(source))
    start(selected, grid)
    (played,) = selected.rounds
    assert (played.kept, played.failed) == (("1",), ("0",))
    assert f"simulated seconds of client '0': {reason}" in played.reasons["0"]


def test_a_client_that_is_unresponsive_in_real_time_times_out(caplog):
    nodes = queueing(2)
    nodes[102].takes = None
    selected, grid = federation(
        nodes, deadline_s=60.0, latency=simulated(by_table, patience_s=30.0)
    )
    start(selected, grid)
    assert 30.0 <= grid.clock.now - 1000.0 <= 32.0
    assert selected.rounds[0].timeouts == ("1",)
    assert selected.rounds[0].duration_s == 60.0
    assert "1 clients have not replied in 30 s of real time" in caplog.text


def test_evaluation_takes_real_time():
    nodes = queueing(2)
    selected, grid = federation(
        nodes, strategy=FedAvg(), deadline_s=60.0, latency=simulated(by_table)
    )
    start(selected, grid, rounds=2)
    assert len(grid.evaluated) == 4
    assert [r.duration_s for r in selected.rounds] == [40.0, 40.0]


def test_what_is_learned_is_what_was_simulated():
    """The slow clients reply first on this machine, and are still known to be slow."""
    scheduler = Scheduler(BSFL(alpha=0.0, index=UCBIndex(confidence_width="none")), cohort_size=2)
    selected, grid = federation(queueing(), scheduler=scheduler, latency=simulated(by_table))
    start(selected, grid, rounds=6)
    assert set(selected.rounds[-1].cohort) == {"1", "3"}


# --- recordings -----------------------------------------------------------------------------------


def test_latencies_are_drawn_from_a_recording(tmp_path):
    selected, grid = federation(queueing(2), latency=simulated(SECONDS))
    start(selected, grid, rounds=3)
    write_latencies(tmp_path / "log.csv", selected.rounds)
    again, grid = federation(queueing(2), latency=simulated(tmp_path / "log.csv"))
    start(again, grid, rounds=3)
    assert again.rounds[2].latencies == {"1": 20.0, "0": 40.0}


def test_draws_depend_on_the_seed_and_the_client_alone():
    recorded = {"a": [1.0, 2.0, 3.0, 4.0, 5.0], "b": [10.0, 20.0, 30.0, 40.0]}

    def draws(nodes, seed):
        selected, grid = federation(nodes, cohort_size=4, latency=simulated(recorded, seed=seed))
        start(selected, grid, rounds=5)
        return [dict(sorted(r.latencies.items())) for r in selected.rounds]

    slow_machine = fleet(*itertools.repeat(9.0, 4))
    assert draws(queueing(), 0) == draws(slow_machine, 0)
    assert draws(queueing(), 0) != draws(queueing(), 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,latency_s\n", "holds no latencies"),
        ("client,latency_s\na,fast\n", "line 2: a row must have a client and its latency_s"),
        ("who,latency_s\na,1\n", "line 2: a row must have a client"),
        ("client,latency_s\na,0\n", "latency of client 'a' must be"),
    ],
)
def test_a_recording_must_hold_seconds(text, message, tmp_path):
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(InvalidInput, match=message):
        simulated(tmp_path / "log.csv")
    with pytest.raises(InvalidInput, match="cannot be read"):
        simulated(tmp_path / "nothing.csv")


def test_wrong_sources():
    with pytest.raises(InvalidInput, match="must get a metric, a function, latencies by client or"):
        simulated(7)
    with pytest.raises(InvalidInput, match="client 'a' must have at least one latency"):
        simulated({"a": []})
    with pytest.raises(InvalidInput, match="patience_s must be a finite number above 0, got 0"):
        simulated(patience_s=0)


# --- reported durations ---------------------------------------------------------------------------


def test_clipping_a_report_to_the_round_trip_is_logged(caplog):
    nodes = fleet(0.5, 0.6)
    for node in nodes.values():
        node.metrics = {"duration-s": 43.5}
    selected, grid = federation(nodes, latency="reported")
    start(selected, grid, rounds=3)
    said = [r.getMessage() for r in caplog.records if "reports 43.5 s" in r.getMessage()]
    assert len(said) == 1, "once"
    assert "use latency=simulated('duration-s')" in said[0]


def test_reports_within_the_round_trip_are_no_news(caplog):
    caplog.set_level(logging.WARNING)
    nodes = fleet(2.0, 2.0)
    for node in nodes.values():
        node.metrics = {"duration-s": 1.9}
    selected, grid = federation(nodes, latency="reported")
    caplog.clear()
    start(selected, grid, rounds=3)
    assert not caplog.records
