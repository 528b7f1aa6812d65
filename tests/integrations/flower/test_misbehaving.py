"""Nodes that reply twice, wrongly, absurdly or never: the others train on, and it is counted."""

import errno
import logging

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from fake_federation import federation, start
from fake_grid import RAISED, fleet
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, FedMedian, FedXgbBagging

from bsfl import BSFL, Oort, Scheduler, UniformRandom
from bsfl.integrations.flower.content import ContentCheck, aggregates_as_flower

NAN, INF = float("nan"), float("inf")


def arrays(*values, name="w"):
    return ArrayRecord({name: Array(np.array(values))})


def holding(**records):
    """Return a function that replaces records of a reply, or removes those that are None."""

    def spoil(reply):
        content = {**reply.content, **{name.replace("_", "-"): r for name, r in records.items()}}
        reply.content = RecordDict({name: r for name, r in content.items() if r is not None})

    return spoil


def reporting(**metrics):
    """Return a function that replaces metrics of a reply, or removes those that are None."""

    def spoil(reply):
        record = reply.content["metrics"]
        for name, value in metrics.items():
            name = name.replace("num_examples", "num-examples").replace("duration_s", "duration-s")
            record.pop(name, None)
            if value is not None:
                record[name] = value

    return spoil


def from_another_node(reply):
    reply.metadata.__dict__["_src_node_id"] = 101


def unreadable(reply):
    array = Array(np.zeros(2))
    array.data = b"these bytes are no array"
    reply.content["arrays"] = ArrayRecord({"w": array})


def of_another_shape(reply):
    array = Array(np.zeros(2))
    array.shape = (3,)
    reply.content["arrays"] = ArrayRecord({"w": array})


SPOILT = {
    "no content": (holding(arrays=None, metrics=None), "it has 0 ArrayRecords instead of one"),
    "no arrays": (holding(arrays=None), "it has 0 ArrayRecords instead of one"),
    "two records": (holding(more=arrays(1.0)), "it has 2 ArrayRecords"),
    "a config": (holding(arrays=None, metrics=None, config=ConfigRecord({"a": 1})), "it has 0 Arr"),
    "NaN weights": (holding(arrays=arrays(NAN, 1.0)), "array 'w' holds values that are not finite"),
    "infinite weights": (holding(arrays=arrays(INF, 1.0)), "values that are not finite"),
    "a false shape": (of_another_shape, "array 'w' has shape (2,) and claims (3,)"),
    "unreadable": (unreadable, "array 'w' cannot be read"),
    "no samples": (reporting(num_examples=0), "its num-examples is 0"),
    "negative samples": (reporting(num_examples=-5), "its num-examples is -5"),
    "huge samples": (reporting(num_examples=10**15), "its num-examples is 1000000000000000"),
    "infinite samples": (reporting(num_examples=INF), "its num-examples is inf"),
    "NaN samples": (reporting(num_examples=NAN), "its num-examples is nan"),
    "a list of samples": (reporting(num_examples=[1, 2]), r"its num-examples is [1, 2]"),
    "samples not reported": (reporting(num_examples=None), "its num-examples is None"),
    "an impostor": (from_another_node, "node 101 replied in place of node 102"),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_an_unusable_reply_is_a_failure_with_a_reason(kind, caplog):
    """Clients 0 and 2 are honest; the mean of their models is 1."""
    spoil, reason = SPOILT[kind]
    nodes = fleet(1.0, 1.0, 1.0)
    nodes[102].spoils = spoil
    selected, grid = federation(nodes, cohort_size=3)
    result = start(selected, grid, rounds=2)
    for played in selected.rounds:
        assert (sorted(played.kept), played.failed) == (["0", "2"], ("1",))
        assert reason in played.reasons["1"]
    assert np.allclose(result.arrays["w"].numpy(), 1.0)
    assert ("1", "failed", 1.0) in selected.scheduler.reported
    assert f"the reply of '1' is not used: {selected.rounds[0].reasons['1']}" in caplog.text


@pytest.mark.parametrize(
    "spoil",
    [
        holding(arrays=arrays(1.0, 2.0, 3.0)),
        holding(arrays=arrays(1.0, 2.0, name="v")),
        holding(arrays=arrays(1.0)),
        reporting(extra=1.0),
        reporting(train_loss=None),
        holding(metrics=None, others=MetricRecord({"num-examples": 10, "train_loss": 0.5})),
    ],
)
@pytest.mark.parametrize("strategy", [FedAvg, FedMedian])
def test_a_reply_unlike_the_others_is_left_out(spoil, strategy):
    nodes = fleet(1.0, 1.0, 1.0)
    nodes[101].spoils = spoil
    selected, grid = federation(nodes, cohort_size=3, strategy=strategy(fraction_evaluate=0.0))
    result = start(selected, grid, rounds=2)
    assert [sorted(r.kept) for r in selected.rounds] == [["1", "2"]] * 2
    assert selected.rounds[0].reasons == {"0": "its records differ from those of the others"}
    assert np.allclose(result.arrays["w"].numpy(), 1.5)


@pytest.mark.parametrize("loss", [NAN, INF, -INF, 1e300, -1e300])
def test_an_impossible_loss_is_not_learned_from(loss):
    nodes = fleet(1.0, 1.0)
    nodes[102].spoils = reporting(train_loss=loss)
    selected, grid = federation(nodes, loss_key="train_loss")
    start(selected, grid, rounds=2)
    assert selected.rounds[0].failed == (), "its model is as good as any"


@pytest.mark.parametrize("loss", [NAN, INF, -1.0, 1e300, None, [1.0]])
@pytest.mark.parametrize("policy", [BSFL(generalization="loss"), Oort()], ids=["bsfl", "oort"])
def test_an_impossible_loss_is_a_failure_if_the_policy_needs_losses(loss, policy):
    nodes = fleet(1.0, 1.0, 1.0)
    nodes[102].spoils = reporting(train_loss=loss)
    scheduler = Scheduler(policy, cohort_size=3)
    selected, grid = federation(nodes, scheduler=scheduler, loss_key="train_loss")
    start(selected, grid, rounds=3)
    assert [r.failed for r in selected.rounds] == [("1",)] * 3
    assert "its train_loss is not a number from 0" in selected.rounds[0].reasons["1"]


@pytest.mark.parametrize("claim", [NAN, INF, -3.0, 0.0, 1e300])
def test_absurd_durations_are_bounded(claim):
    nodes = fleet(1.0, 2.0)
    nodes[102].spoils = reporting(duration_s=claim)
    nodes[101].metrics = {"duration-s": 1.0}
    selected, grid = federation(nodes, latency="reported")
    start(selected, grid)
    assert 1.0 <= selected.rounds[0].latencies["1"] <= 2.1


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda client, reply, s: -1.0 if client == "1" else s, "latency must be .* above 0"),
        (lambda client, reply, s: s / (client != "1"), "ZeroDivisionError"),
        (lambda client, reply, s: None if client == "1" else s, "latency must be"),
    ],
)
def test_if_the_latency_function_fails_for_a_client_that_client_has_failed(
    function, reason, caplog
):
    selected, grid = federation(fleet(1.0, 1.0), latency=function)
    start(selected, grid)
    assert selected.rounds[0].failed == ("1",)
    assert pytest.approx(1.0, abs=0.1) == selected.rounds[0].latencies["0"]
    assert "your latency function, for client '1'" in selected.rounds[0].reasons["1"]
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(selected.rounds[0].reasons["1"])


def test_the_reason_of_an_error_is_kept():
    nodes = fleet(1.0, 1.0)
    nodes[102].fails = RAISED
    selected, grid = federation(nodes)
    start(selected, grid)
    assert selected.rounds[0].reasons == {"1": "training failed"}


def test_a_reply_that_comes_twice_counts_once():
    nodes = fleet(1.0, 2.0, 3.0, repeats=2)
    selected, grid = federation(nodes, cohort_size=3)
    result = start(selected, grid, rounds=2)
    assert [sorted(r.kept) for r in selected.rounds] == [["0", "1", "2"]] * 2
    assert np.allclose(result.arrays["w"].numpy(), 1.0)
    assert len(selected.scheduler.reported) == 6


def test_replies_to_unknown_messages_are_ignored():
    selected, grid = federation(fleet(1.0, 1.0))
    pull = grid.pull_messages

    def with_stray_replies(message_ids):
        replies = list(pull(message_ids))
        message = Message(RecordDict(), dst_node_id=101, message_type="train")
        stray = Message(Error(RAISED, "stray"), reply_to=message)
        stray.metadata.__dict__["_reply_to_message_id"] = "message-99"
        return [stray, *replies]

    grid.pull_messages = with_stray_replies
    start(selected, grid, rounds=2)
    assert [len(r.kept) for r in selected.rounds] == [2, 2]


def test_without_a_usable_reply_the_model_stays_as_it_is():
    nodes = fleet(1.0, 1.0)
    for node in nodes.values():
        node.spoils = holding(arrays=arrays(NAN, NAN))
    selected, grid = federation(nodes)
    result = start(selected, grid, rounds=2)
    assert [len(r.failed) for r in selected.rounds] == [2, 2]
    assert not result.arrays


# --- custom strategies -------------------------------------------------------------------------------


class Unweighted(FedAvg):
    """Aggregates in its own way: the mean of all models, whatever else replies hold."""

    def aggregate_train(self, server_round, replies):
        models = [r.content["arrays"]["w"].numpy() for r in replies if r.has_content()]
        return ArrayRecord({"w": Array(np.mean(np.stack(models), axis=0))}), None


class Noting(FedAvg):
    """Aggregates as Flower does, and notes how many replies there were."""

    def aggregate_train(self, server_round, replies):
        self.n_replies = len(list(replies))
        return super().aggregate_train(server_round, replies)


def test_which_strategies_aggregate_as_flower_does():
    assert aggregates_as_flower(FedAvg)
    assert aggregates_as_flower(FedMedian)
    assert aggregates_as_flower(Noting)
    assert not aggregates_as_flower(Unweighted)
    assert ContentCheck(Unweighted()).weight_key is None
    assert ContentCheck().weight_key is None


def test_replies_to_a_strategy_with_its_own_aggregation_are_not_checked():
    nodes = fleet(1.0, 1.0)
    for node in nodes.values():
        node.spoils = holding(metrics=None)
    selected, grid = federation(nodes, strategy=Unweighted(fraction_evaluate=0.0))
    result = start(selected, grid)
    assert np.allclose(result.arrays["w"].numpy(), 0.5)


def test_if_its_aggregation_fails_it_is_tried_without_outliers(caplog):
    nodes = fleet(1.0, 1.0, 1.0)
    nodes[103].spoils = holding(arrays=arrays(1.0, 2.0, 3.0))
    selected, grid = federation(nodes, cohort_size=3, strategy=Unweighted(fraction_evaluate=0.0))
    result = start(selected, grid)
    assert np.allclose(result.arrays["w"].numpy(), 0.5)
    assert "tried again without the replies of nodes 103" in caplog.text


def test_an_aggregation_that_fails_without_outliers_raises():
    class Broken(FedAvg):
        def aggregate_train(self, server_round, replies):
            raise RuntimeError("a bug")

    selected, grid = federation(fleet(1.0, 1.0), strategy=Broken(fraction_evaluate=0.0))
    with pytest.raises(RuntimeError, match="a bug"):
        start(selected, grid)


def test_trees_may_have_any_length():
    strategy = FedXgbBagging(fraction_evaluate=0.0)
    check = ContentCheck(strategy)
    replies = {}
    for k, n_bytes in enumerate((3, 4, 5)):
        message = Message(RecordDict(), dst_node_id=7, message_type="train")
        held = ArrayRecord({"0": Array(np.zeros(n_bytes, dtype=np.uint8))})
        content = RecordDict({"arrays": held, "metrics": MetricRecord({"num-examples": 1})})
        replies[k] = Message(content, reply_to=message)
    assert check.outliers(replies) == {}
    assert [check.fault(reply) for reply in replies.values()] == [None] * 3


# --- the disk -------------------------------------------------------------------------------------


def test_a_full_disk_costs_no_training(tmp_path, caplog):
    path = tmp_path / "scheduler.bsfl"

    class Full(Scheduler):
        free_after = 3

        def save(self, path, **options):
            if self.round < self.free_after:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().save(path, **options)

    scheduler = Full(UniformRandom(), cohort_size=2)
    selected, grid = federation(fleet(1.0, 1.0), scheduler=scheduler, state_path=path)
    caplog.clear()
    result = start(selected, grid, rounds=4)
    assert [len(r.kept) for r in selected.rounds] == [2] * 4
    assert np.allclose(result.arrays["w"].numpy(), 0.5)
    said = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(said) == 2, "once when it fails, once when it works again"
    assert "cannot be written" in said[0]
    assert "is written again" in said[1]
    assert Scheduler.load(path).round == 4
