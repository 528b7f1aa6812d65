"""A journal as it grows: round times, who they waited for, participation, the last cohorts.

Everything is kept in sums by client, so a journal of any length costs what its fleet costs.
"""

import os
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bsfl.fairness import gini
from bsfl.monitor.journal import Entry, entry_of, journal_files

LAST_ROUNDS, LAST_COHORTS = 300, 10
"""Rounds whose times are kept, and cohorts that are."""


@dataclass(slots=True)
class ClientSums:
    """What a journal says of one client.

    Attributes:
        n_invited, n_ok, n_timeouts, n_failed, n_late: Invitations, and what became of them.
        sum_s: Seconds that its answers in the model took, together.
        lost_s: Seconds that rounds would have been shorter without it: of each round that waited
            for it, the time between the second slowest answer and its own.
        last_t: The round in which it was invited last.
    """

    n_invited: int = 0
    n_ok: int = 0
    n_timeouts: int = 0
    n_failed: int = 0
    n_late: int = 0
    sum_s: float = 0.0
    lost_s: float = 0.0
    last_t: int = 0

    def count(self, outcome: str | None, step: int = 1) -> None:
        """Count an outcome; None: nothing was reported."""
        name = {"ok": "n_ok", "timeout": "n_timeouts", "failed": "n_failed", "late": "n_late"}
        if outcome in name:
            setattr(self, name[outcome], getattr(self, name[outcome]) + step)


@dataclass(slots=True)
class Followed:
    """Sums over the entries of a journal so far.

    Attributes:
        clients: By id.
        rounds: (t, duration_s, slowest client) of the last rounds.
        cohorts: The last entries of rounds.
        n_rounds, total_s: Of all rounds.
        fair: Fair number of answers of a client that was always available.
    """

    clients: dict[Any, ClientSums] = field(default_factory=dict)
    rounds: deque[tuple[int, float | None, Any]] = field(
        default_factory=lambda: deque(maxlen=LAST_ROUNDS)
    )
    cohorts: deque[Entry] = field(default_factory=lambda: deque(maxlen=LAST_COHORTS))
    n_rounds: int = 0
    total_s: float = 0.0
    fair: float = 0.0

    def add(self, entry: Entry) -> None:
        """Take in an entry; one that is not as we write them is passed over."""
        try:
            if entry["kind"] == "round":
                self._round(entry)
            elif entry["kind"] == "late":
                self._of(entry["client"]).count(entry["outcome"])
        except (KeyError, TypeError, ValueError):
            return

    def _of(self, client: Any) -> ClientSums:
        return self.clients.setdefault(client, ClientSums())

    def _round(self, entry: Entry) -> None:
        who, outcome, latency = entry["invited"], entry["outcome"], entry["latency_s"]
        t, duration_s = int(entry["t"]), entry["duration_s"]
        self.n_rounds += 1
        self.fair += min(1.0, entry["enough"] / max(entry["available"], 1))
        for client, how, seconds in zip(who, outcome, latency, strict=True):
            sums = self._of(client)
            sums.n_invited += 1
            sums.last_t = t
            sums.count(how)
            sums.sum_s += seconds if how == "ok" else 0.0
        slowest = None
        if duration_s is not None:
            self.total_s += duration_s
            waited = [(s, c) for s, c in zip(latency, who, strict=True) if s is not None]
            waited = sorted((x for x in waited if x[0] <= duration_s), key=lambda x: -x[0])
            if waited:
                slowest = waited[0][1]
                second = waited[1][0] if len(waited) > 1 else 0.0
                self._of(slowest).lost_s += waited[0][0] - second
        self.rounds.append((t, duration_s, slowest))
        self.cohorts.append(entry)

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
        return self.sums
