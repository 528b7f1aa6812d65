"""Training messages out, replies in, and what each reply shows of its client."""

import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from flwr.app import Message, MetricRecord
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.integrations.flower.content import MOST_SAMPLES, ContentCheck, held, number
from bsfl.records import LATENCY_RANGE, Observation, Outcome
from bsfl.scheduling.clients import ClientId

_LOG = logging.getLogger("flwr")

EXPIRED = {ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE}
"""Errors with which the SuperLink answers for a client whose time is over."""

REPORTED_KEY = "duration-s"
"""Name of the metric in which a client reports how many seconds it worked."""

CERTAINLY_MORE = 1.1
"""A report that exceeds the round trip by this factor, and a second, is no error of measurement."""

Latency = Literal["round-trip", "reported"] | Callable[[ClientId, Message, float], float]
"""Where latencies come from; a function gets the client, its reply and the round trip."""

MOST_LOSS = 1e12
"""A loss beyond is not believed."""


def outcome_of(reply: Message) -> Outcome:
    """Return what a reply means: the client trained, its time is over, or it failed."""
    if not reply.has_error():
        return "ok"
    return "timeout" if reply.error.code in EXPIRED else "failed"


def is_lost(reply: Message) -> bool:
    """Return whether a reply comes from the SuperLink: the client itself was not reached."""
    return reply.has_error() and reply.error.code in EXPIRED | {ErrorCode.NODE_UNAVAILABLE}


def metric(
    reply: Message, key: str | None, low: float = -math.inf, high: float = math.inf
) -> float | None:
    """Return a metric of a reply if one is wanted, is there, and is a number within limits."""
    if key is None:
        return None
    records = held(reply.content, MetricRecord).values()
    found = (number(record.get(key), low, high) for record in records)
    return next((value for value in found if value is not None), None)


def check_latency(source: Latency) -> Latency:
    """Return a latency source after checking that it is one."""
    if not callable(source):
        checks.one_of("latency", source, ("round-trip", "reported"))
    return source


class Timer(Protocol):
    """Anything that tells how long a reply took."""

    def latency(self, client: ClientId, reply: Message, round_trip_s: float) -> float:
        """Return seconds; raise InvalidInput where nobody knows."""


class Stopwatch:
    """Turns replies into latencies.

    The round trip is measured here. What a client reports is believed only between the fastest
    round trip that was ever measured and its own: nobody is faster than that, and nobody worked
    longer than the server waited.
    """

    def __init__(self, source: Latency) -> None:
        self.source = source
        self.fastest_s = math.inf
        self._has_warned = False

    def latency(self, client: ClientId, reply: Message, round_trip_s: float) -> float:
        self.fastest_s = min(self.fastest_s, round_trip_s)
        if callable(self.source):
            return called(self.source, client, reply, round_trip_s)
        if self.source == "round-trip":
            return round_trip_s
        reported = metric(reply, REPORTED_KEY)
        if reported is None:
            return round_trip_s
        if reported > CERTAINLY_MORE * round_trip_s + 1.0 and not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "bsfl: client %r reports %.1f s of work and has answered after %.1f s, which is "
                "taken instead, as for all who report more than that; if seconds are simulated, "
                "use latency=simulated(%r)",
                client,
                reported,
                round_trip_s,
                REPORTED_KEY,
            )
        return min(max(reported, self.fastest_s), round_trip_s)


def called(
    function: Callable[[ClientId, Message, float], float],
    client: ClientId,
    reply: Message,
    round_trip_s: float,
) -> float:
    """Return the seconds that a user's function tells; whatever goes wrong is an InvalidInput."""
    try:
        seconds: Any = function(client, reply, round_trip_s)
        return checks.between("latency", checks.positive("latency", seconds), *LATENCY_RANGE)
    except Exception as error:  # somebody else's code, about what a client says
        reason = str(error) if isinstance(error, InvalidInput) else repr(error)
        raise InvalidInput(f"your latency function, for client {client!r}: {reason}") from None


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
