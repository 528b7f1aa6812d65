"""Results on disk: a manifest, and one append-only file of fixed-size records for every run.

    DIR/manifest.json                    the scenario, versions and the layout of a record
    DIR/runs/<policy>/seed-0003.records  one record per round
    DIR/runs/<policy>/seed-0003.seconds  how long selecting and observing took in a round
    DIR/runs/<policy>/seed-0003.model    what a run that trains goes on from, until it is finished

A run is deterministic, so a file that ends early, even within a record, is cut to whole records
and continued; the finished bytes are the same however often it was interrupted.
"""

import json
import platform
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

import bsfl
from bsfl.errors import InvalidInput
from bsfl.files import lock, replace_file
from bsfl.records import FloatArray, RoundRecord
from bsfl.scenario.scenario import Scenario, parse_scenario

Records = npt.NDArray[np.void]
FLUSH_EVERY = 50
"""Rounds between two writes to disk."""


class RunFile:
    """The records of one policy in one world."""

    def __init__(self, path: Path, scenario: Scenario) -> None:
        self.path, self.scenario = path, scenario
        self.dtype = record_dtype(scenario)

    @property
    def checkpoint(self) -> Path:
        """Where a run that trains keeps its model until it is finished."""
        return self.path.with_suffix(".model")

    @property
    def timing(self) -> Path:
        """Where a finished run notes how many seconds selecting and observing took in a round."""
        return self.path.with_suffix(".seconds")

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
        """Write the records that are not on disk yet; `records` starts at round 1.

        One process at a time writes a file, a second one waits for it. What is on disk already is
        compared with what is computed now, so that two halves of a run always belong together.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            lock(file)
            file.truncate(self.n_done() * self.dtype.itemsize)
            file.seek(0)
            if self.progress() < 1:
                for batch in batched(records, FLUSH_EVERY):
                    self._write(file, self._pack(batch))

    def _write(self, file: BinaryIO, content: bytes) -> None:
        """Write bytes where the file stands, after comparing those that are there already."""
        there = file.read(len(content))
        if content[: len(there)] != there:
            raise InvalidInput(
                f"{self.path} differs from what is computed now: it is damaged, or was made by "
                "other versions; delete it to compute the run again"
            )
        file.write(content[len(there) :])
        file.flush()

    def read(self) -> Records:
        """Return all records of a finished run."""
        if self.progress() < 1:
            raise InvalidInput(
                f"{self.path} is not finished ({self.progress():.0%}); run the scenario again"
            )
        records = np.fromfile(self.path, dtype=self.dtype)
        if not np.array_equal(records["t"], np.arange(1, len(records) + 1)):
            raise InvalidInput(f"{self.path} is damaged; delete it and run the scenario again")
        return records

    def _pack(self, batch: Sequence[RoundRecord]) -> bytes:
        packed = np.zeros(len(batch), dtype=self.dtype)
        for name in self.dtype.names or ():
            if name != "cohort":
                values = [getattr(record, name) for record in batch]
                packed[name] = [np.nan if value is None else value for value in values]
        packed["cohort"] = -1
        for row, record in zip(packed["cohort"], batch, strict=True):
            row[: len(record.cohort)] = record.cohort
        return packed.tobytes()


class Results:
    """All runs of one scenario in a folder."""

    def __init__(self, folder: Path, scenario: Scenario, seeds: int) -> None:
        self.folder, self.scenario, self.seeds = folder, scenario, seeds
        self._records: dict[str, list[Records]] = {}

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
        if label not in self._records:
            files = [self.run_file(label, seed) for seed in range(self.seeds)]
            self._records[label] = [file.read() for file in files]
        return self._records[label]

    def selection_s(self, label: str) -> float | None:
        """Return the seconds that selecting and observing took in a round; None if not noted."""
        noted = [self.run_file(label, seed).timing for seed in range(self.seeds)]
        taken = [float(path.read_text()) for path in noted if path.is_file()]
        return float(np.median(taken)) if taken else None

    def column(self, label: str, name: str) -> npt.NDArray[Any]:
        """Return one column of a policy's records as [seed, round, ...], up to the shortest run."""
        columns = [records[name] for records in self.records(label)]
        return np.stack([column[: min(map(len, columns))] for column in columns])

    def cumulative(self, label: str, name: str) -> FloatArray:
        """Return the running sum of a column over the rounds."""
        return np.cumsum(self.column(label, name), axis=1)

    def write_manifest(self) -> None:
        """Write what these results are, or check that the folder is about the same thing."""
        manifest = {
            "name": self.scenario.name,
            "seeds": self.seeds,
            "scenario": self.scenario.source,
            "record": [list(field) for field in record_dtype(self.scenario).descr],
            "versions": versions(self.scenario),
        }
        if (self.folder / "manifest.json").exists():
            known = read_manifest(self.folder)
            changed = [
                key
                for key in {**known["scenario"], **self.scenario.source}
                if known["scenario"].get(key) != self.scenario.source.get(key)
            ]
            if changed:
                raise InvalidInput(
                    f"{self.folder} holds results of another {known['name']!r} "
                    f"(it differs in {', '.join(changed)}); choose another folder"
                )
            manifest |= {"seeds": max(self.seeds, known["seeds"]), "versions": known["versions"]}
        content = json.dumps(manifest, indent=2) + "\n"
        replace_file(self.folder / "manifest.json", content.encode())


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what is written about the results in a folder."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise InvalidInput(f"{folder} holds no results (there is no manifest.json)")
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for key in ("name", "seeds", "scenario", "versions"):
            manifest[key]
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(f"{path} is damaged; choose another folder") from None
    return manifest


def versions(scenario: Scenario) -> dict[str, str]:
    """Return the versions that the numbers depend on."""
    learning = scenario.learning
    packages = ["numpy", *(("jax", "jaxlib", "optax") if learning else ())]
    if learning and learning.engine == "fast":
        packages.append("numba")
    return {
        "bsfl": bsfl.__version__,
        "python": platform.python_version(),
        **{package: metadata.version(package) for package in packages},
    }


def open_results(folder: Path) -> Results:
    """Return the results in a folder."""
    manifest = read_manifest(folder)
    place = str(folder / "manifest.json")
    scenario = parse_scenario(manifest["scenario"], name=manifest["name"], file=place)
    return Results(folder, scenario, manifest["seeds"])


def record_dtype(scenario: Scenario) -> np.dtype[np.void]:
    """Return the layout of one round on disk; empty places of a cohort are -1."""
    counts = [(name, "<u4") for name in ("t", "n_available", "n_timeouts")]
    numbers = ["duration_s", "clock_s", "regret"]
    if scenario.learning:
        numbers += ["train_loss", "test_loss", "test_accuracy", "worst_label_accuracy"]
    return np.dtype(
        [*counts, *((name, "<f8") for name in numbers), ("cohort", "<i4", (scenario.cohort_size,))]
    )


def batched(records: Iterable[RoundRecord], size: int) -> Iterator[tuple[RoundRecord, ...]]:
    """Yield records in groups of up to `size`."""
    rest = iter(records)
    while batch := tuple(islice(rest, size)):
        yield batch
