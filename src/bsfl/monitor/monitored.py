"""What a Scheduler shows of itself."""

import math
from typing import Any

from bsfl.clients import ClientId, ClientTable
from bsfl.last_round import LastRound
from bsfl.learned import Learned
from bsfl.monitor import inspect
from bsfl.monitor.explain import Explanation, explain
from bsfl.monitor.inspect import ClientRows
from bsfl.outstanding import Outstanding
from bsfl.policies import Policy
from bsfl.policies.base import figures_of
from bsfl.records import NOBODY, IntArray, Report, RoundContext, RoundRecord
from bsfl.threads import ThreadLock, locked


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

    def _context(self, t: int, available: IntArray, m: int, enough: int) -> RoundContext:
        raise NotImplementedError

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
            figures=self._figures(),
        )

    @locked
    def table(self) -> ClientRows:
        """Return one row for every client ever met, by its id; bsfl.monitor.COLUMNS says what.

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

    def _figures(self) -> dict[str, float]:
        size = self.cohort_size
        context = self._context(self.t, NOBODY, size, size)
        found: dict[str, Any] = figures_of(self.policy, self._learned.state, context)
        return {name: float(value) for name, value in found.items()}

    def _begin(self, last: LastRound) -> None:
        """Follow a round that has just begun."""
        self._last = last

    def _follow(self, reports: list[tuple[int, Report]]) -> None:
        """Take in what became of clients that were chosen in some rounds."""
        for t, report in reports:
            if self._last is not None and t == self._last.t:
                self._last.hear(report)
