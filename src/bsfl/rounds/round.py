"""One round: who was invited, who has answered, whether it is over, and what it was like then.

It reads no clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bsfl.records import Outcome
from bsfl.rounds.plan import RoundPlan
from bsfl.scheduling.clients import ClientId


@dataclass(slots=True, eq=False)
class Round:
    """A round that is running. Time is in seconds since it began.

    A round is over when cohort_size clients have trained, when nobody is left to wait for, or when
    it closes: at the deadline if the quorum has answered by then, as soon as it has after that, and
    at the latest when the invitations expire or the caller's timeout is up. An answer that comes
    at the very moment at which a round closes is in time.

    >>> round = Round(RoundPlan(cohort_size=2, deadline_s=10.0), ["ann", "bob"])
    >>> round.hear("bob", "ok", 3.0)
    >>> round.is_over(3.0), round.is_over(10.0), round.kept, round.missing
    (False, True, ('bob',), ('ann',))

    Attributes:
        plan: The numbers of the round.
        cohort: The clients that were invited; distinct.
        timeout_s: Seconds after which the caller gives up; None: the plan alone decides.
        answers: What came of those who answered, in the order in which they did.
        latencies: Seconds each client took that has trained, in the same order.
        due_s: When answers are overdue.
        limit_s: When the round closes without its quorum.
    """

    plan: RoundPlan
    cohort: Sequence[ClientId]
    timeout_s: float | None = None
    answers: dict[ClientId, Outcome] = field(init=False, default_factory=dict)
    latencies: dict[ClientId, float] = field(init=False, default_factory=dict)
    due_s: float = field(init=False)
    limit_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.due_s = self.plan.due_s(self.timeout_s)
        self.limit_s = self.plan.limit_s(self.timeout_s)

    def hear(self, client: ClientId, outcome: Outcome, latency_s: float | None = None) -> None:
        """Book the answer of one client; one that trained took some seconds."""
        self.answers[client] = outcome
        if outcome == "ok":
            assert latency_s is not None
            self.latencies[client] = latency_s

    @property
    def closes_at(self) -> float:
        """When the round ends if nobody else answers; may be past."""
        return self.due_s if len(self.latencies) >= self.plan.quorum else self.limit_s

    def is_over(self, waited_s: float) -> bool:
        """Return whether the round has all it can get, or has waited long enough."""
        return (
            len(self.latencies) >= self.plan.cohort_size
            or len(self.answers) == len(self.cohort)
            or waited_s >= self.closes_at
        )

    @property
    def kept(self) -> tuple[ClientId, ...]:
        """Whose work counts: the first cohort_size clients that trained."""
        return tuple(self.latencies)[: self.plan.cohort_size]

    @property
    def missing(self) -> tuple[ClientId, ...]:
        return tuple(client for client in self.cohort if client not in self.answers)

    def with_outcome(self, outcome: Outcome) -> tuple[ClientId, ...]:
        """Return the clients whose answer had this outcome, in the order in which they came."""
        return tuple(client for client, found in self.answers.items() if found == outcome)


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
        """Return one line for a log: how long the round took, and who it waited for in vain."""
        client = self.slowest
        slowest = "nobody answered"
        if client is not None:
            slowest = f"slowest {client!r} after {self.latencies[client]:.1f} s"
        return (
            f"bsfl: {len(self.kept)} of {len(self.cohort)} clients in {self.duration_s:.1f} s, "
            f"{slowest}, {_counted('timed out', self.timeouts)}, "
            f"{_counted('failed', self.failed)}, {self.n_late} late, "
            f"{self.n_seen} of {self.n_fleet} seen"
        )


def names(clients: Sequence[object], most: int = 5) -> str:
    """Return some clients' names for a line of a log.

    >>> names(["ann", "bob"]), names([1, 2, 3], most=2)
    ("'ann', 'bob'", '1, 2 and 1 more')
    """
    listed = ", ".join(map(repr, clients[:most]))
    return f"{listed} and {len(clients) - most} more" if len(clients) > most else listed


def _counted(what: str, clients: Sequence[ClientId]) -> str:
    named = f" ({names(clients)})" if clients else ""
    return f"{len(clients)} {what}{named}"
