"""Replies that come twice, wrongly or absurdly: the others are aggregated, and it is counted."""

import math

import numpy as np
import pytest
from fake_federation import federation, train
from fake_grid import RAISED, FakeNode, fleet
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, FedMedian, FedXgbBagging

from bsfl.integrations.flower.content import ContentCheck, values

NAN, INF = math.nan, math.inf


def arrays(*numbers, name="w"):
    return ArrayRecord({name: Array(np.array(numbers))})


def holding(**records):
    """Return a function that replaces records of a reply, or removes those that are None."""

    def spoil(reply):
        content = {**reply.content, **records}
        reply.content = RecordDict({name: r for name, r in content.items() if r is not None})

    return spoil


def holding_changed(**attributes):
    """Return a function that changes the array in a reply."""
    record = arrays(0.0, 0.0)
    for name, value in attributes.items():
        setattr(record["w"], name, value)
    return holding(arrays=record)


def reporting(name, value):
    """Return a function that replaces a metric of a reply, or removes it if it is None."""

    def spoil(reply):
        reply.content["metrics"].pop(name, None)
        if value is not None:
            reply.content["metrics"][name] = value

    return spoil


def samples(n):
    return reporting("num-examples", n)


def from_another_node(reply):
    reply.metadata.__dict__["_src_node_id"] = 101


UNUSABLE = [
    (holding(arrays=None, metrics=None), "it has 0 ArrayRecords instead of one"),
    (holding(metrics=None), "it has 0 MetricRecords instead of one"),
    (holding(more=arrays(1.0)), "it has 2 ArrayRecords instead of one"),
    (holding(arrays=ConfigRecord({"a": 1})), "it has 0 ArrayRecords instead of one"),
    (holding(arrays=arrays(NAN, 1.0)), "array 'w' holds values that are not finite"),
    (holding(arrays=arrays(1.0, INF)), "array 'w' holds values that are not finite"),
    (holding_changed(shape=(3,)), "array 'w' has shape (2,) and claims (3,)"),
    (holding_changed(data=b"no array"), "array 'w' cannot be read"),
    (samples(0), "its num-examples is 0"),
    (samples(-5), "its num-examples is -5"),
    (samples(10**15), "its num-examples is 1000000000000000"),
    (samples(INF), "its num-examples is inf"),
    (samples(NAN), "its num-examples is nan"),
    (samples([1, 2]), "its num-examples is [1, 2]"),
    (samples(None), "its num-examples is None"),
    (from_another_node, "node 101 replied in place of node 1015"),
]


def test_an_unusable_reply_is_a_failure_with_a_reason(caplog):
    """Clients 0 and 2 are honest; the mean of their models is 1."""
    spoilt = {f"1{k}": case for k, case in enumerate(UNUSABLE)}
    nodes = {101: FakeNode("0"), 103: FakeNode("2")}
    nodes |= {1000 + k: FakeNode(f"1{k}", spoils=spoil) for k, (spoil, _) in enumerate(UNUSABLE)}
    run = train(nodes, rounds=2, cohort_size=len(nodes))
    for played in run.rounds:
        assert sorted(played.kept) == ["0", "2"]
        assert sorted(played.failed) == sorted(spoilt) == sorted(played.reasons)
        for client, (_, reason) in spoilt.items():
            assert played.reasons[client].startswith(reason)
            assert f"the reply of {client!r} is not used: {reason}" in caplog.text
            assert (client, "failed", 1.0) in run.scheduler.reported
    assert run.model == 1.0


UNLIKE = [
    holding(arrays=arrays(1.0, 2.0, 3.0)),
    holding(arrays=arrays(1.0, 2.0, name="v")),
    holding(arrays=arrays(1.0)),
    reporting("extra", 1.0),
    reporting("train_loss", None),
    holding(metrics=None, others=MetricRecord({"num-examples": 10, "train_loss": 0.5})),
]


@pytest.mark.parametrize("strategy", [FedAvg, FedMedian])
def test_a_reply_unlike_the_others_is_left_out(strategy):
    """No two of the others are alike: the usual reply is that of clients 0 and 1."""
    nodes = fleet(*[1.0] * (2 + len(UNLIKE)))
    for node, spoil in zip(list(nodes.values())[2:], UNLIKE, strict=True):
        node.spoils = spoil
    run = train(nodes, 2, cohort_size=len(nodes), strategy=strategy(fraction_evaluate=0.0))
    for played in run.rounds:
        assert sorted(played.kept) == ["0", "1"]
        assert sorted(played.failed) == sorted(played.reasons) == ["2", "3", "4", "5", "6", "7"]
        assert set(played.reasons.values()) == {"its records differ from those of the others"}
    assert run.model == 0.5


def test_without_a_usable_reply_the_model_stays_as_it_is():
    run = train(fleet(1.0, 1.0, spoils=holding(arrays=arrays(NAN, NAN))), rounds=2)
    assert [len(played.failed) for played in run.rounds] == [2, 2]
    assert not run.result.arrays


def test_a_reply_that_comes_twice_counts_once():
    run = train(fleet(1.0, 2.0, 3.0, repeats=2), rounds=2, cohort_size=3)
    assert [sorted(played.kept) for played in run.rounds] == [["0", "1", "2"]] * 2
    assert run.model == 1.0
    assert len(run.scheduler.reported) == 6


def test_replies_to_unknown_messages_are_ignored():
    run = federation(fleet(1.0, 1.0))
    pull = run.grid.pull_messages

    def with_unknown_replies(message_ids):
        message = Message(RecordDict(), dst_node_id=101, message_type="train")
        unknown = Message(Error(RAISED, "unknown"), reply_to=message)
        unknown.metadata.__dict__["_reply_to_message_id"] = "message-99"
        return [unknown, *pull(message_ids)]

    run.grid.pull_messages = with_unknown_replies
    assert [len(played.kept) for played in run.start(2).rounds] == [2, 2]


# --- strategies with an aggregation of their own --------------------------------------------------


class Unweighted(FedAvg):
    """The mean of all models, whatever else replies hold."""

    def aggregate_train(self, server_round, replies):
        models = [r.content["arrays"]["w"].numpy() for r in replies if r.has_content()]
        return ArrayRecord({"w": Array(np.mean(np.stack(models), axis=0))}), None


class Noting(FedAvg):
    """Aggregates as Flower does, in the end."""

    def aggregate_train(self, server_round, replies):
        return super().aggregate_train(server_round, list(replies))


class Broken(FedAvg):
    def aggregate_train(self, server_round, replies):
        raise RuntimeError("a bug")


@pytest.mark.parametrize(("strategy", "n_kept"), [(Noting, 0), (Unweighted, 2)])
def test_replies_are_checked_for_strategies_that_aggregate_as_flower_does(strategy, n_kept):
    nodes = fleet(1.0, 1.0, spoils=holding(metrics=None))
    run = train(nodes, strategy=strategy(fraction_evaluate=0.0))
    assert len(run.rounds[0].kept) == n_kept
    assert bool(run.result.arrays) == bool(n_kept)


def test_if_its_aggregation_fails_it_is_tried_without_outliers(caplog):
    nodes = fleet(1.0, 1.0, 1.0)
    nodes[103].spoils = holding(arrays=arrays(1.0, 2.0, 3.0))
    run = train(nodes, cohort_size=3, strategy=Unweighted(fraction_evaluate=0.0))
    assert run.model == 0.5
    assert "tried again without the replies of nodes 103" in caplog.text
    with pytest.raises(RuntimeError, match="a bug"):  # no reply is an outlier
        train(fleet(1.0, 1.0), strategy=Broken(fraction_evaluate=0.0))


def test_trees_may_have_any_length():
    check, replies = ContentCheck(FedXgbBagging(fraction_evaluate=0.0)), {}
    for n_bytes in (3, 4, 5):
        tree = ArrayRecord({"0": Array(np.zeros(n_bytes, dtype=np.uint8))})
        content = RecordDict({"arrays": tree, "metrics": MetricRecord({"num-examples": 1})})
        message = Message(RecordDict(), dst_node_id=7, message_type="train")
        replies[n_bytes] = Message(content, reply_to=message)
    assert check.outliers(replies) == {}
    assert [check.fault(reply) for reply in replies.values()] == [None] * 3


# --- arrays that are read without copies ----------------------------------------------------------


@pytest.mark.parametrize(
    "numbers",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(3, dtype=np.int8),
        np.zeros((0, 4)),
        np.array([1.0, np.nan], dtype=">f4"),
        np.array(["a", "bc"]),
    ],
)
def test_values_are_those_of_numpy(numbers):
    shape, found = values(Array(numbers))
    assert (shape, found.dtype) == (numbers.shape, numbers.dtype)
    np.testing.assert_array_equal(np.sort(found, axis=None), np.sort(numbers, axis=None))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data[:9],
        lambda data: b"",
        lambda data: data.replace(b"<f8", b"|O8"),
        lambda data: data.replace(b"(6,)", b"(-6,"),
        lambda data: data.replace(b"(6,)", b"(9,)"),
        lambda data: data[:8] + b"\xff\xff" + data[10:],
    ],
)
def test_what_numpy_rejects_is_rejected(change):
    array = Array(np.arange(6.0))
    array.data = change(array.data)
    with pytest.raises(Exception) as by_numpy:  # noqa: PT011
        array.numpy()
    with pytest.raises(by_numpy.type):
        values(array)


def test_other_kinds_of_arrays_are_rejected():
    array = Array(np.arange(6.0))
    array.stype = "tensor"
    with pytest.raises(TypeError):
        values(array)
