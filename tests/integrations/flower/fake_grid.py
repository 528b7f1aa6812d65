"""A federation without processes: nodes with given latencies, on a fake clock."""

from dataclasses import dataclass, field

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.app.message import make_message
from flwr.app.metadata import Metadata
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

SUPERLINK = 1
RAISED, EXPIRED, GONE = 2, 3, 5


@dataclass
class FakeNode:
    """One SuperNode; `takes` is its latency in seconds, or an iterator of them, None: no reply.

    `reports` is a config record of its training replies; it evaluates for `evaluates` seconds and
    replies to a query after `query_s`. `spoils` changes its reply before it is sent, `repeats` times. The SuperLink knows whether it was
    registered under its name, when, and its public key.
    """

    name: str
    takes: object = 1.0
    evaluates: float | None = 1.0
    fails: int | None = None
    handles_queries: bool = True
    query_s: float = 0.5
    metrics: dict = field(default_factory=dict)
    reports: dict = field(default_factory=dict)
    spoils: object = None
    repeats: int = 1
    is_registered: bool = True
    registered_at: str = ""
    public_key: bytes = b""

    def latency(self):
        return next(self.takes) if hasattr(self.takes, "__next__") else self.takes


class FakeGrid(Grid):
    """Nodes by id; replies come once the clock has reached their time."""

    def __init__(self, nodes, clock):
        self.nodes, self.clock = dict(nodes), clock
        self.online = set(self.nodes)
        self.on_the_way = {}  # message id -> (arrival, reply)
        self.ttls, self.queries, self.evaluated, self.refused = [], [], [], set()
        self.sent = []

    run = "the run"

    def set_run(self, run):
        raise NotImplementedError

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self):
        return sorted(self.online)

    def get_nodes(self):
        return [
            NodeInfo(
                node_id=node_id,
                name=node.name if node.is_registered else None,
                registered_at=node.registered_at,
                public_key=node.public_key,
            )
            for node_id, node in ((n, self.nodes[n]) for n in self.get_node_ids())
        ]

    def push_messages(self, messages):
        ids = []
        for message in messages:
            metadata = message.metadata
            metadata.__dict__["_message_id"] = f"message-{len(self.sent)}"
            self.sent.append(metadata.dst_node_id)
            if metadata.dst_node_id in self.refused:
                continue
            ids.append(metadata.message_id)
            node = self.nodes[metadata.dst_node_id]
            if metadata.message_type == "query":
                self._query(node, message)
            elif metadata.message_type == "evaluate":
                self._evaluate(node, message)
            else:
                self._train(node, message)
        return ids

    def _query(self, node, message):
        self.queries.append(node.name)
        config = ConfigRecord({"partition-id": int(node.name)})
        if node.handles_queries:
            reply = Message(RecordDict({"node-config": config}), reply_to=message)
        else:
            reply = Message(Error(RAISED, "No query function registered"), reply_to=message)
        self._reply(message, reply, node.query_s)

    def _evaluate(self, node, message):
        self.evaluated.append(message.metadata.dst_node_id)
        metrics = MetricRecord({"num-examples": 10, "accuracy": float(node.name)})
        reply = Message(RecordDict({"metrics": metrics}), reply_to=message)
        if node.spoils is not None:
            reply = node.spoils(reply) or reply
        seconds = message.metadata.ttl if node.evaluates is None else node.evaluates
        self._reply(message, reply, seconds)

    def _train(self, node, message):
        self.ttls.append(message.metadata.ttl)
        seconds = node.latency()
        expiry = (self.clock.now + message.metadata.ttl, self._from_superlink(message, EXPIRED))
        self.on_the_way[message.metadata.message_id] = expiry
        if seconds is None or seconds >= message.metadata.ttl:
            return
        if node.fails == GONE:
            reply = self._from_superlink(message, GONE)
        elif node.fails is not None:
            reply = Message(Error(node.fails, "training failed"), reply_to=message)
        else:
            metrics = MetricRecord({"num-examples": 10, "train_loss": 0.5, **node.metrics})
            arrays = ArrayRecord({"w": Array(np.full(2, float(node.name)))})
            content = RecordDict({"arrays": arrays, "metrics": metrics})
            if node.reports:
                content["node-config"] = ConfigRecord(node.reports)
            reply = Message(content, reply_to=message)
        if node.spoils is not None:
            reply = node.spoils(reply) or reply
        self._reply(message, reply, seconds)

    def _reply(self, message, reply, seconds):
        self.on_the_way[message.metadata.message_id] = (self.clock.now + seconds, reply)

    def _from_superlink(self, message, code):
        metadata = Metadata(
            run_id=0,
            message_id="",
            src_node_id=SUPERLINK,
            dst_node_id=SUPERLINK,
            reply_to_message_id=message.metadata.message_id,
            group_id="",
            message_type="train",
            created_at=0.0,
            ttl=0.0,
        )
        return make_message(metadata=metadata, error=Error(code, "from the SuperLink"))

    def pull_messages(self, message_ids):
        replies = []
        for message_id in message_ids:
            arrival, reply = self.on_the_way[message_id]
            if arrival <= self.clock.now:
                reply.metadata.__dict__["_reply_to_message_id"] = message_id
                sender = self.nodes.get(reply.metadata.src_node_id)
                replies += [reply] * (sender.repeats if sender else 1)
                del self.on_the_way[message_id]
        return replies

    def send_and_receive(self, messages, *, timeout=None):
        """What a strategy sends without bsfl: all nodes have replied after ten seconds."""
        ids = self.push_messages(list(messages))
        self.clock.now += 10.0
        return self.pull_messages(ids)


class Adding(FakeGrid):
    """Every client adds its own number to the model that it was sent."""

    def _train(self, node, message):
        super()._train(node, message)
        _, reply = self.on_the_way[message.metadata.message_id]
        if reply.has_content() and "arrays" in reply.content and node.spoils is None:
            sent = next(iter(message.content.array_records.values()))["w"].numpy()
            reply.content["arrays"] = ArrayRecord({"w": Array(sent + float(node.name))})


def fleet(*takes, **settings):
    """Return nodes 101, 102, ... with partition ids 0, 1, ..."""
    return {
        101 + k: FakeNode(name=str(k), takes=seconds, **settings) for k, seconds in enumerate(takes)
    }
