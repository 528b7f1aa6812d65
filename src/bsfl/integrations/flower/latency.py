"""How long a client took: numbers that are checked, not believed."""

import math
from collections.abc import Callable
from typing import Any, Literal

from flwr.app import Message

from bsfl import checks
from bsfl.clients import ClientId
from bsfl.errors import InvalidInput
from bsfl.integrations.flower.replies import metric
from bsfl.records import LATENCY_RANGE

REPORTED_KEY = "duration-s"
"""Name of the metric in which a client reports how many seconds it worked."""

Latency = Literal["round-trip", "reported"] | Callable[[ClientId, Message, float], float]
"""Where latencies come from; a function gets the client, its reply and the round trip."""


def check_latency(source: Latency) -> Latency:
    """Return a latency source after checking that it is one."""
    if not callable(source):
        checks.one_of("latency", source, ("round-trip", "reported"))
    return source


class Stopwatch:
    """Turns replies into latencies.

    The round trip is measured here. What a client reports is believed only between the fastest
    round trip that was ever measured and its own: nobody is faster than that, and nobody worked
    longer than the server waited.
    """

    def __init__(self, source: Latency) -> None:
        self.source = source
        self.fastest_s = math.inf

    def latency(self, client: ClientId, reply: Message, round_trip_s: float) -> float:
        self.fastest_s = min(self.fastest_s, round_trip_s)
        if callable(self.source):
            return _checked(client, self.source(client, reply, round_trip_s))
        if self.source == "round-trip":
            return round_trip_s
        reported = metric(reply, REPORTED_KEY)
        if reported is None:
            return round_trip_s
        return min(max(reported, self.fastest_s), round_trip_s)


def _checked(client: ClientId, seconds: Any) -> float:
    try:
        return checks.between("latency", checks.positive("latency", seconds), *LATENCY_RANGE)
    except InvalidInput as error:
        raise InvalidInput(f"your latency function, for client {client!r}: {error}") from None
