"""A journal as it grows: durations, latencies, participation, the last cohorts, open rounds.

Everything is kept in sums by client, so memory grows with the clients, not with the rounds. Rounds
that were run again after a restart from an older state file are counted twice.
"""

import math
import os
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bsfl._core.pool import latency_interval, pooled_variance
from bsfl.estimators.fairness import gini
from bsfl.monitoring.journal import Entry, entry_of, journal_files
from bsfl.validation import LATENCY_RANGE

LAST_ROUNDS, LAST_COHORTS = 300, 10
"""Rounds whose durations are kept, and cohorts that are."""
MAX_OPEN = 1000
"""Open rounds that are followed; beyond it the oldest are dropped."""
HOURS = 24
TOGETHER = 0.001
"""Clients within this part of the slowest latency came last together, as at a deadline."""


@dataclass(slots=True)
class ClientSums:
    """What a journal says of one client.

    Attributes:
        n_invited, n_fresh, n_timeouts, n_failed, n_late: Invitations and their results.
        n_last: Rounds whose last response it was.
        n_timed, log_s, spread: How many latencies are known, the mean of their logarithms and the
            sum of squared deviations from it.
        lost_s: Seconds that rounds would have been shorter without it: for each round that it was
            the last of, the time since the response before. Clients that come last together share
            it.
        last_round: The round in which it was invited last.
    """

    n_invited: int = 0
    n_fresh: int = 0
    n_timeouts: int = 0
    n_failed: int = 0
    n_late: int = 0
    n_last: int = 0
    n_timed: int = 0
    log_s: float = 0.0
    spread: float = 0.0
    lost_s: float = 0.0
    last_round: int = 0

    def count(self, outcome: str, latency_s: float | None, *, is_late: bool) -> None:
        """Count the result of an invitation."""
        name = {"ok": "n_late" if is_late else "n_fresh", "timeout": "n_timeouts"}.get(outcome)
        name = name or "n_failed"
        setattr(self, name, getattr(self, name) + 1)
        if outcome == "ok" and latency_s is not None:
            step = math.log(max(float(latency_s), LATENCY_RANGE[0])) - self.log_s
            self.n_timed += 1
            self.log_s += step / self.n_timed
            self.spread += step**2 * (self.n_timed - 1) / self.n_timed


@dataclass(frozen=True, slots=True)
class PastRound:
    """A closed round: its number, how long it took, and the clients that came last."""

    round: int
    duration_s: float | None
    last: tuple[Any, ...]
    n_invited: int
    n_fresh: int


@dataclass(slots=True)
class OpenRound:
    """A round that is open: its `opened` entry, and the results so far.

    Attributes:
        entry: Its entry; `invited` lists the cohort.
        outcome, latency_s: Results in the order of the cohort; None: not reported.
        place: Where each client stands in the cohort.
    """

    entry: Entry
    outcome: list[str | None]
    latency_s: list[float | None]
    place: dict[Any, int]

    @classmethod
    def of(cls, entry: Entry) -> "OpenRound":
        """Return a round of which no client has been reported."""
        clients: list[Any] = entry["invited"]
        n = len(clients)
        return cls(entry, [None] * n, [None] * n, dict(zip(clients, range(n), strict=True)))

    @property
    def pending(self) -> list[Any]:
        """The clients that have not been reported."""
        pairs = zip(self.entry["invited"], self.outcome, strict=True)
        return [client for client, outcome in pairs if outcome is None]


@dataclass(slots=True)
class Followed:
    """Sums over the entries of a journal so far.

    Attributes:
        clients: By id.
        rounds: The last closed ones.
        cohorts: The last closed rounds with their results, as dicts.
        open: The open rounds by number.
        n_rounds: How many rounds have closed.
        n_measured, total_s: How many of them have a known duration, and the sum of these.
        fair_count: Fair count of a client that was always available.
        n_available, n_by_hour: Clients that were available, and rounds, by local hour of the day.
        ended: When the last round closed, in seconds since 1970; None: not known.
    """

    clients: dict[Any, ClientSums] = field(default_factory=dict)
    rounds: deque[PastRound] = field(default_factory=lambda: deque(maxlen=LAST_ROUNDS))
    cohorts: deque[Entry] = field(default_factory=lambda: deque(maxlen=LAST_COHORTS))
    open: dict[int, OpenRound] = field(default_factory=dict)
    n_rounds: int = 0
    n_measured: int = 0
    total_s: float = 0.0
    fair_count: float = 0.0
    n_available: list[int] = field(default_factory=lambda: [0] * HOURS)
    n_by_hour: list[int] = field(default_factory=lambda: [0] * HOURS)
    ended: float | None = None

    def add(self, entry: Entry) -> None:
        """Add an entry; a malformed one is ignored."""
        add = {
            "opened": self._opened,
            "responses": self._responses,
            "closed": self._closed,
            "abandoned": self._abandoned,
            "forgotten": self._forgotten,
            "renamed": self._renamed,
        }
        try:
            if entry["kind"] in add:
                add[entry["kind"]](entry)
        except (KeyError, TypeError, ValueError, OverflowError, OSError):
            return

    def _of(self, client: Any) -> ClientSums:
        return self.clients.setdefault(client, ClientSums())

    def _opened(self, entry: Entry) -> None:
        one, number = OpenRound.of(entry), int(entry["round"])
        n_available, opened = int(entry["n_available"]), entry.get("time")
        hour = None if opened is None else time.localtime(opened).tm_hour
        self.fair_count += min(1.0, entry["target_responses"] / max(n_available, 1))
        for client in one.place:
            sums = self._of(client)
            sums.n_invited += 1
            sums.last_round = number
        if hour is not None:
            self.n_available[hour] += n_available
            self.n_by_hour[hour] += 1
        self.open[number] = one
        while len(self.open) > MAX_OPEN:
            del self.open[next(iter(self.open))]

    def _responses(self, entry: Entry) -> None:
        number, is_late = int(entry["round"]), bool(entry["is_late"])
        results = zip(entry["clients"], entry["outcome"], entry["latency_s"], strict=True)
        one = self.open.get(number)
        past = next((x for x in self.cohorts if x["round"] == number), None)
        for client, outcome, latency_s in results:
            self._of(client).count(outcome, latency_s, is_late=is_late)
            if one is not None and client in one.place:
                at = one.place[client]
                one.outcome[at], one.latency_s[at] = outcome, latency_s
            elif past is not None and client in past["invited"]:
                at = past["invited"].index(client)
                past["outcome"][at] = "late" if outcome == "ok" else outcome
                past["latency_s"][at] = latency_s

    def _closed(self, entry: Entry) -> None:
        one = self.open.pop(int(entry["round"]), None)
        if one is None:  # its credit was replaced
            return
        invited, duration_s = one.entry["invited"], entry["duration_s"]
        last: tuple[Any, ...] = ()
        self.n_rounds += 1
        if duration_s is not None:
            self.n_measured += 1
            self.total_s += duration_s
            last = self._charge(duration_s, one.latency_s, invited)
        self.ended = entry.get("time", self.ended)
        n_fresh = one.outcome.count("ok")
        self.rounds.append(PastRound(entry["round"], duration_s, last, len(invited), n_fresh))
        results = {"outcome": one.outcome, "latency_s": one.latency_s}
        closed = {name: entry[name] for name in ("round", "duration_s", "is_discarded")}
        closed |= {name: entry[name] for name in ("diagnostics", "aggregated")}
        self.cohorts.append({**one.entry, **closed, **results})

    def _abandoned(self, entry: Entry) -> None:
        for client in entry["clients"]:
            for one in self.open.values():
                at = one.place.get(client)
                if at is not None and one.outcome[at] is None:
                    one.outcome[at] = "abandoned"

    def _forgotten(self, entry: Entry) -> None:
        self._abandoned(entry)
        for client in entry["clients"]:
            self.clients.pop(client, None)

    def _renamed(self, entry: Entry) -> None:
        """Move what is known to the new id; cohorts in the past keep the old one."""
        was, name = entry["client"], entry["name"]
        if was in self.clients:
            self.clients[name] = self.clients.pop(was)
        for one in self.open.values():
            if was in one.place:
                one.place[name] = at = one.place.pop(was)
                one.entry["invited"][at] = name

    def _charge(
        self, duration_s: float, latency_s: list[float | None], clients: list[Any]
    ) -> tuple[Any, ...]:
        """Charge the seconds that a round waited for its last clients; return those clients."""
        known = zip(latency_s, clients, strict=True)
        waited = [(s, client) for s, client in known if s is not None and s <= duration_s]
        longest = max((s for s, _ in waited), default=0.0)
        last = [client for s, client in waited if s >= (1 - TOGETHER) * longest]
        second = max((s for s, _ in waited if s < (1 - TOGETHER) * longest), default=0.0)
        for client in last:
            sums = self._of(client)
            sums.n_last += 1
            sums.lost_s += (longest - second) / len(last)
        return tuple(last)

    @property
    def waiting(self) -> OpenRound | None:
        """The round that was opened last, if it is open."""
        return next(reversed(self.open.values()), None)

    @property
    def mean_s(self) -> float | None:
        """Mean duration of the rounds in which it is known; None before the first."""
        return self.total_s / self.n_measured if self.n_measured else None

    def gini(self) -> float:
        """Return the Gini coefficient of the fresh responses of all invited clients."""
        return gini(np.array([one.n_fresh for one in self.clients.values()] or [0]))

    def latencies(self) -> dict[Any, tuple[float, float, float]]:
        """Return median and 80 % interval of the latency of each client that responded.

        The same estimate as in `Scheduler.table`.
        """
        known = {client: sums for client, sums in self.clients.items() if sums.n_timed}
        n_timed = np.array([one.n_timed for one in known.values()], dtype=np.int64)
        mean, spread = (
            np.array([getattr(one, name) for one in known.values()]) for name in ("log_s", "spread")
        )
        columns = latency_interval(n_timed, mean, spread, pooled_variance(n_timed, spread))
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return dict(zip(known, rows, strict=True))


class Follower:
    """Reads a journal from its beginning, and then what is new, also when it is rotated."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.sums = Followed()
        self._inode = 0  # of the file that was read last
        self._offset = 0  # how much of it

    def update(self) -> Followed:
        """Read what is new and return the sums; if the last file is gone, all is read again."""
        files = [(one, one.stat()) for one in journal_files(self.path) if one.exists()]
        at = [i for i, (_, now) in enumerate(files) if now.st_ino == self._inode]
        if not at or files[at[0]][1].st_size < self._offset:
            self.sums, self._offset, at = Followed(), 0, [0]
        for one, now in files[at[0] :]:
            if now.st_ino != self._inode:
                self._inode, self._offset = now.st_ino, 0
            with one.open("rb") as file:
                file.seek(self._offset)
                for line in file:
                    if not line.endswith(b"\n"):  # it is being written
                        break
                    self._offset += len(line)
                    if (entry := entry_of(line)) is not None:
                        self.sums.add(entry)
        return self.sums
