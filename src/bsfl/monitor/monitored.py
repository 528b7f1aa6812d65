"""What a Scheduler shows of itself."""

import math
from typing import Any

from bsfl.monitor import inspect
from bsfl.monitor.events import Events, JournalLike
from bsfl.monitor.explain import Explanation, explain
from bsfl.monitor.inspect import ClientRows
from bsfl.policies import Policy
from bsfl.policies.base import figures_of
from bsfl.records import NOBODY, IntArray, Report, Roster, RoundContext, RoundRecord
from bsfl.scheduling.clients import ClientId, ClientTable
from bsfl.scheduling.last_round import LastRound
from bsfl.scheduling.learned import Learned
from bsfl.scheduling.outstanding import Outstanding
from bsfl.scheduling.threads import ThreadLock, locked


class Monitored:
    """The part of a Scheduler that looks and tells, and changes nothing of what it knows."""

    policy: Policy
    cohort_size: int
    t: int
    _lock: ThreadLock
    _clients: ClientTable
    _learned: Learned
    _awaited: Outstanding
    _last: LastRound | None
    _events: Events

    @property
    @locked
    def last_round(self) -> RoundRecord | None:
        """What is known of the last round by now; None before the first."""
        return None if self._last is None else self._last.record(self._clients.ids)

    def __repr__(self) -> str:
        n = self._clients.n_members
        return f"<Scheduler with {self.policy!r}, {n:,} clients, round {self.t:,}>"

    def __str__(self) -> str:
        return self.summary()

    @locked
    def summary(self) -> str:
        """Return what is known in a few lines: the fleet, who is slow, who is overdue, evenness."""
        return inspect.summary(
            title=f"{self.policy!r}, cohorts of {self.cohort_size:,}, round {self.t:,}",
            clients=self._clients,
            ledger=self._learned.ledger,
            awaited=self._awaited,
            last=self._last,
            figures=self.figures(),
        )

    @locked
    def table(self) -> ClientRows:
        """Return one row for every client ever met, as they joined; bsfl.monitor.COLUMNS says what.

        A list of dicts; `.to_frame()` makes a pandas table of it.
        """
        return inspect.rows(self._clients, self._learned.ledger, self._awaited)

    @locked
    def explain(self, client: ClientId) -> Explanation:
        """Return why a client was chosen in the last round, or not; print it.

        Pace and BSFL can tell; of other policies it says no more than who was available and chosen.

        Args:
            client: Its id.
        """
        index = self._clients.index_of(client)
        times = inspect.grown(self._learned.ledger, len(self._clients)).latencies()
        _, low, high = (float(column[index]) for column in times)
        return explain(
            self._learned.choice,
            index,
            t=self.t,
            cohort=NOBODY if self._last is None else self._last.cohort,
            ids=self._clients.ids,
            policy=type(self.policy).__name__,
            interval_s=None if math.isnan(low) else (low, high),
        )

    @locked
    def keep_journal(self, journal: JournalLike) -> None:
        """Write to this journal from now on; see Scheduler."""
        self._events.keep_journal(journal)

    @locked
    def tell_like(self, other: "Monitored") -> None:
        """Tell whom another scheduler tells: its journal and its callbacks."""
        self._events = other._events

    def _context(
        self, t: int, available: IntArray, m: int, enough: int, roster: Roster | None
    ) -> RoundContext:
        return RoundContext(
            t=t,
            available=available,
            cohort_size=m,
            enough=enough,
            roster=roster,
            opportunity=self._learned.ledger.opportunity,
        )

    @locked
    def figures(self) -> dict[str, float]:
        """Return what the policy has found, by name, such as the weight of BSFL; often nothing."""
        size = self.cohort_size
        context = self._context(self.t, NOBODY, size, size, self._clients.roster())
        found: dict[str, Any] = figures_of(self.policy, self._learned.state, context)
        return {name: float(value) for name, value in found.items()}

    def _begin(self, last: LastRound) -> None:
        """Follow a round that has just begun; the one before is over, whoever is missing."""
        self._tell()
        self._last = last
        self._events.begun(last, self._learned.choice, self._clients.ids)

    def _follow(self, reports: list[tuple[int, Report]]) -> None:
        """Take in what became of clients that were chosen in some rounds."""
        last = self._last
        for t, report in reports:
            is_last = last is not None and t == last.t
            if last is not None and is_last:
                last.hear(report)
            if last is None or not is_last or last.is_told:
                self._events.late(t, report, self._clients.ids)
        if last is None or last.is_told:
            return
        if last.is_over:
            self._tell()
        elif reports:
            self._events.waits(last, self._clients.ids)

    def _tell(self) -> None:
        """Tell of the last round, once: it is over when enough have answered or the next begins."""
        if self._last is None or self._last.is_told:
            return
        self._last.is_told = True
        if self._events.is_heard:
            self._events.round(self._last, self._clients.ids, self.figures)
