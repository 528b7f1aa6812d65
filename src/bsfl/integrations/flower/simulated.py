"""Simulated latencies: how long clients would have taken, on a virtual clock."""

import csv
import math
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Message

from bsfl import validation
from bsfl.errors import InvalidInput, reason
from bsfl.integrations.flower.message_exchange import REPORTED_KEY, metric
from bsfl.random import stream
from bsfl.types import LATENCY_RANGE, ClientId

Recording = Mapping[str, Sequence[float]]
"""Recorded latencies by client."""
Seconds = Callable[[ClientId, Message, int], float]
"""Returns how long a client took, given its reply and how often it had trained before."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """A source of simulated latencies; made by `simulated`.

    Attributes:
        seconds: Returns the latency of a client.
        patience_s: Seconds of real time after which a client without a reply is unresponsive.
    """

    seconds: Seconds
    patience_s: float

    def of(self, client: ClientId, reply: Message, n_before: int) -> float:
        """Return the seconds until a reply arrives; infinite if it never does."""
        try:
            seconds = self.seconds(client, reply, n_before)
            if seconds == math.inf:
                return math.inf
            return validation.between(
                "seconds", validation.positive("seconds", seconds), *LATENCY_RANGE
            )
        except Exception as error:  # custom code, on data that a client reported
            reason = str(error) if isinstance(error, InvalidInput) else repr(error)
            raise InvalidInput(f"simulated seconds of client {client!r}: {reason}") from None


def simulated(
    source: str
    | os.PathLike[str]
    | Callable[[ClientId, Message], float]
    | Mapping[str, float | Sequence[float]] = REPORTED_KEY,
    *,
    seed: int = 0,
    patience_s: float = 3600.0,
) -> Simulated:
    """Return a source of latencies for simulations: `Selected(..., latency=simulated(...))`.

    Rounds then run on a virtual clock. Deadlines, invitations, stragglers and the times in log and
    metrics are all in simulated seconds, no matter how long the machine takes.

    Args:
        source: The name of a metric in which clients report their seconds; a function of the client
            and its reply that returns them, infinity for a client that never replies; or recorded
            latencies by client, or the path of a CSV with columns client and latency_s: for each
            reply one of them is drawn. A client that was not recorded gets those of another one.
        seed: Seed of these draws.
        patience_s: Seconds of real time to wait for the replies of a round.
    """
    validation.positive("patience_s", patience_s)
    validation.natural("seed", seed, low=0)
    if isinstance(source, str):
        key = source
        return Simulated(lambda client, reply, _: _reported(reply, key), patience_s)
    if callable(source):
        function = source
        return Simulated(lambda client, reply, _: function(client, reply), patience_s)
    recording = (
        read_latencies(Path(source)) if isinstance(source, os.PathLike) else _checked(source)
    )
    return Simulated(lambda client, _, n: _draw(recording, client, n, seed), patience_s)


def _reported(reply: Message, key: str) -> float:
    seconds = metric(reply, key)
    if seconds is None:
        raise InvalidInput(f"it does not report the metric {key!r} as a number")
    return seconds


def _draw(recording: Recording, client: ClientId, n_before: int, seed: int) -> float:
    """Return one of a client's recorded latencies; the draw depends on its name alone."""
    name = str(client)
    code = zlib.crc32(name.encode("utf-8", "surrogatepass"))
    if name not in recording:
        clients = list(recording)
        name = clients[int(stream(seed, "recorded", code).integers(len(clients)))]
    latencies = recording[name]
    return float(latencies[int(stream(seed, "latency", code, n_before).integers(len(latencies)))])


def _checked(source: Any) -> Recording:
    """Return latencies by client after checking them."""
    if not isinstance(source, Mapping) or not source:
        raise InvalidInput(
            "simulated must get a metric, a function, latencies by client or the path of a CSV, "
            f"got {source!r}"
        )
    recording: dict[str, list[float]] = {}
    for client, latencies in source.items():
        listed = list(latencies) if isinstance(latencies, Sequence) else [latencies]
        if not listed:
            raise InvalidInput(f"client {client!r} must have at least one latency")
        for seconds in listed:
            validation.between(f"latency of client {client!r}", seconds, *LATENCY_RANGE)
        recording[str(client)] = listed
    return recording


def read_latencies(path: Path) -> Recording:
    """Return the latencies of a CSV, as `write_latencies` writes it."""
    recording: dict[str, list[float]] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for number, row in enumerate(csv.DictReader(file), 2):
                if row.get("outcome") in ("timeout", "failed"):
                    continue
                try:
                    recording.setdefault(row["client"], []).append(float(row["latency_s"]))
                except (KeyError, TypeError, ValueError):
                    raise InvalidInput(
                        f"{path}, line {number}: a row must have a client and its latency_s"
                    ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path} cannot be read: {reason(error)}") from None
    if not recording:
        raise InvalidInput(f"{path} holds no latencies")
    return _checked(recording)
