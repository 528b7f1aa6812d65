"""Evaluation by clients: under a deadline, on those that are not busy, with any reply."""

import logging

import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from fake_federation import federation, start
from fake_grid import fleet
from flwr.app import MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg


def test_all_nodes_that_are_not_busy_evaluate():
    selected, grid = federation(fleet(1, 1, 1, 1), strategy=FedAvg(), cohort_size=2)
    result = start(selected, grid)
    assert sorted(grid.evaluated) == [101, 102, 103, 104], "all nodes, not the cohort"
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(1.5)


def test_the_training_deadline_ends_it_too(caplog):
    caplog.set_level(logging.INFO, logger="flwr")
    nodes = fleet(1, 1, 1)
    nodes[103].evaluates = None
    selected, grid = federation(nodes, strategy=FedAvg(), deadline_s=10.0)
    result = start(selected, grid)
    assert 11.0 <= grid.clock.now - 1000.0 <= 12.0
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(0.5)
    assert "evaluation ended after 10.0 s without nodes 103" in caplog.text


@pytest.mark.parametrize("deadline", [4.0, lambda server_round: 3.0 + server_round])
def test_it_may_have_a_deadline_of_its_own(deadline):
    selected, grid = federation(
        fleet(1, 1, evaluates=None),
        strategy=FedAvg(),
        deadline_s=10.0,
        evaluate_deadline_s=deadline,
    )
    start(selected, grid)
    assert 5.0 <= grid.clock.now - 1000.0 <= 5.2


def test_without_a_deadline_the_timeout_of_start_holds():
    selected, grid = federation(fleet(1, 1, evaluates=None), strategy=FedAvg())
    start(selected, grid, timeout=20.0)
    assert 21.0 <= grid.clock.now - 1000.0 <= 21.5


def test_a_node_that_is_still_evaluating_is_busy():
    nodes = fleet(1, 1, 1)
    nodes[103].evaluates = 15.0
    selected, grid = federation(nodes, strategy=FedAvg(), cohort_size=3, deadline_s=10.0)
    start(selected, grid, rounds=3)
    assert sorted(selected.rounds[1].cohort) == ["0", "1"]
    assert grid.evaluated.count(103) < 3


def test_stragglers_do_not_evaluate():
    nodes = fleet(1.0, 1.0, None)
    selected, grid = federation(
        nodes, strategy=FedAvg(min_available_nodes=3), cohort_size=3, deadline_s=5.0
    )
    start(selected, grid)
    assert sorted(grid.evaluated) == [101, 102], "fewer than min_available_nodes, and no wait"


def test_without_a_free_node_there_is_no_evaluation(caplog):
    caplog.set_level(logging.INFO, logger="flwr")
    selected, grid = federation(fleet(None, None), strategy=FedAvg(), deadline_s=5.0)
    start(selected, grid)
    assert grid.evaluated == []
    assert "no node is free to evaluate" in caplog.text


def test_a_strategy_without_evaluation_sends_nothing():
    selected, grid = federation(fleet(1, 1), strategy=FedAvg(fraction_evaluate=0.0))
    start(selected, grid)
    assert grid.evaluated == []


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"metrics": MetricRecord({"accuracy": 1.0})}),
        RecordDict({"metrics": MetricRecord({"num-examples": 0, "accuracy": 1.0})}),
        RecordDict({"metrics": MetricRecord({"num-examples": 10, "other": 1.0})}),
        RecordDict({n: MetricRecord({"num-examples": 10, "accuracy": 1.0}) for n in "ab"}),
    ],
)
def test_an_unusable_evaluation_is_left_out(content, caplog):
    nodes = fleet(1, 1, 1)

    def spoil(reply):
        if "arrays" not in reply.content:
            reply.content = content

    nodes[102].spoils = spoil
    selected, grid = federation(nodes, strategy=FedAvg(), cohort_size=3)
    result = start(selected, grid, rounds=2)
    for metrics in result.evaluate_metrics_clientapp.values():
        assert metrics["accuracy"] == pytest.approx(1.0), "clients 0 and 2"
    assert "the evaluation of node 102 is not used" in caplog.text
