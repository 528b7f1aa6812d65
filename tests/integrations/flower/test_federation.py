"""When a round ends: deadlines, stragglers, over-selection and failures; evaluation by clients."""

import itertools
import logging

import pytest
from fake_federation import Spy, federation, train
from fake_grid import GONE, RAISED, fleet
from flwr.app import MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from bsfl import BSFL, Scheduler, UniformRandom

# --- deadlines ------------------------------------------------------------------------------------


def test_the_deadline_ends_a_round():
    run = train(fleet(2.0, None), deadline_s=10.0)
    (only,) = run.rounds
    assert only.duration_s == pytest.approx(10.0, abs=0.05)
    assert (only.kept, only.timeouts, only.failed) == (("0",), ("1",), ())
    assert run.scheduler.reported == [("0", "ok", 2.0), ("1", "timeout", 10.0)]
    assert run.scheduler.pending() == []
    (opened,) = run.scheduler.journal.of_kind("opened")
    (closed,) = run.scheduler.journal.of_kind("closed")
    assert (opened["deadline_s"], closed["aggregated"]) == (10.0, ["0"])
    assert run.result.train_metrics_clientapp[1]["bsfl-timeouts"] == 1
    assert run.model == 0.0


def test_without_a_deadline_the_policys_tau_max_or_the_timeout_ends_a_round():
    scheduler = Spy(BSFL(tau_max=7.0), cohort_size=2)
    by_policy = train(fleet(2.0, None), scheduler=scheduler)
    assert by_policy.seconds == pytest.approx(7.0, abs=0.05)
    by_timeout = federation(fleet(2.0, None)).start(timeout=20.0)
    assert by_timeout.seconds == pytest.approx(20.0, abs=0.2)
    assert by_policy.rounds[0].timeouts == by_timeout.rounds[0].timeouts == ("1",)


def test_a_deadline_by_the_round():
    run = train(fleet(2.0, 7.0), rounds=3, deadline_s=lambda t: {1: 4.0, 2: 8.0}.get(t))
    assert [played.timeouts for played in run.rounds] == [("1",), (), ()]
    assert run.rounds[0].duration_s == pytest.approx(4.0, abs=0.1)
    assert run.grid.ttls[0] == 8.0, "twice the deadline of its own round"


def test_messages_live_as_long_as_stragglers_may_reply():
    assert train(fleet(1, 1), deadline_s=10.0).grid.ttls == [20.0, 20.0]
    assert train(fleet(1, 1), deadline_s=10.0, lifetime_s=12.0).grid.ttls == [12.0, 12.0]


def test_training_continues_after_a_round_without_replies():
    nodes = fleet(itertools.chain([None], itertools.repeat(1.0)), itertools.repeat(None))
    run = train(nodes, rounds=2, deadline_s=5.0)
    assert [played.kept for played in run.rounds] == [(), ("0",)]
    metrics = run.result.train_metrics_clientapp[1]
    assert metrics["bsfl-slowest-s"] == pytest.approx(5.0, abs=0.05)
    assert "no response" in run.rounds[0].line()


def test_without_a_deadline_unresponsive_clients_are_waited_for_until_they_expire():
    unresponsive_once = [itertools.chain([None], itertools.repeat(1.0)) for _ in range(2)]
    run = federation(fleet(*unresponsive_once)).start(2, timeout=400.0)
    assert [len(played.kept) for played in run.rounds] == [0, 2]
    assert run.seconds == pytest.approx(800.0 + 1.0, abs=15.0), "twice the timeout"


def test_a_round_needs_one_free_client_even_with_min_train_nodes_0():
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=0)
    run = train(fleet(99.0, 99.0), rounds=2, strategy=strategy, deadline_s=5.0)
    assert [len(cohort) for cohort in run.cohorts] == [2, 2]


@pytest.mark.parametrize(("takes", "ends_at"), [(15.0, 15.0), (None, 20.0)])
def test_min_responses_are_waited_for_beyond_the_deadline_until_messages_expire(takes, ends_at):
    nodes = fleet(1.0, takes, None)
    run = train(nodes, cohort_size=3, deadline_s=10.0, min_responses=2)
    assert run.seconds == pytest.approx(ends_at, abs=0.5)
    assert sorted(run.rounds[0].timeouts) == (["2"] if takes else ["1", "2"])


# --- stragglers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("takes", "free_at"), [(17.0, 17.0), (None, 20.0)])
def test_a_straggler_is_busy_until_it_replies_or_its_message_expires(takes, free_at):
    nodes = fleet(1.0, 1.0, itertools.chain([takes], itertools.repeat(1.0)))
    run = train(nodes, rounds=14, cohort_size=3, deadline_s=10.0)
    n_busy = run.cohorts.count(["0", "1"])
    everyone = ["0", "1", "2"]
    assert run.cohorts == [everyone, *[["0", "1"]] * n_busy, *[everyone] * (13 - n_busy)]
    until = sum(played.duration_s for played in run.rounds[: 1 + n_busy])
    assert until == pytest.approx(free_at, abs=1.5), "rounds of one second"
    assert [outcome for _, outcome, _ in run.scheduler.reported].count("timeout") == 1
    assert sum(played.n_late for played in run.rounds) == (1 if takes else 0)


def test_over_selection_keeps_the_first_replies_and_learns_from_the_others():
    nodes = fleet(1.0, 2.0, itertools.chain([8.0], itertools.repeat(2.5)))
    run = train(nodes, rounds=6, over_selection=1.5, deadline_s=30.0)
    first = run.rounds[0]
    assert (len(first.cohort), first.kept, first.timeouts) == (3, ("0", "1"), ())
    assert first.duration_s == pytest.approx(2.0, abs=0.1)
    assert "2" not in run.cohorts[1], "busy with the first round"
    assert any("2" in cohort for cohort in run.cohorts[2:])
    assert ("2", "ok", 8.0) in [(c, o, round(s)) for c, o, s in run.scheduler.reported]
    assert (1, "2", "ok", True, True) in run.scheduler.journal.results(), "late, and dropped"
    assert sum(played.n_late for played in run.rounds) >= 1


def test_over_selection_is_that_of_selected_or_of_the_scheduler():
    for own, given in ((1.0, "auto"), ("auto", None)):
        scheduler = Scheduler(UniformRandom(), cohort_size=4, over_selection=own)
        run = train(fleet(*[1.0] * 12), scheduler=scheduler, over_selection=given)
        assert run.strategy.limits.max_invited == 8
        assert 6 <= len(run.cohorts[0]) <= 8, "at least 1.3 and at most twice as many"
        assert len(run.rounds[0].kept) == 4


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fails", "takes", "outcome", "reasons"),
    [
        (RAISED, 3.0, "failed", {"1": "training failed"}),
        (GONE, 3.0, "failed", {}),
        (None, None, "timeout", {}),
    ],
)
def test_a_client_that_fails_and_those_for_which_the_superlink_replies(
    fails, takes, outcome, reasons
):
    """The SuperLink's replies come from node 1: the message that they reply to shows the client."""
    nodes = fleet(1.0, takes)
    nodes[102].fails = fails
    run = train(nodes, deadline_s=60.0, lifetime_s=60.0)
    (only,) = run.rounds
    assert (only.kept, only.reasons) == (("0",), reasons)
    assert only.duration_s == pytest.approx(takes or 60.0, abs=0.1), "no client is left to wait for"
    assert [one[:2] for one in run.scheduler.reported] == [("0", "ok"), ("1", outcome)]


def test_a_message_that_could_not_be_sent():
    run = federation(fleet(1.0, 1.0), identity="node-id")
    run.grid.refused = {102}
    run.start()
    assert run.rounds[0].failed == ("node-102",)
    assert run.scheduler.in_flight == []


# --- evaluation -----------------------------------------------------------------------------------


def evaluated(nodes, rounds=1, *, strategy=None, **options):
    return train(nodes, rounds, strategy=strategy or FedAvg(), **options)


def test_all_nodes_that_are_not_busy_evaluate():
    run = evaluated(fleet(1, 1, 1, 1))
    assert sorted(run.grid.evaluated) == [101, 102, 103, 104], "all nodes, not the cohort"
    assert run.result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(1.5)
    strategy = FedAvg(min_available_nodes=3)
    run = evaluated(fleet(1.0, 1.0, None), strategy=strategy, cohort_size=3, deadline_s=5.0)
    assert sorted(run.grid.evaluated) == [101, 102], "fewer than min_available_nodes, and no wait"


def test_without_a_free_node_or_a_strategy_that_evaluates_none_does(caplog):
    caplog.set_level(logging.INFO, logger="flwr")
    assert evaluated(fleet(None, None), deadline_s=5.0).grid.evaluated == []
    assert "no node is free to evaluate" in caplog.text
    assert train(fleet(1, 1)).grid.evaluated == []


@pytest.mark.parametrize(
    ("options", "ends_at"),
    [
        ({"deadline_s": 10.0}, 11.0),
        ({"deadline_s": 10.0, "evaluate_deadline_s": 4.0}, 5.0),
        ({"deadline_s": 10.0, "evaluate_deadline_s": lambda t: 3.0 + t}, 5.0),
        ({}, 21.0),
    ],
)
def test_a_deadline_or_the_timeout_of_start_ends_it(options, ends_at, caplog):
    caplog.set_level(logging.INFO, logger="flwr")
    nodes = fleet(1, 1, 1)
    nodes[103].evaluates = None
    run = federation(nodes, strategy=FedAvg(), **options).start(timeout=20.0)
    assert run.seconds == pytest.approx(ends_at, abs=0.5)
    assert run.result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(0.5)
    assert f"evaluation ended after {ends_at - 1:.1f} s without nodes 103" in caplog.text


def test_a_node_that_is_still_evaluating_is_busy():
    nodes = fleet(1, 1, 1)
    nodes[103].evaluates = 15.0
    run = evaluated(nodes, rounds=3, cohort_size=3, deadline_s=10.0)
    assert run.cohorts[1] == ["0", "1"]
    assert run.grid.evaluated.count(103) < 3


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
    run = evaluated(nodes, rounds=2, cohort_size=3)
    accuracies = [m["accuracy"] for m in run.result.evaluate_metrics_clientapp.values()]
    assert accuracies == [1.0, 1.0], "of clients 0 and 2"
    assert "the evaluation of node 102 is not used" in caplog.text
