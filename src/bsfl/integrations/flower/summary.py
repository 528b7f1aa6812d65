"""Summaries of a run: of each round or version, of each client, and all latencies as a file."""

import csv
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from flwr.app import MetricRecord

from bsfl.rounds import RoundResult
from bsfl.types import ClientId


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSummary(RoundResult):
    """One training round.

    Attributes:
        server_round: Flower's number of the round.
        reasons: Why clients failed, where it is known.
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
                "bsfl-clients-seen": self.n_seen / max(self.n_clients, 1),
            }
        )

    def without(self, faults: Mapping[ClientId, str]) -> "RoundSummary":
        """Return the summary with these clients counted as failed instead of kept."""
        return replace(
            self,
            kept=tuple(client for client in self.kept if client not in faults),
            failed=(*self.failed, *faults),
            reasons={**self.reasons, **faults},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSummary(RoundSummary):
    """One version of the model: what was received since the previous one.

    A fast client may be listed more than once.

    Attributes:
        staleness: How many versions old the model was that each kept client had trained on.
        n_busy: How many clients were training when the version was made.
    """

    staleness: tuple[int, ...] = ()
    n_busy: int = 0

    def metrics(self) -> MetricRecord:
        mean = sum(self.staleness) / len(self.staleness) if self.staleness else 0.0
        numbers = {"bsfl-staleness": mean, "bsfl-busy": self.n_busy}
        return MetricRecord({**RoundSummary.metrics(self), **numbers})


@dataclass(slots=True, kw_only=True)
class Participation:
    """What one client did in the rounds so far.

    Attributes:
        n_invited: To how many rounds it was invited.
        n_kept: How many of its replies entered the model.
        n_timeouts: How often it missed the deadline.
        n_failed: How often it failed.
        latencies_s: Seconds of its replies that came during their rounds.
    """

    n_invited: int = 0
    n_kept: int = 0
    n_timeouts: int = 0
    n_failed: int = 0
    latencies_s: list[float] = field(default_factory=list)

    @property
    def mean_s(self) -> float | None:
        """Mean latency in seconds; None if it never replied in time."""
        return sum(self.latencies_s) / len(self.latencies_s) if self.latencies_s else None


def participation(rounds: Iterable[RoundResult]) -> dict[ClientId, Participation]:
    """Return what each client did in some rounds, in the order of first invitations."""
    clients: dict[ClientId, Participation] = {}
    for summary in rounds:
        for client in summary.cohort:
            clients.setdefault(client, Participation()).n_invited += 1
        for client in summary.kept:
            clients[client].n_kept += 1
        for client in summary.timeouts:
            clients[client].n_timeouts += 1
        for client in summary.failed:
            clients[client].n_failed += 1
        for client, latency_s in summary.latencies.items():
            clients[client].latencies_s.append(latency_s)
    return clients


def write_latencies(path: str | os.PathLike[str], rounds: Iterable[RoundResult]) -> None:
    """Write the result of every invitation, as `bsfl advise` reads it.

    The latency of a timeout is the time that was waited; a failure has none.
    """
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("client", "latency_s", "outcome", "round"))
        for summary in rounds:
            number, waited_s = summary.round, summary.duration_s
            rows.writerows((k, s, "ok", number) for k, s in summary.latencies.items())
            rows.writerows((k, waited_s, "timeout", number) for k in summary.timeouts)
            rows.writerows((k, "", "failed", number) for k in summary.failed)
