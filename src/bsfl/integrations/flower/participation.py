"""What each client has done in a run, and its latencies as a file."""

import csv
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bsfl.clients import ClientId
from bsfl.rounds import ClosedRound


@dataclass(slots=True, kw_only=True)
class Participation:
    """One client's part in the rounds so far.

    Attributes:
        n_invited: In how many rounds it was invited.
        n_kept: How many of its answers entered the model.
        n_timeouts: How often it missed the deadline.
        n_failed: How often it failed.
        latencies_s: Seconds of its answers that came during their rounds.
    """

    n_invited: int = 0
    n_kept: int = 0
    n_timeouts: int = 0
    n_failed: int = 0
    latencies_s: list[float] = field(default_factory=list)

    @property
    def mean_s(self) -> float | None:
        """Mean latency in seconds; None if it never answered in time."""
        return sum(self.latencies_s) / len(self.latencies_s) if self.latencies_s else None


def participation(rounds: Iterable[ClosedRound]) -> dict[ClientId, Participation]:
    """Return what each client did in some rounds, in the order in which they were first invited."""
    clients: dict[ClientId, Participation] = {}
    for played in rounds:
        for client in played.cohort:
            clients.setdefault(client, Participation()).n_invited += 1
        for client in played.kept:
            clients[client].n_kept += 1
        for client in played.timeouts:
            clients[client].n_timeouts += 1
        for client in played.failed:
            clients[client].n_failed += 1
        for client, latency_s in played.latencies.items():
            clients[client].latencies_s.append(latency_s)
    return clients


def write_latencies(path: str | os.PathLike[str], rounds: Iterable[ClosedRound]) -> None:
    """Write every latency that was measured, as `bsfl tune --latencies` reads them."""
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("client", "latency_s"))
        for played in rounds:
            rows.writerows(played.latencies.items())
