"""Clients in flight on the virtual clock: when a round ends, and what is reported when."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl._core.events import RoundOpened
from bsfl.learning.task import Params, Update
from bsfl.types import (
    NO_CLIENTS,
    OK,
    TIMEOUT,
    FloatArray,
    IntArray,
    RoundPlan,
    RoundReport,
)

IN_FLIGHT = np.dtype(
    [
        ("client", np.int64),
        ("round", np.int64),
        ("version", np.int64),  # of the model that it was sent
        ("started_s", np.float64),
        ("latency_s", np.float64),
        ("is_reported", np.bool_),
    ]
)


@dataclass(frozen=True, slots=True)
class Responses:
    """Results of invitations to one round that are reported together.

    Attributes:
        report: What the engine gets.
        model: The model that the clients were sent; None where nothing is trained.
        updates: What the usable responses hold; empty before they are trained.
    """

    report: RoundReport
    model: Params = None
    updates: tuple[Update, ...] = ()


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
    target_s = ordered[m - 1] if n >= m else np.inf
    last_s = ordered[-1] if n else np.inf
    least = plan.min_responses
    least_s = 0.0 if not least else ordered[least - 1] if n >= least else np.inf
    closes_s = min(max(plan.due_s(), least_s), plan.limit_s())
    return float(min(target_s, last_s, closes_s))


def report_after(waited_s: float, rows: npt.NDArray[np.void], **more: Any) -> RoundReport:
    """Return the report of clients in flight that were waited for so long, without losses."""
    unknown, latency_s = np.full(len(rows), np.nan), rows["latency_s"]
    return RoundReport(
        clients=rows["client"],
        latency_s=np.minimum(latency_s, waited_s),
        outcome=np.where(latency_s <= waited_s, OK, TIMEOUT).astype(np.int8),
        loss=unknown,
        samples=unknown,
        invited=NO_CLIENTS,
        **more,
    )


class InFlight:
    """Clients at work, with the models that they were sent.

    Attributes:
        rows: One of IN_FLIGHT for each client.
        models: The models that were sent, by round.
    """

    def __init__(self) -> None:
        self.rows = np.zeros(0, IN_FLIGHT)
        self.models: dict[int, Params] = {}

    def idle(self, available: IntArray) -> IntArray:
        """Return the available clients that are not at work."""
        return np.setdiff1d(available, self.rows["client"], assume_unique=True)

    def add(self, opened: RoundOpened, latency_s: FloatArray, version: int, model: Params) -> None:
        """Let the cohort of a round start to work on a version of the model."""
        rows = np.zeros(len(opened.cohort), IN_FLIGHT)
        rows["client"], rows["latency_s"] = opened.cohort, latency_s
        rows["round"], rows["started_s"], rows["version"] = opened.round, opened.now_s, version
        self.rows = np.concatenate([self.rows, rows])
        self.models[opened.round] = model

    def end_round(self, opened: RoundOpened, plan: RoundPlan) -> tuple[float, list[Responses]]:
        """Return the duration of a round, and what came by its end, its own responses first.

        Clients that are not overdue when the round ends are still pending: they remain in flight.
        """
        is_own = self.rows["round"] == opened.round
        rows, self.rows = self.rows[is_own], self.rows[~is_own]
        duration_s = round_duration(rows["latency_s"], plan)
        pending = (rows["latency_s"] > duration_s) & (duration_s < plan.due_s())
        report = report_after(duration_s, rows[~pending], round=opened.round)
        fresh = Responses(report, self.models[opened.round])
        late = self._late(opened.now_s + duration_s, opened.round, plan) if len(self.rows) else []
        self.rows = np.concatenate([self.rows, rows[pending]])
        self.models = {t: self.models[t] for t in np.unique(self.rows["round"]).tolist()}
        return duration_s, [fresh, *late]

    def _late(self, now_s: float, t: int, plan: RoundPlan) -> list[Responses]:
        """Return responses to rounds before t that came by now or are overdue, round by round.

        A client is at work until it responds or its invitation expires. How long it took is
        reported in any case, or that it is overdue.
        """
        rows, due_s, waited_s = self.rows, plan.due_s(), now_s - self.rows["started_s"]
        responded = rows["latency_s"] <= waited_s
        is_news = (responded | (waited_s >= due_s)) & ~rows["is_reported"]
        late = []
        for number in np.unique(rows["round"][is_news]).tolist():
            ended = rows[is_news & (rows["round"] == number)]
            more = {"round": number, "staleness": t - number, "dropped": plan.late == "drop"}
            report = report_after(due_s, ended, **more)
            late.append(Responses(report, self.models[number]))
        rows["is_reported"] |= is_news
        self.rows = rows[~responded & (waited_s < plan.expiry_s())]
        return late

    def next_end_s(self, due_s: float) -> float:
        """Return when the next client responds or is overdue."""
        return float(self._ends_s(due_s).min(initial=np.inf))

    def pop(self, due_s: float) -> tuple[Responses, int]:
        """Remove the client that ends next; return its response and the version of its model."""
        which = [int(self._ends_s(due_s).argmin())]
        ended, self.rows = self.rows[which], np.delete(self.rows, which)
        number = int(ended["round"][0])
        report = report_after(due_s, ended, round=number)
        return Responses(report, self.models.pop(number)), int(ended["version"][0])

    def _ends_s(self, due_s: float) -> FloatArray:
        return np.asarray(self.rows["started_s"] + np.minimum(self.rows["latency_s"], due_s))
