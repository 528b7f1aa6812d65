"""A round as it runs: which clients were invited, which have responded, whether it is over.

It reads no clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bsfl.types import ClientId, Outcome, RoundPlan


@dataclass(slots=True, eq=False)
class RunningRound:
    """A round that is running. Time is in seconds since it began.

    A round is over when target_responses clients have responded, when no client is missing, or when
    its time is up: at the deadline, or after it as soon as there are min_responses, and at the
    latest when the invitations expire or the caller's timeout has passed. A response at the very
    moment at which a round ends is in time.

    >>> round = RunningRound(RoundPlan(target_responses=2, deadline_s=10.0), ["ann", "bob"])
    >>> round.record("bob", "ok", 3.0)
    >>> round.is_over(3.0), round.is_over(10.0), round.kept, round.missing
    (False, True, ('bob',), ('ann',))

    Attributes:
        timeout_s: Seconds after which the caller ends it; None: the plan alone decides.
        outcomes: Outcomes of the clients that responded or failed, in the order of arrival.
        latencies: Seconds of each client that responded, in the same order.
    """

    plan: RoundPlan
    cohort: Sequence[ClientId]
    timeout_s: float | None = None
    outcomes: dict[ClientId, Outcome] = field(init=False, default_factory=dict)
    latencies: dict[ClientId, float] = field(init=False, default_factory=dict)

    def record(self, client: ClientId, outcome: Outcome, latency_s: float | None = None) -> None:
        """Record the outcome of one client, with a latency if it is "ok"."""
        self.outcomes[client] = outcome
        if outcome == "ok":
            assert latency_s is not None
            self.latencies[client] = latency_s

    @property
    def closes_at(self) -> float:
        """When the round ends without further responses; may be past."""
        is_enough = len(self.latencies) >= self.plan.min_responses
        return self.plan.due_s(self.timeout_s) if is_enough else self.plan.limit_s(self.timeout_s)

    def is_over(self, waited_s: float) -> bool:
        """Return whether the target is reached, no client is missing, or the time is up."""
        return (
            len(self.latencies) >= self.plan.target_responses
            or len(self.outcomes) == len(self.cohort)
            or waited_s >= self.closes_at
        )

    @property
    def kept(self) -> tuple[ClientId, ...]:
        """The clients whose responses count: the first target_responses."""
        return tuple(self.latencies)[: self.plan.target_responses]

    @property
    def missing(self) -> tuple[ClientId, ...]:
        return tuple(client for client in self.cohort if client not in self.outcomes)

    def with_outcome(self, outcome: Outcome) -> tuple[ClientId, ...]:
        """Return the clients with this outcome, in the order of arrival."""
        return tuple(client for client, its in self.outcomes.items() if its == outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """The result of one round that is over.

    Attributes:
        round: The scheduler's number of the round.
        cohort: The clients that were invited.
        kept: Those whose responses count, in the order of arrival.
        timeouts: Those that missed the deadline.
        failed: Those that responded with an error, or could not be reached.
        latencies: Seconds of each client that responded during the round.
        duration_s: Seconds from the first invitation to the end of the round.
        n_late: How many responses to earlier rounds came since the previous round ended.
        n_seen: How many clients have responded since the server was started.
        n_clients: How many clients are members.
    """

    round: int
    cohort: tuple[ClientId, ...]
    kept: tuple[ClientId, ...]
    timeouts: tuple[ClientId, ...]
    failed: tuple[ClientId, ...]
    latencies: dict[ClientId, float]
    duration_s: float
    n_late: int
    n_seen: int
    n_clients: int

    @property
    def slowest(self) -> ClientId | None:
        """The client with the longest latency, if any responded."""
        return max(self.latencies, key=self.latencies.__getitem__, default=None)

    def line(self) -> str:
        """Return a line for the log: how long the round took, and which clients did not respond."""
        slowest = "no response"
        if self.slowest is not None:
            slowest = f"slowest {self.slowest!r} after {self.latencies[self.slowest]:.1f} s"
        return (
            f"bsfl: {len(self.kept)} of {len(self.cohort)} clients in {self.duration_s:.1f} s, "
            f"{slowest}, {_counted('timed out', self.timeouts)}, "
            f"{_counted('failed', self.failed)}, {self.n_late} late, "
            f"{self.n_seen} of {self.n_clients} seen"
        )


def names(clients: Sequence[object], n_max: int = 5) -> str:
    """Return the first few clients for a line of the log.

    >>> names(["ann", "bob"]), names([1, 2, 3], n_max=2)
    ("'ann', 'bob'", '1, 2 and 1 more')
    """
    listed = ", ".join(map(repr, clients[:n_max]))
    return f"{listed} and {len(clients) - n_max} more" if len(clients) > n_max else listed


def _counted(what: str, clients: Sequence[ClientId]) -> str:
    listed = f" ({names(clients)})" if clients else ""
    return f"{len(clients)} {what}{listed}"
