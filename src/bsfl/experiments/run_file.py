"""One run on disk: records of fixed size, how long selecting took, and checksums of both.

A run is deterministic, so a file that ends early, even within a record, is cut to whole records
and continued; the finished bytes are the same however often it was interrupted. A finished run is
finalised: a small JSON file holds the checksums of both files and the versions that finished it,
and every later reader compares them.
"""

import hashlib
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import bsfl
from bsfl.errors import InvalidInput
from bsfl.experiments import checksummed
from bsfl.experiments.scenario import Scenario
from bsfl.persistence import lock, replace_file
from bsfl.types import RoundRecord

Records = npt.NDArray[np.void]
Versions = dict[str, str]

PLACES = ("cohort", "kept")
"""Columns of clients; some places may be empty."""
FLUSH_EVERY, FLUSH_EVERY_S = 50, 1.0
"""Rounds between two writes to disk, and seconds if they take longer, so that progress shows."""
RUN_AGAIN = "delete it and run the scenario again"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Let one process at a time write into a folder; others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        lock(file)
        yield


def versions_now(scenario: Scenario) -> Versions:
    """Return the versions of all that the numbers of a scenario depend on."""
    packages = ("numpy", *(scenario.learning.packages if scenario.learning else ()))
    return {"bsfl": bsfl.__version__, "python": platform.python_version()} | {
        package: metadata.version(package) for package in packages
    }


class RunFile:
    """The records of one policy with one seed; beside them timing, checksums and checkpoint.

    One that an earlier version wrote, `is_older`, may have no checksums.
    """

    def __init__(
        self, path: Path, scenario: Scenario, dtype: "np.dtype[np.void]", *, is_older: bool = False
    ) -> None:
        self.path, self.scenario, self.dtype, self.is_older = path, scenario, dtype, is_older
        self.timing, self.checkpoint = path.with_suffix(".seconds"), path.with_suffix(".model")
        self.checksum_path = path.with_suffix(".json")

    def n_done(self) -> int:
        """Return how many whole records are on disk."""
        return self.path.stat().st_size // self.dtype.itemsize if self.path.exists() else 0

    def progress(self) -> float:
        """Return how much of the run is on disk, from 0 to 1."""
        n_done = self.n_done()
        if not n_done:
            return 0.0
        before_last = (n_done - 1) * self.dtype.itemsize
        (last,) = np.fromfile(self.path, self.dtype, count=1, offset=before_last)
        played = n_done / self.scenario.rounds
        return min(1.0, max(played, float(last["clock_s"]) / self.scenario.time_s))

    def is_finished(self) -> bool:
        """Return whether the run is complete and finalised; checksums are compared by readers."""
        if self.progress() < 1:
            return False
        known = self.checksums()
        if known is None:
            return self.is_older
        return known["seconds"] is None or self.timing.exists()

    def append(
        self, records: Iterable[RoundRecord], seconds: Callable[[], float | None] = lambda: None
    ) -> None:
        """Write the records that are not on disk yet, and finalise the run; they start at round 1.

        One process at a time writes a file, a second one waits for it. What is on disk already is
        compared with what is computed now, so that two halves of a run always belong together.
        `seconds` returns at the end how long selecting and observing took in a round.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            lock(file)
            if self.is_finished():
                return
            file.truncate(self.n_done() * self.dtype.itemsize)
            file.seek(0)
            for batch in _batches(records):
                content = self._pack(batch)
                there = file.read(len(content))
                if content[: len(there)] != there:
                    raise self._differs()
                file.write(content[len(there) :])
                file.flush()
            if file.read(1):
                raise self._differs()
            os.fsync(file.fileno())
            if self.progress() == 1:
                if (took_s := seconds()) is not None:
                    replace_file(self.timing, f"{took_s:.9f}\n".encode())
                self.finalise(versions_now(self.scenario))

    def finalise(self, versions: Versions) -> None:
        """Write the checksums of a finished run, and the versions that finished it."""
        seconds = self.timing.read_bytes() if self.timing.exists() else None
        content = {
            "records": hashlib.sha256(self.path.read_bytes()).hexdigest(),
            "seconds": None if seconds is None else hashlib.sha256(seconds).hexdigest(),
            "versions": versions,
        }
        checksummed.write(self.checksum_path, content)

    def checksums(self) -> dict[str, Any] | None:
        """Return what was written when the run was finalised; None: it was not."""
        if not self.checksum_path.exists():
            return None
        return checksummed.read(self.checksum_path, advice=RUN_AGAIN)

    def read(self) -> Records:
        """Return all records of a finished run, as they were when it was finished."""
        known = self.checksums()
        content = self.path.read_bytes() if self.path.exists() else b""
        if content and known is not None:
            self._compare(self.path, content, known["records"])
        if self.progress() < 1 or (known is None and not self.is_older):
            raise InvalidInput(
                f"{self.path} is not finished ({self.progress():.0%}); run the scenario again"
            )
        if len(content) % self.dtype.itemsize == 0:
            records = np.frombuffer(content, dtype=self.dtype)
            if np.array_equal(records["round"], np.arange(1, len(records) + 1)):
                return records
        raise InvalidInput(f"{self.path} is damaged; {RUN_AGAIN}")

    def selection_s(self) -> float | None:
        """Return the seconds of selecting and observing in a round, where they were measured."""
        known = self.checksums()
        digest = known["seconds"] if known else None
        if not self.timing.is_file():
            if digest:
                raise InvalidInput(f"{self.timing} is missing; run the scenario again")
            return None
        content = self.timing.read_bytes()
        if known:
            self._compare(self.timing, content, digest)
        try:
            return float(content)
        except ValueError:
            raise InvalidInput(f"{self.timing} is damaged; {RUN_AGAIN}") from None

    def _compare(self, path: Path, content: bytes, digest: str | None) -> None:
        if hashlib.sha256(content).hexdigest() != digest:
            raise InvalidInput(f"{path} is damaged; {RUN_AGAIN}")

    def _differs(self) -> InvalidInput:
        return InvalidInput(
            f"{self.path} differs from what is computed now: it is damaged, or was "
            "made by other versions; delete it to compute the run again"
        )

    def _pack(self, batch: Sequence[RoundRecord]) -> bytes:
        packed = np.zeros(len(batch), dtype=self.dtype)
        for name in self.dtype.names or ():
            if name not in PLACES:
                values = [getattr(record, name) for record in batch]
                packed[name] = [np.nan if value is None else value for value in values]
        for name in PLACES:
            packed[name] = -1
            for row, record in zip(packed[name], batch, strict=True):
                clients = getattr(record, name)
                row[: len(clients)] = clients
        return packed.tobytes()


def _batches(records: Iterable[RoundRecord]) -> Iterator[list[RoundRecord]]:
    """Yield records in batches that are worth a write."""
    batch, begun_s = [], time.monotonic()
    for record in records:
        batch.append(record)
        if len(batch) == FLUSH_EVERY or time.monotonic() - begun_s > FLUSH_EVERY_S:
            yield batch
            batch, begun_s = [], time.monotonic()
    if batch:
        yield batch
