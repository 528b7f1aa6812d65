"""What one round was like: a line in the log, numbers in the run's history."""

from dataclasses import dataclass

from flwr.app import MetricRecord

from bsfl.rounds import ClosedRound


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSummary(ClosedRound):
    """One training round.

    Attributes:
        server_round: Flower's number of the round.
    """

    server_round: int

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
                "bsfl-fleet-seen": self.n_seen / self.n_fleet,
            }
        )
