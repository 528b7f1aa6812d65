"""A journal as it grows: round times, who they waited for, participation, the last cohorts.

Everything is kept in sums by client, so a journal of any length costs what its fleet costs.
"""

import math
import os
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bsfl.fairness import gini
from bsfl.monitor.journal import Entry, entry_of, journal_files, under_way

LAST_ROUNDS, LAST_COHORTS = 300, 10
"""Rounds whose times are kept, and cohorts that are."""
HOURS = 24
EIGHT_OF_TEN = 1.2816
"""Standard deviations of a normal around its mean that hold 8 of 10 values."""
LEAST_S = 1e-6
"""Latencies below it count as this."""
TOGETHER = 0.001
"""Who is so near to the slowest came together with it, such as all that missed a deadline."""


@dataclass(slots=True)
class ClientSums:
    """What a journal says of one client.

    Attributes:
        n_invited, n_ok, n_timeouts, n_failed, n_late: Invitations, and what became of them.
        n_last: Rounds that waited for it to the end.
        n_timed, log_s, log2_s: Answers whose latency is known, in time or late, and the sums of the
            logarithms of these and of their squares.
        lost_s: Seconds that rounds would have been shorter without it: of each round that waited
            for it, the time between the next slowest answer and its own. Those that come last
            together share them.
        last_t: The round in which it was invited last.
    """

    n_invited: int = 0
    n_ok: int = 0
    n_timeouts: int = 0
    n_failed: int = 0
    n_late: int = 0
    n_last: int = 0
    n_timed: int = 0
    log_s: float = 0.0
    log2_s: float = 0.0
    lost_s: float = 0.0
    last_t: int = 0

    def count(self, outcome: str | None, seconds: float | None = None) -> None:
        """Count an outcome; None: nothing was reported."""
        name = {"ok": "n_ok", "timeout": "n_timeouts", "failed": "n_failed", "late": "n_late"}
        if outcome in name:
            setattr(self, name[outcome], getattr(self, name[outcome]) + 1)
        if outcome in ("ok", "late") and seconds is not None:
            log = math.log(max(float(seconds), LEAST_S))
            self.n_timed += 1
            self.log_s += log
            self.log2_s += log * log

    @property
    def latency_s(self) -> tuple[float, float, float] | None:
        """Median of its latencies, and between what times 8 of 10 come; None: it gave no answer."""
        if not self.n_timed:
            return None
        mean = self.log_s / self.n_timed
        sigma = math.sqrt(max(self.log2_s / self.n_timed - mean * mean, 0.0))
        low, high = mean - EIGHT_OF_TEN * sigma, mean + EIGHT_OF_TEN * sigma
        return math.exp(mean), math.exp(low), math.exp(high)


@dataclass(frozen=True, slots=True)
class PastRound:
    """A round that is over: its number, how long it took, and for whom it waited to the end."""

    t: int
    duration_s: float | None
    last: tuple[Any, ...]
    n_invited: int
    n_ok: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A round that is under way: its number, since when, how many have answered, who has not.

    Of `n_waits_for` clients that have not, some are named.
    """

    t: int
    since: float
    n_invited: int
    n_waits_for: int
    waits_for: tuple[Any, ...]

    @classmethod
    def of(cls, entry: Entry | None) -> "Waiting | None":
        """Return what NAME.now tells; None if that is nothing, or not as we write it."""
        if entry is None:
            return None
        try:
            numbers = int(entry["t"]), float(entry["time"]), int(entry["invited"])
            return cls(*numbers, int(entry["n_waits_for"]), tuple(entry["waits_for"]))
        except (KeyError, TypeError, ValueError, OverflowError):
            return None


@dataclass(slots=True)
class Followed:
    """Sums over the entries of a journal so far.

    Attributes:
        clients: By id.
        rounds: The last ones.
        cohorts: The last entries of rounds.
        n_rounds, total_s: Of all rounds.
        fair: Fair number of answers of a client that was always available.
        n_available, n_by_hour: Clients that were available, and rounds, by hour of the day where
            this runs.
        ended: When the last round was over, in seconds since 1970; None: that is not known.
        waiting: The round that is under way and for whom it waits; None: none is known of.
    """

    clients: dict[Any, ClientSums] = field(default_factory=dict)
    rounds: deque[PastRound] = field(default_factory=lambda: deque(maxlen=LAST_ROUNDS))
    cohorts: deque[Entry] = field(default_factory=lambda: deque(maxlen=LAST_COHORTS))
    n_rounds: int = 0
    total_s: float = 0.0
    fair: float = 0.0
    n_available: list[int] = field(default_factory=lambda: [0] * HOURS)
    n_by_hour: list[int] = field(default_factory=lambda: [0] * HOURS)
    ended: float | None = None
    waiting: Waiting | None = None

    def add(self, entry: Entry) -> None:
        """Take in an entry; one that is not as we write them is passed over."""
        try:
            if entry["kind"] == "round":
                self._round(entry)
            elif entry["kind"] == "late":
                self._late(entry)
        except (KeyError, TypeError, ValueError, OverflowError, OSError):
            return

    def _of(self, client: Any) -> ClientSums:
        return self.clients.setdefault(client, ClientSums())

    def _round(self, entry: Entry) -> None:
        who, outcome, latency = entry["invited"], entry["outcome"], entry["latency_s"]
        t, duration_s, available = int(entry["t"]), entry["duration_s"], int(entry["available"])
        ended = entry.get("time")
        hour = None if ended is None else time.localtime(ended).tm_hour
        self.n_rounds += 1
        self.fair += min(1.0, entry["enough"] / max(available, 1))
        for client, how, seconds in zip(who, outcome, latency, strict=True):
            sums = self._of(client)
            sums.n_invited += 1
            sums.last_t = t
            sums.count(how, seconds)
        last: tuple[Any, ...] = ()
        if duration_s is not None:
            self.total_s += duration_s
            last = self._charge(duration_s, latency, who)
        if hour is not None:
            self.ended = ended
            self.n_available[hour] += available
            self.n_by_hour[hour] += 1
        self.rounds.append(PastRound(t, duration_s, last, len(who), outcome.count("ok")))
        self.cohorts.append(entry)

    def _late(self, entry: Entry) -> None:
        client, outcome, seconds = entry["client"], entry["outcome"], entry.get("latency_s")
        self._of(client).count(outcome, seconds)
        for asked in self.cohorts:
            if asked["t"] == entry["t"] and client in asked["invited"]:
                place = asked["invited"].index(client)
                asked["outcome"][place], asked["latency_s"][place] = outcome, seconds

    def _charge(self, duration_s: float, latency: list[Any], who: list[Any]) -> tuple[Any, ...]:
        """Charge the seconds that a round waited for its last to them; return who that is."""
        known = zip(latency, who, strict=True)
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
    def mean_s(self) -> float | None:
        """Mean duration of all rounds; None before the first."""
        return self.total_s / self.n_rounds if self.n_rounds else None

    def evenness(self) -> float:
        """Return the Gini coefficient of the answers of all clients that were ever invited."""
        return gini(np.array([one.n_ok for one in self.clients.values()] or [0]))


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
        waiting = Waiting.of(under_way(self.path))
        is_over = waiting is not None and waiting.since < (self.sums.ended or 0.0)
        self.sums.waiting = None if is_over else waiting
        return self.sums
