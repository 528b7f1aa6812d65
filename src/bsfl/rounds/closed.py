"""What one round was like, once it is over."""

from dataclasses import dataclass

from bsfl.clients import ClientId


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedRound:
    """One round that is over.

    Attributes:
        t: The scheduler's number of the round.
        cohort: The clients that were invited.
        kept: Those whose work counts, in the order in which they answered.
        timeouts: Those that missed the deadline.
        failed: Those that answered with an error, or could not be reached.
        latencies: Seconds each client took whose answer came during the round.
        duration_s: Seconds from the first invitation to the end of the round.
        n_late: How many answers to earlier rounds came in since the round before ended.
        n_seen: How many clients have answered since the server was started.
        n_fleet: How many clients there are.
    """

    t: int
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
        client = self.slowest
        slowest = "nobody answered"
        if client is not None:
            slowest = f"slowest {client!r} after {self.latencies[client]:.1f} s"
        return (
            f"bsfl: {len(self.kept)} of {len(self.cohort)} clients in {self.duration_s:.1f} s, "
            f"{slowest}, {len(self.timeouts)} timed out, {len(self.failed)} failed, "
            f"{self.n_late} late, {self.n_seen} of {self.n_fleet} seen"
        )
