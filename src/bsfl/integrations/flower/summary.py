"""What a run tells: each round or version, what each client did, and its latencies as a file."""

import csv
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from flwr.app import MetricRecord

from bsfl.rounds import ClosedRound
from bsfl.scheduling.clients import ClientId


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSummary(ClosedRound):
    """One training round.

    Attributes:
        server_round: Flower's number of the round.
        reasons: Why clients failed, of those that said so.
    """

    server_round: int
    reasons: dict[ClientId, str] = field(default_factory=dict)

    def metrics(self) -> MetricRecord:
        client = self.slowest
        return MetricRecord(
            {
                "bsfl-cohort": len(self.cohort),
                "bsfl-kept": len(self.kept),
                "bsfl-round-s": self.duration_s,
                "bsfl-slowest-s": self.duration_s if client is None else self.latencies[client],
                "bsfl-timeouts": len(self.timeouts),
                "bsfl-failed": len(self.failed),
                "bsfl-late": self.n_late,
                "bsfl-fleet-seen": self.n_seen / max(self.n_fleet, 1),
            }
        )

    def without(self, faults: Mapping[ClientId, str]) -> "RoundSummary":
        """Return the round as it was if these clients have failed after all."""
        return replace(
            self,
            kept=tuple(client for client in self.kept if client not in faults),
            failed=(*self.failed, *faults),
            reasons={**self.reasons, **faults},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSummary(RoundSummary):
    """One version of the model: what was heard since the one before.

    A client that is fast may be there more than once.

    Attributes:
        staleness: How many versions old the model was that each of the kept had trained on.
        n_busy: How many clients were at work when it was made.
    """

    staleness: tuple[int, ...] = ()
    n_busy: int = 0

    def metrics(self) -> MetricRecord:
        mean = sum(self.staleness) / len(self.staleness) if self.staleness else 0.0
        numbers = {"bsfl-staleness": mean, "bsfl-busy": self.n_busy}
        return MetricRecord({**RoundSummary.metrics(self), **numbers})


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
    """Write what became of every invitation, as `bsfl advise` reads it.

    Of a timeout the latency is what was waited, of a failure there is none.
    """
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("client", "latency_s", "outcome", "round"))
        for played in rounds:
            rows.writerows((k, s, "ok", played.t) for k, s in played.latencies.items())
            rows.writerows((k, played.duration_s, "timeout", played.t) for k in played.timeouts)
            rows.writerows((k, "", "failed", played.t) for k in played.failed)
