"""Who is told of rounds: the log, a journal, and callbacks."""

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.monitor.journal import Entry, Journal
from bsfl.monitor.words import seconds
from bsfl.records import OUTCOMES, FloatArray, Report, RoundRecord
from bsfl.scheduling.last_round import AWAITED, LastRound
from bsfl.solvers.choice import Choice

WEIGHED, DECIMALS = 20, 4
"""How many of a cohort, the slowest first, are written with what they were weighed by, and how."""

NAMED = 20
"""How many of those that a round waits for are named while it is under way."""

_LOG = logging.getLogger("bsfl")

OnRound = Callable[[RoundRecord], object]
"""Is told of every round when it is over."""
JournalLike = str | os.PathLike[str] | Journal


class Events:
    """Tells of rounds that are over and of answers that come later, and never stops one.

    A copy (`copy.deepcopy`, `pickle`) tells the log alone: two would write one journal.
    """

    def __init__(
        self,
        journal: JournalLike | None = None,
        on_round: OnRound | Iterable[OnRound] | None = None,
    ) -> None:
        callbacks = [on_round] if callable(on_round) else list(on_round or ())
        for one in callbacks:
            if not callable(one):
                raise InvalidInput(f"on_round must be a function, got {checks.short(one)}")
        self._journal: Journal | None = None
        if journal is not None:
            self.keep_journal(journal)
        self._callbacks: list[OnRound] = callbacks
        self._failed: set[str] = set()
        self._begun: Entry = {}
        self._since = 0.0

    def __reduce__(self) -> tuple[type["Events"], tuple[()]]:
        return Events, ()

    def keep_journal(self, journal: JournalLike) -> None:
        """Write to this journal from now on."""
        self._journal = journal if isinstance(journal, Journal) else Journal(journal)

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._journal or self._callbacks) or _LOG.isEnabledFor(logging.INFO)

    def begun(self, last: LastRound, choice: Choice | None, ids: list[Any]) -> None:
        """Tell that a round is under way.

        Remember what its cohort was weighed by and, where asked for, who was available.
        """
        self._begun = {}
        if self._journal is None or choice is None:
            return
        self._since = time.time()
        self.waits(last, ids)
        if choice.unit != "value" and np.array_equal(choice.cohort, last.cohort):
            self._begun = _why(choice, ids)
        if self._journal.lists_available:
            self._begun["available_ids"] = [ids[k] for k in choice.available.tolist()]

    def waits(self, last: LastRound, ids: list[Any]) -> None:
        """Tell for whom the round that is under way waits."""
        if self._journal is None:
            return
        waits_for = last.cohort[last.outcome == AWAITED]
        self._journal.show(
            {
                "kind": "under way",
                "t": last.t,
                "time": self._since,
                "invited": len(last.cohort),
                "enough": last.enough,
                "n_waits_for": len(waits_for),
                "waits_for": [ids[k] for k in waits_for[:NAMED].tolist()],
            }
        )

    def round(
        self, last: LastRound, ids: list[Any], figures: Callable[[], dict[str, float]]
    ) -> None:
        """Tell of a round that is over, with what the policy has found by then."""
        record = last.record(ids)
        if self._journal is not None:
            found: dict[str, float] = {}
            with self._reported_once(figures):
                found = figures()
            self._journal.write(_round_entry(last, record, found) | self._begun)
        if _LOG.isEnabledFor(logging.INFO):
            _LOG.info("%s", _sentence(record), extra={"round": record})
        for callback in self._callbacks:
            with self._reported_once(callback):
                callback(record)

    @contextmanager
    def _reported_once(self, function: Callable[..., object]) -> Iterator[None]:
        """Go on when a function of the user's own fails, and say so the first time."""
        try:
            yield
        except Exception:
            name = getattr(function, "__qualname__", type(function).__qualname__)
            if name not in self._failed:
                self._failed.add(name)
                _LOG.exception("%s failed, rounds go on", name)

    def late(self, t: int, report: Report, ids: list[Any]) -> None:
        """Tell of answers to a round whose line is written."""
        if self._journal is None:
            return
        outcome = [OUTCOMES[i] for i in report.outcome.tolist()]
        columns = report.clients.tolist(), outcome, _told(report.latency), _told(report.loss)
        for k, how, latency_s, loss in zip(*columns, strict=True):
            entry = {"kind": "late", "t": t, "time": time.time(), "client": ids[k]}
            self._journal.write(entry | {"outcome": how, "latency_s": latency_s, "loss": loss})


def _round_entry(last: LastRound, record: RoundRecord, figures: dict[str, float]) -> Entry:
    """Return the line of a round; lists are in the order of `invited`."""
    return {
        "kind": "round",
        "t": last.t,
        "time": time.time(),
        "available": last.n_available,
        "cohort_size": last.cohort_size,
        "enough": last.enough,
        "duration_s": record.duration_s,
        "invited": record.cohort,
        "outcome": [None if i < 0 else OUTCOMES[i] for i in last.outcome.tolist()],
        "latency_s": _told(last.latency),
        "loss": _told(last.loss),
        "figures": {name: x if math.isfinite(x) else None for name, x in figures.items()},
    }


def _why(choice: Choice, ids: list[Any]) -> Entry:
    """Return what the slowest of a cohort were weighed by, if any were."""
    u, worth = choice.told()
    slowest = np.argsort(u, kind="stable")[: min(WEIGHED, np.count_nonzero(~np.isnan(u)))]
    if not len(slowest):
        return {}
    expected = -u[slowest] if choice.unit == "s" else u[slowest]
    why: Entry = {"unit": choice.unit}
    why["clients"] = [ids[k] for k in choice.cohort[slowest].tolist()]
    why["expected"] = _told(np.round(expected, DECIMALS))
    return {"why": why | {"worth": _told(np.round(worth[slowest], DECIMALS))}}


def _told(values: FloatArray) -> list[float | None]:
    return [None if x != x else x for x in values.tolist()]


def _sentence(record: RoundRecord) -> str:
    """Return a round in words.

    >>> record = RoundRecord(t=3, cohort=("ann", "bob"), cohort_size=2, n_available=9,
    ...     duration_s=41.0, n_answered=1, n_timeouts=1, n_failed=0, n_late=0)
    >>> _sentence(record)
    'round 3: 1 of 2 answered in 41 s, 1 timed out'
    """
    text = f"round {record.t:,}: {record.n_answered or 0:,} of {len(record.cohort):,} answered"
    text += "" if record.duration_s is None else f" in {seconds(record.duration_s)}"
    others = ("timed out", record.n_timeouts), ("failed", record.n_failed), ("late", record.n_late)
    return text + "".join(f", {n:,} {how}" for how, n in others if n)
