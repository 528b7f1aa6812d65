"""Simulated seconds: how long a client would have taken, on a clock that nobody has to wait for."""

import csv
import math
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Message

from bsfl import checks
from bsfl.errors import InvalidInput, reason
from bsfl.integrations.flower.wire import REPORTED_KEY, metric
from bsfl.randomness import stream
from bsfl.records import LATENCY_RANGE
from bsfl.scheduling.clients import ClientId

Fleet = Mapping[str, Sequence[float]]
Seconds = Callable[[ClientId, Message, int], float]
"""Returns how long a client took, given its reply and how often it had trained before."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """Where simulated seconds come from; made by `simulated`.

    Attributes:
        seconds: Returns them.
        patience_s: Seconds of real time after which a client that has not answered never will.
    """

    seconds: Seconds
    patience_s: float

    def of(self, client: ClientId, reply: Message, n_before: int) -> float:
        """Return the seconds of a reply, infinity for one that never comes."""
        try:
            seconds = self.seconds(client, reply, n_before)
            if seconds == math.inf:
                return math.inf
            return checks.between("seconds", checks.positive("seconds", seconds), *LATENCY_RANGE)
        except Exception as error:  # somebody else's code, about what a client says
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
    metrics are all in simulated seconds, whatever the machine takes.

    Args:
        source: The name of a metric in which clients report their seconds; a function of the client
            and its reply that returns them, infinity for a client that never answers; or a recorded
            fleet: latencies by client, or the path of a CSV with columns client and latency_s, of
            which each answer draws one. A client that was not recorded is like one that was.
        seed: Of these draws.
        patience_s: Seconds of real time to wait for the answers of a round.
    """
    checks.positive("patience_s", patience_s)
    checks.natural("seed", seed, low=0)
    if isinstance(source, str):
        key = source
        return Simulated(lambda client, reply, _: _reported(reply, key), patience_s)
    if callable(source):
        function = source
        return Simulated(lambda client, reply, _: function(client, reply), patience_s)
    recorded = read_fleet(Path(source)) if isinstance(source, os.PathLike) else _fleet(source)
    return Simulated(lambda client, _, n: _drawn(recorded, client, n, seed), patience_s)


def _reported(reply: Message, key: str) -> float:
    seconds = metric(reply, key)
    if seconds is None:
        raise InvalidInput(f"it does not report the metric {key!r} as a number")
    return seconds


def _drawn(recorded: Fleet, client: ClientId, n_before: int, seed: int) -> float:
    """Return one of a client's recorded latencies; which one depends on its name alone."""
    name = str(client)
    code = zlib.crc32(name.encode("utf-8", "surrogatepass"))
    if name not in recorded:
        everybody = list(recorded)
        name = everybody[int(stream(seed, "recorded", code).integers(len(everybody)))]
    of_its = recorded[name]
    return float(of_its[int(stream(seed, "latency", code, n_before).integers(len(of_its)))])


def _fleet(source: Any) -> Fleet:
    """Return latencies by the names of clients after checking them."""
    if not isinstance(source, Mapping) or not source:
        raise InvalidInput(
            "simulated must get a metric, a function, latencies by client or the path of a CSV, "
            f"got {source!r}"
        )
    recorded: dict[str, list[float]] = {}
    for client, latencies in source.items():
        listed = list(latencies) if isinstance(latencies, Sequence) else [latencies]
        if not listed:
            raise InvalidInput(f"client {client!r} must have at least one latency")
        for seconds in listed:
            checks.between(f"latency of client {client!r}", seconds, *LATENCY_RANGE)
        recorded[str(client)] = listed
    return recorded


def read_fleet(path: Path) -> Fleet:
    """Return the latencies of a CSV, as `write_latencies` writes it."""
    recorded: dict[str, list[float]] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for number, row in enumerate(csv.DictReader(file), 2):
                if row.get("outcome") in ("timeout", "failed"):
                    continue
                try:
                    recorded.setdefault(row["client"], []).append(float(row["latency_s"]))
                except (KeyError, TypeError, ValueError):
                    raise InvalidInput(
                        f"{path}, line {number}: a row must have a client and its latency_s"
                    ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path} cannot be read: {reason(error)}") from None
    if not recorded:
        raise InvalidInput(f"{path} holds no latencies")
    return _fleet(recorded)
