"""Where events go: a journal, the log, and callbacks."""

import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

from bsfl import validation
from bsfl._core.engine import Engine
from bsfl._core.events import Event, RoundClosed, SetAvailability
from bsfl.errors import InvalidInput
from bsfl.monitoring.journal import Entry, Journal
from bsfl.monitoring.stream import entry_of
from bsfl.monitoring.words import results
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
    ) -> None:
        self.callbacks: list[OnRound] = [on_round] if callable(on_round) else list(on_round or ())
        for one in self.callbacks:
            if not callable(one):
                raise InvalidInput(f"on_round must be a function, got {validation.short(one)}")
        self.journal: Journal | None = None
        if journal is not None:
            self.write_journal(journal)
        self._failed: set[str] = set()

    def __reduce__(self) -> tuple[type["Publisher"], tuple[()]]:
        return Publisher, ()

    def write_journal(self, journal: JournalLike) -> None:
        """Write to this journal from now on."""
        self.journal = journal if isinstance(journal, Journal) else Journal(journal)

    def log_failure(self, function: Callable[..., object]) -> None:
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
        self._n = 0

    def add(self, event: Event, engine: Engine, names: list[Any]) -> None:
        """Add an event that was applied; `names` are still those of before."""
        self._n += 1
        closed = engine.last_closed if isinstance(event, RoundClosed) else None
        if closed is not None:
            self._records.append(closed.record(names))
        if self._journal is None:
            return
        if isinstance(event, SetAvailability) and not self._journal.availability:
            return
        entry = {"seq": self._n, **entry_of(event, names)}
        if closed is not None:
            entry["duration_s"] = closed.duration_s
            entry["diagnostics"] = self._diagnostics(engine)
        self._entries.append(entry)

    def note(self, entry: Entry) -> None:
        """Add what is no event of the engine."""
        self._n += 1
        self._entries.append({"seq": self._n, **entry})

    def commit(self, seq: int, now: float, clock_s: float, shift_s: float) -> None:
        """Give the events the times and the numbers after `seq`, and their place in the journal.

        Like a state file, a journal counts seconds from the start of the first scheduler's clock:
        `shift_s` is what the clock has more after restarts on other machines.

        Called under the scheduler's lock, so that the journal has the events of all threads in
        their order; `publish` writes them.
        """
        for entry in self._entries:
            entry["seq"] += seq
            entry |= {"time": now, "clock_s": clock_s - shift_s}
            if "now_s" in entry:
                entry["now_s"] -= shift_s
        if self._journal is not None and self._entries:
            self._journal.put(self._entries)

    def publish(self) -> None:
        """Write the journal and announce rounds that closed, outside the scheduler's lock.

        So a slow disk holds up no other thread, and a callback may call the scheduler.
        """
        if self._journal is not None and self._entries:
            try:
                self._journal.flush()
            except Exception:
                self._publisher.log_failure(type(self._journal).flush)
        for record in self._records:
            if _LOG.isEnabledFor(logging.INFO):
                text = f"round {record.round:,}: {results(record)}"
                text += ", discarded" * record.is_discarded
                _LOG.info("%s", text, extra={"round": record})
            for callback in self._publisher.callbacks:
                try:
                    callback(record)
                except Exception:
                    self._publisher.log_failure(callback)

    def _diagnostics(self, engine: Engine) -> dict[str, float]:
        """Return what the policy has learned; nothing if a custom policy fails to."""
        try:
            return engine.diagnostics()
        except Exception:
            self._publisher.log_failure(type(engine.policy).diagnostics)
            return {}
