"""One round on the virtual clock, and the clients that are still at work when it is over."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bsfl.learning.task import Params
from bsfl.records import LATE, NOBODY, OK, TIMEOUT, BoolArray, FloatArray, IntArray, Report
from bsfl.rounds import Round, RoundPlan
from bsfl.simulation.training import Answers


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """What the server sees of a round when it is over.

    Attributes:
        duration_s: How long it took.
        report: What each client showed that answered, or is overdue.
        at_work: Those that will still answer, or be overdue, and how long each takes.
    """

    duration_s: float
    report: Report
    at_work: tuple[IntArray, FloatArray]

    @property
    def n_timeouts(self) -> int:
        return int(np.count_nonzero(self.report.outcome == TIMEOUT))


def told(clients: IntArray, latency: FloatArray, outcome: IntArray, chosen: IntArray) -> Report:
    """Return a report without losses."""
    unknown = np.full(len(clients), np.nan)
    return Report(
        clients=clients,
        latency=latency,
        outcome=outcome.astype(np.int8),
        loss=unknown,
        samples=unknown,
        chosen=chosen,
    )


def run_round(cohort: IntArray, latency: FloatArray, plan: RoundPlan) -> RoundOutcome:
    """Return the outcome of a cohort, given how long each member takes.

    Nobody to ask: the round lasts until it closes, as waiting for somebody takes time, too.

    >>> plan = RoundPlan(cohort_size=2, deadline_s=3.0)
    >>> run_round(np.array([0, 2]), np.array([1.5, 4.0]), plan).duration_s
    3.0
    """
    running, now_s = Round(plan, cohort.tolist()), 0.0
    order = np.argsort(latency, kind="stable")
    for client, at_s in zip(cohort[order].tolist(), latency[order].tolist(), strict=True):
        if at_s > now_s:  # answers of one moment come together
            if running.is_over(now_s) or at_s > running.closes_at:
                break
            now_s = at_s
        running.hear(client, "ok", at_s)
    is_over = len(cohort) > 0 and running.is_over(now_s)
    duration_s = now_s if is_over else float(running.closes_at)
    outcome = np.where(latency > duration_s, TIMEOUT, LATE)
    outcome[np.isin(cohort, running.kept)] = OK
    at_work: BoolArray = (outcome == TIMEOUT) & (duration_s < running.due_s)
    over = slice(None) if not at_work.any() else ~at_work
    latency_seen = np.minimum(latency[over], duration_s)
    report = told(cohort[over], latency_seen, outcome[over], cohort)
    return RoundOutcome(duration_s, report, (cohort[at_work], latency[at_work]))


class Stragglers:
    """Clients that are still at work when their round is over.

    Each is busy until it answers or its invitation expires. Its answer is dropped or applied, as
    the plan says; how long it took is told in any case, or that it is overdue.
    """

    def __init__(self, plan: RoundPlan) -> None:
        self.plan = plan
        self.clients, self.since = NOBODY, NOBODY
        self.started_s, self.latency = np.zeros(0), np.zeros(0)
        self.is_told = np.zeros(0, dtype=bool)
        self.bases: dict[int, Params] = {}

    def leave_out(self, available: IntArray) -> IntArray:
        """Return those of the available clients that are not at work."""
        if not len(self.clients):
            return available
        return np.setdiff1d(available, self.clients, assume_unique=True)

    def add(self, outcome: RoundOutcome, answers: Answers, started_s: float) -> None:
        """Book those of a round that are still at work."""
        clients, latency = outcome.at_work
        if len(clients):
            self.clients = np.concatenate([self.clients, clients])
            self.latency = np.concatenate([self.latency, latency])
            self.since = np.concatenate([self.since, np.full(len(clients), answers.t)])
            self.started_s = np.concatenate([self.started_s, np.full(len(clients), started_s)])
            self.is_told = np.concatenate([self.is_told, np.zeros(len(clients), dtype=bool)])
            self.bases[answers.t] = answers.base

    def ended(self, now_s: float, t: int) -> Iterator[Answers]:
        """Yield what came by now, or is overdue, round by round; t is the round that is running."""
        if not len(self.clients):
            return
        waited_s = now_s - self.started_s
        answered = self.latency <= waited_s
        news = (answered | (waited_s >= self.plan.due_s())) & ~self.is_told
        good = OK if self.plan.late == "apply" else LATE
        outcome = np.where(self.latency <= self.plan.due_s(), good, TIMEOUT)
        latency = np.minimum(self.latency, self.plan.due_s())
        for since in np.unique(self.since[news]).tolist():
            who = news & (self.since == since)
            report = told(self.clients[who], latency[who], outcome[who], NOBODY)
            yield Answers(since, report, self.bases[since], staleness=t - since)
        self.is_told |= news
        stay = ~answered & (waited_s < self.plan.expiry_s())
        for name in ("clients", "since", "started_s", "latency", "is_told"):
            setattr(self, name, getattr(self, name)[stay])
        self.bases = {since: self.bases[since] for since in np.unique(self.since).tolist()}
