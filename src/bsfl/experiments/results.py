"""Results on disk: a manifest, and one file for every finished run.

DIR/manifest.json                the scenario, seeds, versions, and checksums
DIR/runs/<policy>/seed-0003.run  records, timing and versions of a run, with a checksum

A file is written in one step when its run is finished. There is no part of a run on disk: a run is
finished, or it is run again.
"""

import hashlib
import json
import logging
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import bsfl
from bsfl import validation
from bsfl.errors import InvalidInput, NewerFormat, StateFileError
from bsfl.experiments.reading import digests
from bsfl.experiments.scenario import Scenario, differences, parse_scenario
from bsfl.extras import data_frame
from bsfl.persistence import lock, replace_file, statefile
from bsfl.rounds import BufferPlan
from bsfl.simulation.clients import SimulatedClients
from bsfl.types import FloatArray, RoundRecord

FORMAT = statefile.FORMAT
"""Format of the files of runs, which the manifest names: in them it may be a flipped bit."""
PLACES = ("cohort", "kept")
"""Clients that were invited, and whose responses entered the model; empty places are -1."""
FAIR_COUNT = "fair_count"
"""Name of the array in a file that has a number for every client instead of every round."""
MEASURED = ("selection_s", "versions", "ids")
"""What a file holds of a run beside its records."""

Records = npt.NDArray[np.void]
"""One row per round."""
Versions = dict[str, str]

_LOG = logging.getLogger("bsfl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One policy with one seed, from the first round to the last.

    Attributes:
        records: One row per round.
        fair_count: Fair number of participations of every client, as in Scheduler.table().
        selection_s: Wall-clock seconds of selecting and observing in a round; None: not measured.
        versions: Versions of all packages that the numbers depend on.
        ids: Names of the clients; None: they have numbers.
    """

    records: Records
    fair_count: FloatArray
    selection_s: float | None
    versions: Versions
    ids: list[str] | None


class Results:
    """All runs of one scenario in a folder; `is_read_only`: nothing custom is executed."""

    def __init__(
        self, folder: Path, scenario: Scenario, seeds: int, *, is_read_only: bool = False
    ) -> None:
        validation.folder(folder)
        self.folder, self.scenario, self.seeds = folder, scenario, seeds
        self.is_read_only = is_read_only
        self._plain = scenario.plain()
        self._runs: dict[tuple[str, int], Run] = {}
        self._lacks_files = False

    def simulated_clients(self, index: int) -> SimulatedClients | None:
        """Return the clients of a seed; None: only a run can make them.

        It may execute custom files, and it has the traces and data, which need not be here.
        """
        if self.is_read_only and self.scenario.is_custom:
            return None
        try:
            return self.scenario.simulated_clients(index)
        except InvalidInput as error:
            if not self.is_read_only:
                raise
            if not self._lacks_files:
                _LOG.warning("%s; what needs the simulated clients is left out", error)
            self._lacks_files = True
            return None

    def runs(self) -> list[tuple[str, int]]:
        """Return (policy label, index of the seed) of every run."""
        return [(label, i) for i in range(self.seeds) for label in self.scenario.policies]

    def path(self, label: str, index: int) -> Path:
        """Return the file of one run, finished or not; `index` is that of its seed, from 0."""
        return self.folder / "runs" / label / f"seed-{index:04d}.run"

    def run(self, label: str, index: int) -> Run:
        """Return one finished run, which is read once."""
        if (label, index) in self._runs:
            return self._runs[label, index]
        path = self.path(label, index)
        if not path.exists():
            validation.one_of("policy", label, tuple(self.scenario.policies))
            raise InvalidInput(f"{path} is missing: this run is not finished; resume the scenario")
        again = "run the scenario again to replace it"
        try:
            header, columns = statefile.read(path)
        except StateFileError as error:
            raise InvalidInput(f"{path} is damaged; {again}") from error
        if header.get("run") != self._key(label, index):
            raise InvalidInput(f"{path} is of another run; {again}")
        fair_count = columns.pop(FAIR_COUNT)
        layout = [(name, column.dtype, column.shape[1:]) for name, column in columns.items()]
        records = np.empty(len(columns["round"]), layout)
        for name, column in columns.items():
            records[name] = column
        measured = {key: header[key] for key in MEASURED}
        run = Run(records=records, fair_count=fair_count, **measured)
        self._runs[label, index] = run
        return run

    def missing(self) -> list[tuple[str, int]]:
        """Return the runs that are not finished, or whose file is damaged."""
        missing = []
        for label, index in self.runs():
            try:
                self.run(label, index)
            except InvalidInput:
                missing.append((label, index))
        return missing

    def write(self, label: str, index: int, run: Run) -> None:
        """Write a finished run in one step."""
        header = {key: getattr(run, key) for key in MEASURED} | {"run": self._key(label, index)}
        path = self.path(label, index)
        path.parent.mkdir(parents=True, exist_ok=True)
        names = run.records.dtype.names or ()
        columns = {name: run.records[name] for name in names}
        statefile.write(path, header, {**columns, FAIR_COUNT: run.fair_count})
        self._runs[label, index] = run

    def _key(self, label: str, index: int) -> dict[str, Any]:
        """Return what a run is of, so that its file is not taken for that of another one."""
        conditions = [_common(self._plain), self._plain["policies"][label]]
        seed = self.scenario.first_seed + index
        return {"policy": label, "seed": seed, "scenario": _checksum(conditions)}

    def records(self, label: str) -> list[Records]:
        """Return the records of a policy, seed by seed; runs may differ in length."""
        return [run.records for run in self.runs_of(label)]

    def runs_of(self, label: str) -> list[Run]:
        """Return the finished runs of a policy, seed by seed."""
        return [self.run(label, index) for index in range(self.seeds)]

    def selection_s(self, label: str) -> list[float]:
        """Return the seconds of selecting and observing in a round, where they were measured."""
        measured = (self.run(label, index).selection_s for index in range(self.seeds))
        return [seconds for seconds in measured if seconds is not None]

    def versions(self) -> list[Versions]:
        """Return the versions that the runs were finished with, each once."""
        found = [self.run(*one).versions for one in self.runs()]
        return [one for i, one in enumerate(found) if one not in found[:i]]

    def column(self, label: str, name: str) -> npt.NDArray[Any]:
        """Return one column of a policy's records as [seed, round, ...], to the shortest run."""
        columns = [records[name] for records in self.records(label)]
        return np.stack([column[: min(map(len, columns))] for column in columns])

    def cumulative(self, label: str, name: str) -> FloatArray:
        """Return the running sum of a column over the rounds."""
        return np.cumsum(self.column(label, name), axis=1)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: one row per policy, seed and round.

        `cohort` (the invited clients) and `kept` (those whose responses entered the model) are
        lists of clients, by their names if they have any.
        """
        columns: dict[str, list[Any]] = {"policy": [], "seed": []}
        for label, index in self.runs():
            run = self.run(label, index)
            columns["policy"] += [label] * len(run.records)
            columns["seed"] += [self.scenario.first_seed + index] * len(run.records)
            for name in run.records.dtype.names or ():
                values = run.records[name].tolist()
                if name in PLACES:
                    values = [[client for client in row if client >= 0] for row in values]
                    if run.ids is not None:
                        values = [[run.ids[client] for client in row] for row in values]
                columns.setdefault(name, []).extend(values)
        return data_frame(columns)

    def write_manifest(self) -> None:
        """Write the manifest, or check that the folder holds results of the same scenario.

        A folder may gain policies and seeds; its versions are those of the first run.
        """
        manifest = {
            "format": FORMAT,
            "name": self.scenario.name,
            "seeds": self.seeds,
            "scenario": self._plain,
            "versions": versions_now(self.scenario),
            "files": digests(self.scenario),
        }
        path = self.folder / "manifest.json"
        with alone_in(self.folder):
            if path.exists():
                known = read_manifest(self.folder)
                self._check_same(known, manifest)
                policies = known["scenario"]["policies"] | self._plain["policies"]
                manifest |= {
                    "seeds": max(self.seeds, known["seeds"]),
                    "scenario": {**self._plain, "policies": policies},
                    "versions": known["versions"],
                    "files": known["files"] | manifest["files"],
                }
            write_checked(path, manifest)

    def _check_same(self, known: dict[str, Any], manifest: dict[str, Any]) -> None:
        """Check that finished runs in the folder would come out the same now."""
        then, now = known["scenario"], manifest["scenario"]
        changed = differences(
            {**_common(then), "policies": then["policies"]},
            {**_common(now), "policies": now["policies"]},
        )
        files = known["files"]
        changed += [name for name, d in manifest["files"].items() if files.get(name, d) != d]
        if changed:
            raise InvalidInput(
                f"{self.folder} holds results of another {known['name']!r} "
                f"(it differs in {', '.join(changed)}); choose another folder with --out FOLDER "
                "(folder= of compare), or delete this one"
            )


def _common(source: dict[str, Any]) -> dict[str, Any]:
    """Return what all runs of a scenario depend on; title and number of seeds change none."""
    return {k: v for k, v in source.items() if k not in ("title", "seeds", "policies")}


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Let one process at a time write into a folder; others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        lock(file)
        yield


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what is written about the results in a folder."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise InvalidInput(f"{folder} holds no results (there is no manifest.json)")
    manifest = read_checked(path)
    if manifest is None:
        raise InvalidInput(
            f"{path} is damaged; delete it and run the same scenario again, which keeps its runs"
        )
    if manifest["format"] > FORMAT:
        raise NewerFormat(f"{path} was written by a later release; upgrade bsfl to open it")
    return manifest


def write_checked(path: Path, content: dict[str, Any]) -> None:
    """Write plain data as JSON with a checksum, in one step."""
    text = json.dumps({**content, "sha256": _checksum(content)}, indent=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, f"{text}\n".encode())


def read_checked(path: Path) -> dict[str, Any] | None:
    """Return what `write_checked` wrote; None: the file is damaged."""
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        return content if content.pop("sha256") == _checksum(content) else None
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        return None


def open_results(folder: str | Path) -> Results:
    """Return the results in a folder; no custom file that the scenario names is executed."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    place = str(folder / "manifest.json")
    scenario = parse_scenario(
        manifest["scenario"], name=manifest["name"], file=place, is_opened=True
    )
    return Results(folder, scenario, manifest["seeds"], is_read_only=True)


def versions_now(scenario: Scenario) -> Versions:
    """Return the versions of all that the numbers of a scenario depend on."""
    packages = ("numpy", *(scenario.learning.packages if scenario.learning else ()))
    return {"bsfl": bsfl.__version__, "python": platform.python_version()} | {
        package: metadata.version(package) for package in packages
    }


def as_records(rounds: Iterable[RoundRecord], scenario: Scenario) -> Records:
    """Return the rounds of a run as columns of fixed size."""
    counts = [(name, "<u4") for name in ("round", "n_available", "n_timeouts")]
    numbers = ["duration_s", "clock_s", "regret"]
    if scenario.learning:
        numbers += ["train_loss", "test_loss", "test_accuracy", "worst_label_accuracy"]
    plan = scenario.plan
    n = plan.buffer if isinstance(plan, BufferPlan) else plan.max_invited
    n_kept = n if isinstance(plan, BufferPlan) or plan.late == "drop" else 2 * n
    places = {"cohort": n, "kept": n_kept}
    columns = [*counts, *((name, "<f8") for name in numbers)]
    layout = np.dtype([*columns, *((name, "<i4", (n,)) for name, n in places.items())])

    def row(record: RoundRecord) -> tuple[Any, ...]:
        values = [getattr(record, name) for name, *_ in columns]
        filled = [np.nan if value is None else value for value in values]
        for name, n in places.items():
            clients = getattr(record, name)
            filled.append((*clients, *[-1] * (n - len(clients))))
        return tuple(filled)

    return np.fromiter(map(row, rounds), layout)


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
