"""Results on disk: a manifest, and one append-only file of fixed-size records for every run.

    DIR/manifest.json                    the scenario, versions and the layout of a record
    DIR/runs/<policy>/seed-0003.records  one record per round

A run is deterministic, so a file that ends early, even within a record, is cut to whole records
and continued; the finished bytes are the same however often it was interrupted.
"""

import json
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import bsfl
from bsfl.errors import InvalidInput
from bsfl.experiments.scenario import Scenario, parse_scenario
from bsfl.records import FloatArray, RoundRecord
from bsfl.statefile import replace_file

Records = npt.NDArray[np.void]
FLUSH_EVERY = 200
"""Rounds between two writes to disk."""


class RunFile:
    """The records of one policy in one world."""

    def __init__(self, path: Path, scenario: Scenario) -> None:
        self.path, self.scenario = path, scenario
        self.dtype = record_dtype(scenario)

    def n_done(self) -> int:
        """Return how many whole records are on disk."""
        return self.path.stat().st_size // self.dtype.itemsize if self.path.exists() else 0

    def progress(self) -> float:
        """Return how much of the run is on disk, from 0 to 1."""
        n_done = self.n_done()
        if not n_done:
            return 0.0
        last = np.fromfile(
            self.path, self.dtype, count=1, offset=(n_done - 1) * self.dtype.itemsize
        )
        played = n_done / self.scenario.rounds
        return min(1.0, max(played, float(last["clock_s"][0]) / self.scenario.time_s))

    def append(self, records: Iterable[RoundRecord]) -> None:
        """Write the records that are not on disk yet; `records` starts at round 1."""
        n_done = self.n_done()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.truncate(n_done * self.dtype.itemsize)
            batch: list[RoundRecord] = []
            for record in records:
                if record.t > n_done:
                    batch.append(record)
                if len(batch) == FLUSH_EVERY:
                    file.write(self._pack(batch))
                    file.flush()
                    batch.clear()
            file.write(self._pack(batch))

    def read(self) -> Records:
        """Return all records of a finished run."""
        if self.progress() < 1:
            raise InvalidInput(
                f"{self.path} is not finished ({self.progress():.0%}); run the scenario again"
            )
        return np.fromfile(self.path, dtype=self.dtype)

    def _pack(self, batch: list[RoundRecord]) -> bytes:
        packed = np.zeros(len(batch), dtype=self.dtype)
        for name in self.dtype.names or ():
            if name != "cohort":
                packed[name] = [getattr(record, name) for record in batch]
        packed["cohort"] = -1
        for row, record in zip(packed["cohort"], batch, strict=True):
            row[: len(record.cohort)] = record.cohort
        return packed.tobytes()


class Results:
    """All runs of one scenario in a folder."""

    def __init__(self, folder: Path, scenario: Scenario, seeds: int) -> None:
        self.folder, self.scenario, self.seeds = folder, scenario, seeds

    def run_file(self, label: str, seed: int) -> RunFile:
        """Return the file of one run, finished or not."""
        return RunFile(self.folder / "runs" / label / f"seed-{seed:04d}.records", self.scenario)

    def progress(self) -> float:
        """Return how many runs are on disk, parts of runs included."""
        return sum(self.run_file(label, seed).progress() for label, seed in self.runs())

    def runs(self) -> list[tuple[str, int]]:
        """Return (policy label, seed) of every run."""
        return [(label, seed) for seed in range(self.seeds) for label in self.scenario.policies]

    def records(self, label: str) -> list[Records]:
        """Return the records of a policy, seed by seed; runs may differ in length."""
        return [self.run_file(label, seed).read() for seed in range(self.seeds)]

    def column(self, label: str, name: str) -> npt.NDArray[Any]:
        """Return one column of a policy's records as [seed, round, ...], up to the shortest run."""
        columns = [records[name] for records in self.records(label)]
        return np.stack([column[: min(map(len, columns))] for column in columns])

    def cumulative(self, label: str, name: str) -> FloatArray:
        """Return the running sum of a column over the rounds."""
        return np.cumsum(self.column(label, name), axis=1)

    def read_manifest(self) -> dict[str, Any]:
        """Return what was written about these results."""
        manifest: dict[str, Any] = json.loads((self.folder / "manifest.json").read_text())
        return manifest

    def write_manifest(self) -> None:
        """Write what these results are, or check that the folder is about the same thing."""
        path = self.folder / "manifest.json"
        if path.exists():
            known = json.loads(path.read_text())
            changed = [k for k, v in known["scenario"].items() if self.scenario.source.get(k) != v]
            changed += [k for k in self.scenario.source if k not in known["scenario"]]
            if changed:
                raise InvalidInput(
                    f"{self.folder} holds results of another {known['name']!r} "
                    f"(it differs in {', '.join(changed)}); choose another folder"
                )
            self.seeds = max(self.seeds, known["seeds"])
        manifest = {
            "name": self.scenario.name,
            "seeds": self.seeds,
            "scenario": self.scenario.source,
            "record": [list(field) for field in record_dtype(self.scenario).descr],
            "versions": {
                "bsfl": bsfl.__version__,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, (json.dumps(manifest, indent=2) + "\n").encode())


def open_results(folder: Path) -> Results:
    """Return the results in a folder."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise InvalidInput(f"{folder} holds no results (there is no manifest.json)")
    manifest = json.loads(path.read_text())
    scenario = parse_scenario(manifest["scenario"], name=manifest["name"], file=str(path))
    return Results(folder, scenario, manifest["seeds"])


def record_dtype(scenario: Scenario) -> np.dtype[np.void]:
    """Return the layout of one round on disk; empty places of a cohort are -1."""
    counts = [(name, "<u4") for name in ("t", "n_available", "n_timeouts")]
    numbers = ["duration_s", "clock_s", "regret"]
    if scenario.learning:
        numbers += ["train_loss", "test_loss", "test_accuracy"]
    return np.dtype(
        [*counts, *((name, "<f8") for name in numbers), ("cohort", "<i4", (scenario.cohort_size,))]
    )
