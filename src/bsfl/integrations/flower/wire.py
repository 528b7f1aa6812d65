"""Training messages out, replies in, and what each reply shows of its client."""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from bsfl.clients import ClientId
from bsfl.errors import InvalidInput
from bsfl.integrations.flower.content import MOST_SAMPLES, ContentCheck
from bsfl.integrations.flower.replies import Timer, is_lost, metric, outcome_of
from bsfl.records import Observation

MOST_LOSS = 1e12
"""A loss beyond is not believed."""

_LOG = logging.getLogger("flwr")


@dataclass(slots=True, kw_only=True)
class Wire:
    """Carries messages and judges replies.

    Replies are matched by the message they answer. Their sender cannot be relied on: the SuperLink
    itself answers for clients that are gone. Whatever a reply says, an Observation comes of it.

    Attributes:
        grid: The federation.
        check: What a reply must hold.
        stopwatch: Turns replies into latencies.
        samples_key: Metric with a client's number of samples, None if there is none.
        loss_key: Metric with a client's loss, None if there is none.
        needs_loss: Whether an answer without a loss is of no use.
        node_of: The nodes of the messages that are on their way.
    """

    grid: Grid
    check: ContentCheck
    stopwatch: Timer
    samples_key: str | None = None
    loss_key: str | None = None
    needs_loss: bool = False
    node_of: dict[str, int] = field(default_factory=dict)

    def send(self, messages: list[Message], lifetime_s: float) -> dict[int, str]:
        """Send one message to each of some nodes; return the ids of those that went out."""
        for message in messages:
            message.metadata.ttl = lifetime_s
        went_out = set(self.grid.push_messages(messages))
        nodes = {m.metadata.message_id: m.metadata.dst_node_id for m in messages}
        sent = {token: node for token, node in nodes.items() if token in went_out}
        self.node_of |= sent
        return {node: token for token, node in sent.items()}

    def receive(self, tokens: Collection[str]) -> dict[str, Message]:
        """Return the replies that came to some messages; of several to one, the first."""
        self.node_of = {token: self.node_of[token] for token in tokens}
        replies: dict[str, Message] = {}
        for reply in self.grid.pull_messages(list(tokens)) if tokens else ():
            token = reply.metadata.reply_to_message_id
            if token in self.node_of:
                replies.setdefault(token, reply)
        return replies

    def observation(
        self, client: ClientId, token: str, reply: Message, round_trip_s: float
    ) -> tuple[Observation, str | None]:
        """Return what a reply shows of its client, and why it failed, if it did."""
        failed = Observation(latency=round_trip_s, outcome="failed")
        if reply.has_error():
            seen = Observation(latency=round_trip_s, outcome=outcome_of(reply))
            return seen, None if is_lost(reply) else reply.error.reason
        fault = self._fault(token, reply)
        if fault is not None:
            return failed, fault
        low = 0.0 if self.needs_loss else -MOST_LOSS
        loss = metric(reply, self.loss_key, low, MOST_LOSS)
        if loss is None and self.needs_loss:
            return failed, f"its {self.loss_key} is not a number from 0 to {MOST_LOSS:g}"
        n_samples = metric(reply, self.samples_key, 1, MOST_SAMPLES)
        try:
            latency_s = self.stopwatch.latency(client, reply, round_trip_s)
            samples = None if n_samples is None else int(n_samples)
            return Observation(latency=latency_s, loss=loss, samples=samples), None
        except InvalidInput as error:
            return failed, str(error)

    def _fault(self, token: str, reply: Message) -> str | None:
        sender, node = reply.metadata.src_node_id, self.node_of[token]
        if sender != node:
            return f"node {sender} answered in place of node {node}"
        return self.check.fault(reply)
