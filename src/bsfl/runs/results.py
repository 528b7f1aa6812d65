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
from collections.abc import Iterable, Sequence
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import bsfl
from bsfl.errors import InvalidInput
from bsfl.files import lock, write_json
from bsfl.records import FloatArray, IntArray, RoundRecord
from bsfl.rounds import BufferPlan
from bsfl.scenario import Scenario, parse_scenario

Records = npt.NDArray[np.void]
PLACES = ("cohort", "kept")
"""Columns of clients; there may be fewer than places."""
FLUSH_EVERY = 50
"""Rounds between two writes to disk."""


class RunFile:
    """The records of one policy in one world; beside them its timing and its checkpoint."""

    def __init__(self, path: Path, scenario: Scenario, dtype: "np.dtype[np.void]") -> None:
        self.path, self.scenario, self.dtype = path, scenario, dtype
        self.timing, self.checkpoint = path.with_suffix(".seconds"), path.with_suffix(".model")

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
            rest = iter(records if self.progress() < 1 else ())
            while batch := list(islice(rest, FLUSH_EVERY)):
                content = self._pack(batch)
                there = file.read(len(content))
                if content[: len(there)] != there:
                    raise InvalidInput(
                        f"{self.path} differs from what is computed now: it is damaged, or was "
                        "made by other versions; delete it to compute the run again"
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
            if name not in PLACES:
                values = [getattr(record, name) for record in batch]
                packed[name] = [np.nan if value is None else value for value in values]
        for name in PLACES:
            packed[name] = -1
            for row, record in zip(packed[name], batch, strict=True):
                clients = getattr(record, name)
                row[: len(clients)] = clients
        return packed.tobytes()


class Results:
    """All runs of one scenario in a folder."""

    def __init__(self, folder: Path, scenario: Scenario, seeds: int) -> None:
        self.folder, self.scenario, self.seeds = folder, scenario, seeds
        self.dtype = record_dtype(scenario)
        self._records: dict[str, list[Records]] = {}

    def run_file(self, label: str, world: int) -> RunFile:
        """Return the file of one run, finished or not."""
        path = self.folder / "runs" / label / f"seed-{world:04d}.records"
        return RunFile(path, self.scenario, self.dtype)

    def progress(self) -> float:
        """Return how many runs are on disk, parts of runs included."""
        return sum(self.run_file(*run).progress() for run in self.runs())

    def runs(self) -> list[tuple[str, int]]:
        """Return (policy label, number of its world) of every run."""
        return [(label, seed) for seed in range(self.seeds) for label in self.scenario.policies]

    def records(self, label: str) -> list[Records]:
        """Return the records of a policy, world by world; runs may differ in length."""
        if label not in self._records:
            files = [self.run_file(label, seed) for seed in range(self.seeds)]
            self._records[label] = [file.read() for file in files]
        return self._records[label]

    def selection_s(self, label: str) -> list[float]:
        """Return the seconds that selecting and observing took in a round, where it was noted."""
        noted = [self.run_file(label, seed).timing for seed in range(self.seeds)]
        return [float(path.read_text()) for path in noted if path.is_file()]

    def column(self, label: str, name: str) -> npt.NDArray[Any]:
        """Return one column of a policy's records as [world, round, ...], to the shortest run."""
        columns = [records[name] for records in self.records(label)]
        return np.stack([column[: min(map(len, columns))] for column in columns])

    def cumulative(self, label: str, name: str) -> FloatArray:
        """Return the running sum of a column over the rounds."""
        return np.cumsum(self.column(label, name), axis=1)

    def write_manifest(self) -> None:
        """Write what these results are, or check that the folder is about the same thing."""
        learning = self.scenario.learning
        packages = ["numpy", *(("jax", "jaxlib", "optax") if learning else ())]
        packages += ["numba"] * (learning is not None and learning.engine == "fast")
        manifest: dict[str, Any] = {
            "name": self.scenario.name,
            "seeds": self.seeds,
            "scenario": self.scenario.source,
            "record": json.loads(json.dumps(self.dtype.descr)),
            "versions": {"bsfl": bsfl.__version__, "python": platform.python_version()}
            | {package: metadata.version(package) for package in packages},
        }
        if (self.folder / "manifest.json").exists():
            known = read_manifest(self.folder)
            then, now = known["scenario"], self.scenario.source
            every = then["policies"] | now["policies"]  # a folder may gain policies
            then = {**then, "policies": every | then["policies"]}
            now = {**now, "policies": every}
            changed = [key for key in {**then, **now} if then.get(key) != now.get(key)]
            changed += ["the layout of a record"] * (known["record"] != manifest["record"])
            if changed:
                raise InvalidInput(
                    f"{self.folder} holds results of another {known['name']!r} "
                    f"(it differs in {', '.join(changed)}); choose another folder"
                )
            seeds = max(self.seeds, known["seeds"])
            manifest |= {"seeds": seeds, "scenario": now, "versions": known["versions"]}
        write_json(self.folder / "manifest.json", manifest)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what is written about the results in a folder."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise InvalidInput(f"{folder} holds no results (there is no manifest.json)")
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for key in ("name", "seeds", "scenario", "versions", "record"):
            manifest[key]
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(f"{path} is damaged; choose another folder") from None
    return manifest


def open_results(folder: Path) -> Results:
    """Return the results in a folder."""
    manifest = read_manifest(folder)
    place = str(folder / "manifest.json")
    scenario = parse_scenario(manifest["scenario"], name=manifest["name"], file=place)
    results = Results(folder, scenario, manifest["seeds"])
    fields = [(name, kind, *map(tuple, shape)) for name, kind, *shape in manifest["record"]]
    results.dtype = np.dtype(fields)  # as it was written, by an older bsfl perhaps
    return results


def record_dtype(scenario: Scenario) -> np.dtype[np.void]:
    """Return the layout of one round on disk; empty places of a cohort are -1."""
    counts = [(name, "<u4") for name in ("t", "n_available", "n_timeouts")]
    numbers = ["duration_s", "clock_s", "regret"]
    if scenario.learning:
        numbers += ["train_loss", "test_loss", "test_accuracy", "worst_label_accuracy"]
    plan = scenario.plan
    n = plan.buffer if isinstance(plan, BufferPlan) else plan.most_invited
    n_kept = n if isinstance(plan, BufferPlan) or plan.late == "drop" else 2 * n
    places = [("cohort", "<i4", (n,)), ("kept", "<i4", (n_kept,))]
    return np.dtype([*counts, *((name, "<f8") for name in numbers), *places])


def took_part(records: Records) -> IntArray:
    """Return whose answers entered the model, [round, place]; empty places are -1."""
    named: tuple[str, ...] = records.dtype.names or ()
    found: IntArray = records["kept" if "kept" in named else "cohort"]  # 0.1.0 kept everyone
    return found
