"""What a reply tells, whoever sent it: numbers that are checked, not believed."""

import logging
import math
from collections.abc import Callable
from typing import Any, Literal, Protocol

from flwr.app import Message, MetricRecord
from flwr.common.constant import ErrorCode

from bsfl import checks
from bsfl.clients import ClientId
from bsfl.errors import InvalidInput
from bsfl.integrations.flower.content import held, number
from bsfl.records import LATENCY_RANGE, Outcome

_LOG = logging.getLogger("flwr")

EXPIRED = {ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE}
"""Errors with which the SuperLink answers for a client whose time is over."""

REPORTED_KEY = "duration-s"
"""Name of the metric in which a client reports how many seconds it worked."""

CERTAINLY_MORE = 1.1
"""A report that exceeds the round trip by this factor, and a second, is no error of measurement."""

Latency = Literal["round-trip", "reported"] | Callable[[ClientId, Message, float], float]
"""Where latencies come from; a function gets the client, its reply and the round trip."""


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
