"""What one round was like: a line in the log, numbers in the run's history."""

from dataclasses import dataclass

from flwr.app import MetricRecord

from bsfl.clients import ClientId


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSummary:
    """One training round.

    Attributes:
        server_round: Flower's number of the round.
        cohort: The clients that were invited.
        kept: Those whose work was aggregated.
        timeouts: Those that missed the deadline.
        failed: Those that answered with an error.
        latencies: Seconds each client took whose answer came during the round.
        duration_s: Seconds from the first message sent to the end of the round.
        n_late: How many answers to earlier rounds came in since the round before ended.
        n_seen: How many clients have answered since the server was started.
        n_fleet: How many clients there are.
    """

    server_round: int
    cohort: tuple[ClientId, ...]
    kept: tuple[ClientId, ...]
    timeouts: tuple[ClientId, ...]
    failed: tuple[ClientId, ...]
    latencies: dict[ClientId, float]
    duration_s: float
    n_late: int
    n_seen: int
    n_fleet: int

    @property
    def slowest(self) -> ClientId | None:
        """The client that took longest of those that answered, if any did."""
        return max(self.latencies, key=self.latencies.__getitem__, default=None)

    def line(self) -> str:
        """Return the round in one line."""
        who = self.slowest
        slowest = "nobody answered"
        if who is not None:
            slowest = f"slowest {who!r} after {self.latencies[who]:.1f} s"
        return (
            f"bsfl: {len(self.kept)} of {len(self.cohort)} clients in {self.duration_s:.1f} s, "
            f"{slowest}, {len(self.timeouts)} timed out, {len(self.failed)} failed, "
            f"{self.n_late} late, {self.n_seen} of {self.n_fleet} seen"
        )

    def metrics(self) -> MetricRecord:
        """Return the round's numbers for the run's history."""
        who = self.slowest
        return MetricRecord(
            {
                "bsfl-cohort": len(self.cohort),
                "bsfl-kept": len(self.kept),
                "bsfl-round-s": self.duration_s,
                "bsfl-slowest-s": self.duration_s if who is None else self.latencies[who],
                "bsfl-timeouts": len(self.timeouts),
                "bsfl-failed": len(self.failed),
                "bsfl-late": self.n_late,
                "bsfl-fleet-seen": self.n_seen / self.n_fleet,
            }
        )
