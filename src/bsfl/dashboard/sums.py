"""What a journal holds so far, kept in sums that every line updates.

Every client and every round has a row of numbers, so a line costs as much as the clients that it
names, however many others there are. Rounds that were run again after a restart from an older state
file are counted twice.
"""

import math
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl._core.pool import latency_interval, pooled_variance
from bsfl.dashboard.fields import MAX_TIME, Fields
from bsfl.errors import InvalidInput
from bsfl.estimators.random_rounds import Conditions, Observed
from bsfl.monitoring.effect import JournalBlocks
from bsfl.monitoring.journal import Entry
from bsfl.types import FAILED, OK, TIMEOUT, BoolArray, FloatArray, IntArray
from bsfl.validation import LATENCY_RANGE, short

LAST_COHORTS, RECENT = 10, 50
"""Closed rounds whose cohorts are kept, and rounds that count as recent."""
MAX_OPEN, MAX_LATE = 1000, 1000
"""Open rounds that are followed, and closed ones whose late responses are counted."""
HOURS = 24
TOGETHER = 0.001
"""Clients within this part of the slowest latency came last together, as at a deadline."""
PENDING, ABANDONED = -1, -2
"""Outcomes of an invitation of which nothing was reported; whether it may still be."""
CLIENT_COUNTS = (
    "n_invited n_fresh n_late n_timeouts n_failed n_silent n_participations n_last n_timed "
    "last_round why_round"
)
CLIENT = np.dtype(
    [(name, np.int32) for name in CLIENT_COUNTS.split()]
    + [(name, np.float64) for name in ["log_s", "spread", "lost_s", "expected", "worth"]]
)
"""Of each client: invitations and their results (`n_silent`: nothing was reported when a round
ended short of its target), responses that entered the model, rounds that it was the last of, known
latencies; the last round in which it was invited, and in which the journal says what it was weighed
by; mean and squared deviations of its log latencies; the seconds that rounds would have been
shorter without it; the latency that was expected and what its response was worth, in `why_round`.
"""
ROUND_COUNTS = "round n_available n_invited target n_fresh n_late n_lost"
ROUND = np.dtype(
    [(name, np.int32) for name in ROUND_COUNTS.split()]
    + [("duration_s", np.float32), ("deadline_s", np.float32)]
)
"""Of each closed round; NaN where there is no deadline or no duration is known."""


class Rows:
    """A table of numbers that grows."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._rows = np.zeros(64, dtype)
        self.n = 0

    def append(self, n: int) -> None:
        """Add rows of zeros."""
        self.n += n
        if self.n > len(self._rows):
            more = np.zeros(max(self.n, 2 * len(self._rows)), self._rows.dtype)
            more[: len(self._rows)] = self._rows
            self._rows = more

    @property
    def table(self) -> npt.NDArray[Any]:
        """The rows, which can be written."""
        return self._rows[: self.n]


@dataclass(slots=True, eq=False)
class Round:
    """A round that is open, or closed a short time ago.

    Attributes:
        number, n_available, target, opened: Its number, the clients to select from, the target
            responses, and when it was opened in seconds since 1970, NaN if not known.
        deadline_s, duration_s: Seconds, NaN: none.
        rows: The rows of its cohort.
        outcome, latency_s: Places in OUTCOMES or PENDING, and seconds or NaN.
        is_late: Whose response came after the round had closed.
        unit: What clients were weighed in; empty: the journal does not say.
        credited: The rows of clients whose responses in time entered the model.
    """

    number: int
    n_available: int
    target: int
    opened: float
    deadline_s: float
    rows: IntArray
    outcome: IntArray
    latency_s: FloatArray
    is_late: BoolArray
    unit: str = ""
    duration_s: float = math.nan
    is_discarded: bool = False
    credited: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def n_fresh(self) -> int:
        """How many responses came before it closed."""
        return int(np.count_nonzero((self.outcome == OK) & ~self.is_late))

    def report(self, rows: IntArray, outcome: IntArray, latency_s: FloatArray, late: bool) -> None:
        """Note the results of clients; those that were not invited are left out."""
        order = np.argsort(self.rows, kind="stable")
        place = np.searchsorted(self.rows, rows, sorter=order).clip(max=len(order) - 1)
        at = order[place] if len(order) else place
        known = self.rows[at] == rows if len(order) else np.zeros(len(rows), dtype=bool)
        self.outcome[at[known]] = outcome[known]
        self.latency_s[at[known]] = latency_s[known]
        self.is_late[at[known]] = late


@dataclass(slots=True)
class Sums:
    """Sums over the entries of a journal so far.

    Attributes:
        names, index: The id of each row of `clients`, and the row of each id.
        clients, rounds: Rows of CLIENT and of ROUND.
        open, cohorts: The open rounds by number, and the last closed ones.
        n_measured, total_s: Rounds with a known duration, and the sum of these.
        fair_count: Fair count of a client that is always available.
        n_available, n_by_hour: Clients that were available, and rounds, by local hour of the day.
        learned: What the policy had learned at the last close, by name.
        unit: What clients are weighed in; empty: not known.
        blocks: The rounds of policies that alternate.
        time: Of the last entry, in seconds since 1970; NaN: not known.
        n_entries: Entries so far.
    """

    names: list[Any] = field(default_factory=list)
    index: dict[Any, int] = field(default_factory=dict)
    clients: Rows = field(default_factory=lambda: Rows(CLIENT))
    rounds: Rows = field(default_factory=lambda: Rows(ROUND))
    open: dict[int, Round] = field(default_factory=dict)
    cohorts: deque[Round] = field(default_factory=lambda: deque(maxlen=LAST_COHORTS))
    n_measured: int = 0
    total_s: float = 0.0
    fair_count: float = 0.0
    n_available: IntArray = field(default_factory=lambda: np.zeros(HOURS, dtype=np.int64))
    n_by_hour: IntArray = field(default_factory=lambda: np.zeros(HOURS, dtype=np.int64))
    learned: dict[str, float] = field(default_factory=dict)
    unit: str = ""
    blocks: JournalBlocks = field(default_factory=JournalBlocks)
    time: float = math.nan
    n_entries: int = 0

    def add(self, entry: Entry) -> None:
        """Add an entry; a malformed one raises InvalidInput and changes nothing."""
        fields = Fields(entry)
        kind, now = fields.get("kind", str), fields.seconds("time", MAX_TIME)
        match kind:
            case "opened":
                self._opened(fields, entry)
            case "responses":
                self._responses(fields, entry)
            case "closed":
                self._closed(fields, entry)
            case "abandoned":
                self._abandoned(fields.clients("clients"))
            case "forgotten":
                self._forgotten(fields.clients("clients"))
            case "renamed":
                self._renamed(entry.get("client"), entry.get("name"))
        self.n_entries += 1
        self.time = self.time if math.isnan(now) else now

    def _rows(self, ids: list[Any]) -> IntArray:
        """Return the rows of clients; unseen ones get a new row."""
        index = self.index
        for client in ids:
            if client not in index:
                index[client] = len(self.names)
                self.names.append(client)
        self.clients.append(len(self.names) - self.clients.n)
        return np.array([index[client] for client in ids], dtype=np.int64)

    def _opened(self, fields: Fields, entry: Entry) -> None:
        number, invited = fields.count("round"), fields.clients("invited")
        n_available, target = fields.count("n_available"), fields.count("target_responses")
        opened, deadline_s = fields.seconds("time", MAX_TIME), fields.seconds("deadline_s")
        why, arm = fields.part("why"), fields.part("arm")
        weighed, unit = None, ""
        if why is not None:
            ids = why.clients("clients")
            unit = why.get("unit", str)
            weighed = ids, why.numbers("expected", len(ids)), why.numbers("worth", len(ids))
        if arm is not None:
            arm.get("policy", str), arm.get("counts", bool), arm.count("block")
            if arm.count("which") > 1:
                raise InvalidInput("which must be 0 or 1")
        rows = self._rows(invited)
        table, n = self.clients.table, len(rows)
        table["n_invited"][rows] += 1
        table["last_round"][rows] = number
        pending, unknown = np.full(n, PENDING), np.full(n, math.nan)
        late = np.zeros(n, dtype=bool)
        one = Round(
            number, n_available, target, opened, deadline_s, rows, pending, unknown, late, unit
        )
        if weighed is not None:
            self.unit = unit
            at = self._rows(weighed[0])
            table = self.clients.table
            table["why_round"][at] = number
            table["expected"][at], table["worth"][at] = weighed[1:]
        self.open[number] = one
        while len(self.open) > MAX_OPEN:
            del self.open[next(iter(self.open))]
        self.fair_count += min(1.0, target / max(n_available, 1))
        if not math.isnan(opened):
            hour = time.localtime(opened).tm_hour
            self.n_available[hour] += n_available
            self.n_by_hour[hour] += 1
        self.blocks.add(entry)

    def _responses(self, fields: Fields, entry: Entry) -> None:
        number, is_late = fields.count("round"), fields.get("is_late", bool)
        is_dropped = fields.get("dropped", bool)
        ids = fields.clients("clients")
        outcome, latency_s = (
            fields.outcomes(len(ids)),
            fields.numbers("latency_s", len(ids), low=0.0),
        )
        rows, table = self._rows(ids), self.clients.table
        is_ok = outcome == OK
        table["n_late" if is_late else "n_fresh"][rows[is_ok]] += 1
        table["n_participations"][rows[is_ok]] += is_late and not is_dropped
        table["n_timeouts"][rows[outcome == TIMEOUT]] += 1
        table["n_failed"][rows[outcome == FAILED]] += 1
        timed = is_ok & ~np.isnan(latency_s)
        at = rows[timed]
        step = np.log(latency_s[timed].clip(min=LATENCY_RANGE[0])) - table["log_s"][at]
        table["n_timed"][at] += 1
        n = table["n_timed"][at]
        table["log_s"][at] += step / n
        table["spread"][at] += step**2 * (n - 1) / n
        one = self.open.get(number)
        one = one or next((x for x in reversed(self.cohorts) if x.number == number), None)
        if one is not None:
            one.report(rows, outcome, latency_s, is_late)
        if is_late:
            last = self.rounds.table[-MAX_LATE:]
            place = np.flatnonzero(last["round"] == number)[-1:]
            last["n_late"][place] += np.count_nonzero(is_ok)
            last["n_lost"][place] += np.count_nonzero(~is_ok)
        self.blocks.add(entry)

    def _closed(self, fields: Fields, entry: Entry) -> None:
        number, duration_s = fields.count("round"), fields.seconds("duration_s")
        is_discarded, learned = fields.get("is_discarded", bool), self.learned
        if "diagnostics" in entry:  # not where the credit of a closed round is replaced
            learned = fields.by_name("diagnostics")
        credited = self._rows(fields.clients("aggregated"))
        self.learned = learned
        self.blocks.add(entry)
        one = self.open.pop(number, None)
        closed = one or next((x for x in reversed(self.cohorts) if x.number == number), None)
        if closed is not None:
            self.clients.table["n_participations"][closed.credited] -= 1
            self.clients.table["n_participations"][credited] += 1
            closed.credited = credited
        if one is None:  # its credit was replaced
            return
        one.duration_s, one.is_discarded = duration_s, is_discarded
        if one.n_fresh < one.target:  # it has waited for them
            self.clients.table["n_silent"][one.rows[one.outcome == PENDING]] += 1
        self.cohorts.append(one)
        if not math.isnan(duration_s):
            self.n_measured += 1
            self.total_s += duration_s
            self._charge(one)
        self.rounds.append(1)
        n_lost = np.count_nonzero(one.outcome > OK)
        counts = number, one.n_available, len(one.rows), one.target, one.n_fresh, 0, n_lost
        self.rounds.table[-1] = (*counts, duration_s, one.deadline_s)

    def _charge(self, one: Round) -> None:
        """Charge the seconds that a round waited for its last clients to these."""
        clients, second = last_clients(one)
        at, table = one.rows[clients], self.clients.table
        table["n_last"][at] += 1
        if len(at):
            table["lost_s"][at] += (one.latency_s[clients].max() - second) / len(at)

    def _abandoned(self, ids: list[Any]) -> None:
        rows = np.array([self.index[one] for one in ids if one in self.index], dtype=np.int64)
        for one in self.open.values():
            one.outcome[(one.outcome == PENDING) & np.isin(one.rows, rows)] = ABANDONED

    def _forgotten(self, ids: list[Any]) -> None:
        self._abandoned(ids)
        for row in [self.index.pop(one) for one in ids if one in self.index]:
            self.clients.table[row] = np.zeros((), CLIENT)
            self.names[row] = None

    def _renamed(self, was: Any, name: Any) -> None:
        if type(was) not in (int, str) or type(name) not in (int, str) or name in self.index:
            raise InvalidInput(f"cannot rename {short(was)} to {short(name)}")
        if was in self.index:
            self.index[name] = row = self.index.pop(was)
            self.names[row] = name

    # --- what a page asks for --------------------------------------------------------------------

    @property
    def waiting(self) -> Round | None:
        """The round that was opened last, if it is open."""
        return next(reversed(self.open.values()), None)

    @property
    def recent(self) -> npt.NDArray[Any]:
        """The last closed rounds whose duration is known."""
        last = self.rounds.table[-RECENT:]
        known: npt.NDArray[Any] = last[~np.isnan(last["duration_s"])]
        return known

    @property
    def recent_s(self) -> float | None:
        """Mean duration of the recent rounds; None before the first."""
        recent = self.recent["duration_s"]
        return float(recent.mean(dtype=np.float64)) if len(recent) else None

    def invited(self) -> IntArray:
        """Return the rows of clients that were invited, and not forgotten."""
        return np.flatnonzero(self.clients.table["n_invited"])

    def latencies(self, rows: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return median and 80 % interval of the latencies of clients, as in `Scheduler.table`.

        They are NaN for clients that never responded.
        """
        table = self.clients.table
        variance = pooled_variance(table["n_timed"], table["spread"])
        own = table[rows]
        columns = latency_interval(own["n_timed"], own["log_s"], own["spread"], variance)
        middle, low, high = (np.where(own["n_timed"] > 0, one, math.nan) for one in columns)
        return middle, low, high

    def ratios(self, rows: IntArray) -> FloatArray:
        """Return participation ratios: responses that entered the model over the fair count."""
        return np.asarray(self.clients.table["n_participations"][rows] / max(self.fair_count, 1e-9))

    def response_rates(self, rows: IntArray) -> FloatArray:
        """Return the part of the invitations with a response; NaN where no result is known."""
        n_ok, n_missed = self._results(rows)
        known = n_ok + n_missed
        return np.where(known > 0, n_ok / np.maximum(known, 1), math.nan)

    def _results(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return how many invitations clients responded to, and how many they missed.

        A round that reached its target has not waited for the others. They have missed it if the
        journal has late responses, but not theirs, or if they have never responded.
        """
        table, own = self.clients.table, self.clients.table[rows]
        reports_late = bool(table["n_late"].any())
        n_pending = np.zeros(self.clients.n, dtype=np.int64)
        for one in [*self.open.values(), *(self.cohorts if reports_late else ())]:
            n_pending[one.rows[one.outcome == PENDING]] += 1
        n_ok = own["n_fresh"].astype(np.int64) + own["n_late"]
        n_lost = own["n_timeouts"].astype(np.int64) + own["n_failed"]
        n_unreported = (own["n_invited"] - n_ok - n_lost - n_pending[rows]).clip(min=0)
        is_known = (n_ok == 0) | reports_late
        return n_ok, n_lost + np.where(is_known, n_unreported, own["n_silent"])

    def random_selection(self) -> tuple[Observed, Conditions] | None:
        """Return what an estimate of random selection needs; None before the first round."""
        recent = self.recent
        if not len(recent):
            return None
        rows = self.invited()
        own, (n_ok, n_missed) = self.clients.table[rows], self._results(rows)
        observed = Observed(
            n_responses=n_ok,
            n_misses=n_missed,
            n_timed=own["n_timed"].astype(np.int64),
            log_latency=own["log_s"],
            spread=own["spread"],
        )
        deadline_s = float(recent["deadline_s"][-1])
        n_available, n_invited, target = (
            max(1, round(float(np.median(recent[name]))))
            for name in ("n_available", "n_invited", "target")
        )
        return observed, Conditions(
            n_available=n_available,
            n_invited=n_invited,
            target_responses=target,
            deadline_s=None if math.isnan(deadline_s) else deadline_s,
        )


def last_clients(one: Round) -> tuple[IntArray, float]:
    """Return the places of the clients that came last, and the time of the response before."""
    waited: BoolArray = one.latency_s <= one.duration_s
    longest = one.latency_s[waited].max(initial=0.0)
    is_last: BoolArray = waited & (one.latency_s >= (1 - TOGETHER) * longest)
    return np.flatnonzero(is_last), float(one.latency_s[waited & ~is_last].max(initial=0.0))


def is_short(rounds: npt.NDArray[Any]) -> BoolArray:
    """Return which rounds ended by their deadline, or with fewer than the target responses."""
    short_of: BoolArray = rounds["n_fresh"] < rounds["target"]
    return short_of | (rounds["duration_s"] >= rounds["deadline_s"])


def largest(values: npt.NDArray[Any], n: int) -> IntArray:
    """Return the places of the n largest positive values, the largest first.

    >>> largest(np.array([3, 0, 9, 4]), 2).tolist(), largest(np.zeros(3), 2).tolist()
    ([2, 3], [])
    """
    n = min(n, len(values))
    at = np.argpartition(-values, n - 1)[:n] if n else np.zeros(0, dtype=np.int64)
    at = at[np.argsort(-values[at], kind="stable")]
    return at[values[at] > 0]
