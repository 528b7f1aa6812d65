"""Where events go when a call is done: the log, a journal, and callbacks."""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from bsfl import validation
from bsfl._core.engine import Engine
from bsfl._core.events import Event, Forget, RoundClosed, SetAvailability
from bsfl.errors import InvalidInput
from bsfl.monitoring.journal import Entry, Journal
from bsfl.monitoring.stream import entry_of
from bsfl.monitoring.words import seconds
from bsfl.types import RoundRecord

_LOG = logging.getLogger("bsfl")

OnRound = Callable[[RoundRecord], object]
"""Is called with the record of every round that closes."""
JournalLike = str | os.PathLike[str] | Journal


class Publisher:
    """Publishes events of rounds; a failing callback or journal never stops a round.

    A copy (`copy.deepcopy`, `pickle`) publishes to the log alone: two would write one journal.
    """

    def __init__(
        self,
        journal: JournalLike | None = None,
        on_round: OnRound | Iterable[OnRound] | None = None,
        *,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        """Publish to a journal and to callbacks; `lock` lets one thread at a time write."""
        callbacks = [on_round] if callable(on_round) else list(on_round or ())
        for one in callbacks:
            if not callable(one):
                raise InvalidInput(f"on_round must be a function, got {validation.short(one)}")
        self.journal: Journal | None = None
        if journal is not None:
            self.write_journal(journal)
        self.callbacks: list[OnRound] = callbacks
        self._failed: set[str] = set()
        self._lock: AbstractContextManager[Any] = lock or threading.RLock()
        self._pid = os.getpid()
        self._waiting: deque[tuple[Journal, list[Entry]]] = deque()
        self._is_writing = False

    def __reduce__(self) -> tuple[type["Publisher"], tuple[()]]:
        return Publisher, ()

    def write_journal(self, journal: JournalLike) -> None:
        """Write to this journal from now on."""
        self.journal = journal if isinstance(journal, Journal) else Journal(journal)

    def diagnostics(self, engine: Engine) -> dict[str, float]:
        """Return what the policy has learned; a failing custom policy is logged once."""
        try:
            return engine.diagnostics()
        except Exception:
            self._log_failure(type(engine.policy).diagnostics)
            return {}

    def enqueue(self, journal: Journal, entries: list[Entry]) -> None:
        """Add entries to those that wait to be written; called under the scheduler's lock."""
        if self._pid != os.getpid():  # what waits in a forked process is its parent's
            self._pid, self._is_writing = os.getpid(), False
            self._waiting.clear()
        self._waiting.append((journal, entries))

    def publish(self, records: list[RoundRecord]) -> None:
        """Write what waits, in the order of its events, and announce rounds that closed.

        Called outside the scheduler's lock: a callback may call the scheduler.
        """
        with self._lock:
            self._write_waiting()
        for record in records:
            if _LOG.isEnabledFor(logging.INFO):
                _LOG.info("%s", describe(record), extra={"round": record})
            for callback in self.callbacks:
                try:
                    callback(record)
                except Exception:
                    self._log_failure(callback)

    def _write_waiting(self) -> None:
        if self._is_writing:  # a signal handler has interrupted the loop below, which resumes
            return
        self._is_writing = True
        try:
            while self._waiting:
                journal, entries = self._waiting[0]
                try:
                    journal.write(entries)
                except Exception:
                    self._log_failure(type(journal).write)
                self._waiting.popleft()
        finally:
            self._is_writing = False

    def _log_failure(self, function: Callable[..., object]) -> None:
        """Log the first failure of a custom function; rounds continue without it."""
        name = getattr(function, "__qualname__", type(function).__qualname__)
        if name not in self._failed:
            self._failed.add(name)
            _LOG.exception("%s failed; rounds continue", name)


class Batch:
    """The events of one call: entries for the journal, records for the log and callbacks."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher, self._journal = publisher, publisher.journal
        self._entries: list[Entry] = []
        self._records: list[RoundRecord] = []
        self._forgotten: list[Any] = []
        self._n = 0

    def prepare(self, event: Event, names: list[Any]) -> None:
        """Note what will not be known any more when an event is applied."""
        if isinstance(event, Forget) and self._journal is not None:
            self._forgotten = [names[k] for k in (~event.kept).nonzero()[0].tolist()]

    def add(self, event: Event, engine: Engine, names: list[Any]) -> None:
        """Add an event that was applied."""
        self._n += 1
        closed = None
        if isinstance(event, RoundClosed):
            closed = engine.last_closed
            if closed is not None:
                self._records.append(closed.record(names))
        if self._journal is None:
            return
        if isinstance(event, SetAvailability) and not self._journal.availability:
            self._add({"kind": "availability"})
            return
        if isinstance(event, Forget):
            self._add({"kind": "forgotten", "clients": self._forgotten})
            return
        entry = entry_of(event, names)
        if closed is not None:
            entry |= {
                "duration_s": closed.duration_s,
                "diagnostics": self._publisher.diagnostics(engine),
            }
        self._add(entry)

    def note(self, entry: Entry) -> None:
        """Add what is no event of the engine."""
        self._n += 1
        if self._journal is not None:
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        self._entries.append({"kind": entry.pop("kind"), "seq": self._n, **entry})

    def commit(self, seq: int, now: float) -> None:
        """Give the events the time and the sequence numbers after `seq`, under the lock."""
        for entry in self._entries:
            entry["seq"] += seq
            entry["time"] = now
        if self._journal is not None and self._entries:
            self._publisher.enqueue(self._journal, self._entries)

    def publish(self) -> None:
        """Publish the events, outside the scheduler's lock."""
        if self._entries or self._records:
            self._publisher.publish(self._records)


def describe(record: RoundRecord) -> str:
    """Return a round in one line.

    >>> record = RoundRecord(round=3, cohort=("ann", "bob"), n_invited=2, n_available=9,
    ...     duration_s=41.0, n_fresh=1, n_timeouts=1, n_failed=0, n_late=0)
    >>> describe(record)
    'round 3: 1 of 2 responded in 41 s, 1 timed out'
    """
    text = f"round {record.round:,}: {record.n_fresh or 0:,} of {len(record.cohort):,} responded"
    text += "" if record.duration_s is None else f" in {seconds(record.duration_s)}"
    others = ("timed out", record.n_timeouts), ("failed", record.n_failed), ("late", record.n_late)
    text += "".join(f", {n:,} {how}" for how, n in others if n)
    return text + ", discarded" * record.is_discarded
