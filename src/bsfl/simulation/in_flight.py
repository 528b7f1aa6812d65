"""Simulated clients that are in flight: when rounds end, and what is reported when."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from bsfl.learning.task import Params, Update
from bsfl.simulation.training import Responses
from bsfl.types import (
    NO_CLIENTS,
    OK,
    TIMEOUT,
    BoolArray,
    FloatArray,
    IntArray,
    RoundPlan,
    RoundReport,
)


def round_duration(latency_s: FloatArray, plan: RoundPlan) -> float:
    """Return how long a round takes, given how long each invited client takes.

    It ends with the target response, with the last response, or at the deadline; without
    min_responses at the deadline it waits for them until the invitations expire. With no client
    invited it lasts until it closes.

    >>> plan = RoundPlan(target_responses=2, deadline_s=3.0)
    >>> round_duration(np.array([1.5, 4.0]), plan), round_duration(np.array([1.0, 2.0, 9.0]), plan)
    (3.0, 2.0)
    """
    ordered, n, m = np.sort(latency_s), len(latency_s), plan.target_responses
    enough_s = ordered[m - 1] if n >= m else np.inf
    last_s = ordered[-1] if n else np.inf
    least = plan.min_responses
    least_s = 0.0 if not least else ordered[least - 1] if n >= least else np.inf
    closes_s = min(max(plan.due_s(), least_s), plan.limit_s())
    return float(min(enough_s, last_s, closes_s))


def report_of(
    cohort: IntArray, latency_s: FloatArray, duration_s: float, plan: RoundPlan
) -> tuple[RoundReport, BoolArray]:
    """Return the report at the end of a round, and which clients of the cohort are still pending.

    A client that is not overdue when the round ends is still pending.
    """
    outcome = np.where(latency_s > duration_s, TIMEOUT, OK)
    pending: BoolArray = (outcome == TIMEOUT) & (duration_s < plan.due_s())
    seen = ~pending
    return _report(cohort[seen], np.minimum(latency_s[seen], duration_s), outcome[seen]), pending


def _report(clients: IntArray, latency_s: FloatArray, outcome: IntArray) -> RoundReport:
    """Return a report without losses."""
    unknown = np.full(len(clients), np.nan)
    return RoundReport(
        clients=clients,
        latency_s=latency_s,
        outcome=outcome.astype(np.int8),
        loss=unknown,
        samples=unknown,
        invited=NO_CLIENTS,
    )


class InFlight:
    """Clients whose round is closed and that are still at work, with the model that they got.

    Each is busy until it responds or its invitation expires. How long it took is reported in any
    case, or that it is overdue.
    """

    def __init__(self, plan: RoundPlan) -> None:
        self.plan = plan
        self.clients, self.since = NO_CLIENTS, NO_CLIENTS
        self.started_s, self.latency_s = np.zeros(0), np.zeros(0)
        self.is_reported = np.zeros(0, dtype=bool)
        self.bases: dict[int, Params] = {}

    def leave_out(self, available: IntArray) -> IntArray:
        """Return the available clients that are not busy."""
        if not len(self.clients):
            return available
        return np.setdiff1d(available, self.clients, assume_unique=True)

    def add(
        self, clients: IntArray, latency_s: FloatArray, sent: Responses, started_s: float
    ) -> None:
        """Add the pending clients of a round."""
        n = len(clients)
        if n:
            self.clients = np.concatenate([self.clients, clients])
            self.latency_s = np.concatenate([self.latency_s, latency_s])
            self.since = np.concatenate([self.since, np.full(n, sent.round)])
            self.started_s = np.concatenate([self.started_s, np.full(n, started_s)])
            self.is_reported = np.concatenate([self.is_reported, np.zeros(n, dtype=bool)])
            self.bases[sent.round] = sent.base

    def ended(self, now_s: float, t: int) -> Iterator[Responses]:
        """Yield what came by now, or is overdue, round by round; t is the round that ends now."""
        if not len(self.clients):
            return
        due_s = self.plan.due_s()
        waited_s = now_s - self.started_s
        responded = self.latency_s <= waited_s
        news = (responded | (waited_s >= due_s)) & ~self.is_reported
        outcome = np.where(self.latency_s <= due_s, OK, TIMEOUT)
        latency_s = np.minimum(self.latency_s, due_s)
        is_dropped = self.plan.late == "drop"
        for since in np.unique(self.since[news]).tolist():
            which = news & (self.since == since)
            report = _report(self.clients[which], latency_s[which], outcome[which])
            yield Responses(
                since,
                report,
                self.bases[since],
                staleness=t - since,
                is_dropped=is_dropped,
            )
        self.is_reported |= news
        stay = ~responded & (waited_s < self.plan.expiry_s())
        for name in ("clients", "since", "started_s", "latency_s", "is_reported"):
            setattr(self, name, getattr(self, name)[stay])
        self.bases = {since: self.bases[since] for since in np.unique(self.since).tolist()}


@dataclass(order=True, slots=True)
class Invitation:
    """One client in flight in buffered rounds; the first to end comes first.

    Attributes:
        ends_s: When it responds, or times out.
        round: The round in which it was selected.
        latency_s: Seconds that it takes; infinite if it never responds.
        version, base: The model that it was sent.
        update: What it trained.
    """

    ends_s: float
    round: int
    client: int = field(compare=False)
    latency_s: float = field(compare=False)
    version: int = field(compare=False)
    base: Params = field(compare=False)
    update: Update | None = field(default=None, compare=False)

    def report(self, due_s: float) -> RoundReport:
        """Return the report when it ends."""
        outcome = OK if self.latency_s <= due_s else TIMEOUT
        waited_s = np.array([min(self.latency_s, due_s)])
        return _report(np.array([self.client]), waited_s, np.array([outcome]))
