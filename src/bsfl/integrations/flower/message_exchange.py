"""MessageExchange: training messages out, replies in, and the observation that each reply makes."""

import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from flwr.app import Message, MetricRecord
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.integrations.flower.content import MAX_SAMPLES, ContentCheck, number, records_of
from bsfl.types import LATENCY_RANGE, ClientId, Observation, Outcome

_LOG = logging.getLogger("flwr")

EXPIRED = {ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE}
"""Errors with which the SuperLink replies in place of a node whose message has expired."""

REPORTED_KEY = "duration-s"
"""Name of the metric in which a client reports how many seconds it worked."""

MAX_EXCESS = 1.1
"""A reported time above this factor times the round trip, plus a second, is no measuring error."""

Latency = Literal["round-trip", "reported"] | Callable[[ClientId, Message, float], float]
"""Where latencies come from; a function gets the client, its reply and the round trip."""

MAX_LOSS = 1e12
"""Largest loss that a client may report."""


def outcome_of(reply: Message) -> Outcome:
    """Return the outcome that a reply stands for."""
    if not reply.has_error():
        return "ok"
    return "timeout" if reply.error.code in EXPIRED else "failed"


def is_lost(reply: Message) -> bool:
    """Return whether a reply comes from the SuperLink, as the node was not reached."""
    return reply.has_error() and reply.error.code in EXPIRED | {ErrorCode.NODE_UNAVAILABLE}


def metric(
    reply: Message, key: str | None, low: float = -math.inf, high: float = math.inf
) -> float | None:
    """Return a metric of a reply; None: no key, no such metric, or no number in range."""
    if key is None:
        return None
    records = records_of(reply.content, MetricRecord).values()
    values = (number(record.get(key), low, high) for record in records)
    return next((value for value in values if value is not None), None)


def check_latency(source: Latency) -> Latency:
    """Return a latency source after checking that it is one."""
    if not callable(source):
        validation.one_of("latency", source, ("round-trip", "reported"))
    return source


class Timer(Protocol):
    """Measures how long replies took."""

    def latency(self, client: ClientId, reply: Message, round_trip_s: float) -> float:
        """Return seconds; raise InvalidInput where they are unknown."""


class Stopwatch:
    """Measures the latencies of replies on the server's clock.

    A latency that a client reports is clipped to the range between the fastest round trip so far
    and its own: no client is faster than that, and none worked longer than the server waited.
    """

    def __init__(self, source: Latency) -> None:
        self.source = source
        self.fastest_s = math.inf
        self._has_warned = False

    def latency(self, client: ClientId, reply: Message, round_trip_s: float) -> float:
        self.fastest_s = min(self.fastest_s, round_trip_s)
        if callable(self.source):
            return latency_from(self.source, client, reply, round_trip_s)
        if self.source == "round-trip":
            return round_trip_s
        reported = metric(reply, REPORTED_KEY)
        if reported is None:
            return round_trip_s
        if reported > MAX_EXCESS * round_trip_s + 1.0 and not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "bsfl: client %r reports %.1f s of work and has replied after %.1f s; a reported "
                "time is clipped to the round trip; if seconds are simulated, use "
                "latency=simulated(%r)",
                client,
                reported,
                round_trip_s,
                REPORTED_KEY,
            )
        return min(max(reported, self.fastest_s), round_trip_s)


def latency_from(
    function: Callable[[ClientId, Message, float], float],
    client: ClientId,
    reply: Message,
    round_trip_s: float,
) -> float:
    """Return the seconds of a custom function; raise InvalidInput if it fails."""
    try:
        seconds: Any = function(client, reply, round_trip_s)
        return validation.between(
            "latency", validation.positive("latency", seconds), *LATENCY_RANGE
        )
    except Exception as error:  # custom code, on data that a client reported
        reason = str(error) if isinstance(error, InvalidInput) else repr(error)
        raise InvalidInput(f"your latency function, for client {client!r}: {reason}") from None


@dataclass(slots=True, kw_only=True)
class MessageExchange:
    """Sends training messages and turns replies into observations.

    A reply is matched by the id of its message, not by its sender: for a node that is gone the
    SuperLink replies itself. Every reply, however malformed, makes an Observation.

    Attributes:
        grid: The federation.
        check: Checks the content of replies.
        timer: Measures how long replies took.
        samples_key: Metric with a client's number of samples; None: there is none.
        loss_key: Metric with a client's loss; None: there is none.
        needs_loss: Whether a reply without a loss cannot be used.
        node_of: The node of every message that is in flight.
    """

    grid: Grid
    check: ContentCheck
    timer: Timer
    samples_key: str | None = None
    loss_key: str | None = None
    needs_loss: bool = False
    node_of: dict[str, int] = field(default_factory=dict)

    def send(self, messages: list[Message], lifetime_s: float) -> dict[int, str]:
        """Send one message to each of some nodes; return the ids of those sent, by node."""
        for message in messages:
            message.metadata.ttl = lifetime_s
        pushed = set(self.grid.push_messages(messages))
        nodes = {m.metadata.message_id: m.metadata.dst_node_id for m in messages}
        sent = {token: node for token, node in nodes.items() if token in pushed}
        self.node_of |= sent
        return {node: token for token, node in sent.items()}

    def receive(self, tokens: Collection[str]) -> dict[str, Message]:
        """Return the replies to some messages by message id; of several replies, the first."""
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
        """Return the observation of a reply, and the reason if it counts as failed."""
        failed = Observation(latency_s=round_trip_s, outcome="failed")
        if reply.has_error():
            observation = Observation(latency_s=round_trip_s, outcome=outcome_of(reply))
            return observation, None if is_lost(reply) else reply.error.reason
        fault = self._fault(token, reply)
        if fault is not None:
            return failed, fault
        low = 0.0 if self.needs_loss else -MAX_LOSS
        loss = metric(reply, self.loss_key, low, MAX_LOSS)
        if loss is None and self.needs_loss:
            return failed, f"its {self.loss_key} is not a number from 0 to {MAX_LOSS:g}"
        n_samples = metric(reply, self.samples_key, 1, MAX_SAMPLES)
        try:
            latency_s = self.timer.latency(client, reply, round_trip_s)
            samples = None if n_samples is None else int(n_samples)
            return Observation(latency_s=latency_s, loss=loss, samples=samples), None
        except InvalidInput as error:
            return failed, str(error)

    def _fault(self, token: str, reply: Message) -> str | None:
        sender, node = reply.metadata.src_node_id, self.node_of[token]
        if sender != node:
            return f"node {sender} replied in place of node {node}"
        return self.check.fault(reply)
