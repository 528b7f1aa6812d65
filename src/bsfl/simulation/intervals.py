"""Clients that come and go on the virtual clock: online since when and until when."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.simulation.client_rows import file_path, follow, quoted, read_numbers
from bsfl.types import BoolArray, FloatArray, IntArray, Rng

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
WEEK_S = 7 * DAY_S

COLUMNS = ("start_s", "end_s")
MAX_S = 1e12
"""Latest second that a file may name; beyond, a unit was mistaken."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals [start, end) during which each client is online; they repeat with a period.

    Those of client k are at offsets[k] to offsets[k + 1] - 1 of `start` and `end`, in order. All
    begin within one period, and the last may run over its end until the first begins again: so
    a client that is online when the period ends does not leave because of that.

    Attributes:
        start: When each interval begins, seconds from the beginning of the period.
        end: When it is over.
        offsets: Where the intervals of each client begin, and where the last ones end.
        period_s: After how many seconds everything repeats.
        origin_s: Second of the period at which the virtual clock starts.
    """

    start: FloatArray
    end: FloatArray
    offsets: IntArray
    period_s: float = WEEK_S
    origin_s: float = 0.0

    def __post_init__(self) -> None:
        validation.positive("period_s", self.period_s)
        validation.at_least("origin_s", self.origin_s, 0.0)
        if len(self.start) != len(self.end) or len(self.start) != self.offsets[-1]:
            raise InvalidInput(
                f"start, end and offsets must describe the same intervals, got {len(self.start)}, "
                f"{len(self.end)} and {self.offsets[-1]}"
            )
        some, first, after = self._not_empty()
        again = np.append(self.start[1:], np.inf)  # when the client's next interval begins
        again[after - 1] = self.start[first] + self.period_s
        fits = (self.start >= 0) & (self.start < self.period_s)
        fits &= (self.start < self.end) & (self.end <= again)
        if not fits.all():
            wrong = int(np.argmin(fits))
            client = int(some[np.searchsorted(after, wrong, side="right")])
            raise InvalidInput(
                f"the intervals of client {client} must begin within the period of "
                f"{self.period_s:,g} s, end after they begin and not overlap, got "
                f"[{self.start[wrong]:g}, {self.end[wrong]:g})"
            )

    @property
    def n_clients(self) -> int:
        return len(self.offsets) - 1

    def reachable(self, t: int, clock_s: float, n_clients: int, rng: Rng) -> BoolArray:
        now, _, end = self._latest(clock_s)
        return now < end

    def online_s(self, clock_s: float) -> FloatArray:
        """Return for how many seconds each client has been online, NaN for offline ones."""
        now, start, end = self._latest(clock_s)
        return np.where(now < end, now - start, np.nan)

    def online_until(self, clock_s: float) -> FloatArray:
        """Return the virtual time at which each client leaves, NaN for offline ones.

        Infinite for a client whose one interval fills the period: it never leaves.
        """
        now, start, end = self._latest(clock_s)
        leaves = np.where(end - start < self.period_s, clock_s + (end - now), np.inf)
        return np.where(now < end, leaves, np.nan)

    def followed_by(self, devices: IntArray) -> "Intervals":
        """Return the intervals of clients of which the k-th does what client devices[k] does."""
        counts = np.diff(self.offsets)[devices]
        offsets = np.append(0, np.cumsum(counts))
        which = np.arange(offsets[-1]) + np.repeat(self.offsets[devices] - offsets[:-1], counts)
        return Intervals(self.start[which], self.end[which], offsets, self.period_s, self.origin_s)

    def _latest(self, clock_s: float) -> tuple[float, FloatArray, FloatArray]:
        """Return the second of the period and each client's last interval that has begun by then.

        Before the first one of the period that is the last one of the period before. NaN for a
        client without intervals.
        """
        now = (self.origin_s + clock_s) % self.period_s
        some, first, after = self._not_empty()
        if not len(some):
            return now, *np.full((2, self.n_clients), np.nan)
        n_begun = np.add.reduceat(self.start <= now, first, dtype=np.int64)
        which = np.where(n_begun > 0, first + n_begun, after) - 1
        back_s = np.where(n_begun > 0, 0.0, self.period_s)
        start, end = np.full((2, self.n_clients), np.nan)
        start[some], end[some] = self.start[which] - back_s, self.end[which] - back_s
        return now, start, end

    def _not_empty(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return the clients that have intervals, their first one and the place after the last."""
        some = np.flatnonzero(np.diff(self.offsets))
        return some, self.offsets[some], self.offsets[some + 1]


def read_intervals(
    n_clients: int,
    rng: Rng,
    *,
    path: str | Path,
    period_s: float = WEEK_S,
    start_hour: float = 0.0,
    ids: Sequence[str] | None = None,
) -> Intervals:
    """Return the intervals recorded in a CSV with the header client,start_s,end_s.

    Each client follows a random recorded one, twice the same only if there are fewer. Intervals
    that touch are one: the client was there all the time.

    Args:
        path: The CSV file; the lines of one client are in the order of time.
        period_s: When the record starts again, seconds.
        start_hour: Hour of the record's first day at which the virtual clock starts.
        ids: Names of the clients; those in the file follow their own records.
    """
    validation.positive("period_s", period_s)
    recorded: dict[str, list[list[float]]] = {}
    path = file_path(path)
    _, rows = read_numbers(path, (COLUMNS,), limits=(0.0, MAX_S))
    for line, client, (start, end) in rows:
        known = recorded.setdefault(client, [])
        _check(f"{path}, line {line}", quoted(client), known, start, end, period_s)
        if known and known[-1][1] == start:
            known[-1][1] = end
        else:
            known.append([start, end])
    lives = [_joined(known, period_s) for known in recorded.values()]
    start, end = np.array([interval for life in lives for interval in life]).T
    offsets = np.append(0, np.cumsum([len(life) for life in lives]))
    origin_s = HOUR_S * validation.between("start_hour", start_hour, 0.0, 24.0)
    devices = follow(list(recorded), n_clients, rng, ids)
    return Intervals(start, end, offsets, period_s, origin_s).followed_by(devices)


def _check(
    place: str, client: str, known: list[list[float]], start: float, end: float, period_s: float
) -> None:
    """Check an interval against those of the client that stand before it in the file."""
    if end <= start:
        raise InvalidInput(f"{place}: end_s must be after start_s = {start:g}, got {end:g}")
    if known and start < known[-1][1]:
        raise InvalidInput(
            f"{place}: intervals of client {client!r} must follow each other without overlap, "
            f"got start_s = {start:g} after end_s = {known[-1][1]:g}"
        )
    if start >= period_s:
        raise InvalidInput(
            f"{place}: start_s must be below the period of {period_s:,g} s, got {start:g}"
        )
    latest = period_s + (known[0][0] if known else start)
    if end > latest:
        raise InvalidInput(
            f"{place}: end_s must be at most {latest:g}, when the first interval of client "
            f"{client!r} begins again, got {end:g}"
        )


def _joined(life: list[list[float]], period_s: float) -> list[list[float]]:
    """Return intervals of which the last and the first are one if they touch over the period."""
    (start, end), last = life[0], life[-1]
    if len(life) == 1 or last[1] < start + period_s:
        return life
    return [*life[1:-1], [last[0], end + period_s]]
