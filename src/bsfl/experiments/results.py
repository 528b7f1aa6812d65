"""Results on disk: a manifest, and the files of every run.

DIR/manifest.json                    the scenario, versions and the layout of a record
DIR/runs/<policy>/seed-0003.records  one record per round
DIR/runs/<policy>/seed-0003.seconds  how long selecting and observing took in a round
DIR/runs/<policy>/seed-0003.json     of a finished run: checksums and versions
DIR/runs/<policy>/seed-0003.model    checkpoint of a run that trains, until it is finished
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.experiments.reading import digests
from bsfl.experiments.run_file import PLACES, Records, RunFile, Versions, versions_now
from bsfl.experiments.scenario import Scenario, differences, parse_scenario
from bsfl.extras import data_frame
from bsfl.persistence import checksummed
from bsfl.rounds import BufferPlan
from bsfl.simulation.clients import SimulatedClients
from bsfl.types import FloatArray, IntArray

MANIFEST_ADVICE = "choose another folder, or delete it and run the same scenario again"


class Results:
    """All runs of one scenario in a folder; those of an earlier version have no checksums."""

    def __init__(
        self,
        folder: Path,
        scenario: Scenario,
        seeds: int,
        *,
        is_older: bool = False,
        is_read_only: bool = False,
    ) -> None:
        validation.folder(folder)
        self.folder, self.scenario, self.seeds = folder, scenario, seeds
        self.is_older, self.is_read_only = is_older, is_read_only
        self.dtype = record_dtype(scenario)
        self._records: dict[str, list[Records]] = {}

    def run_file(self, label: str, index: int) -> RunFile:
        """Return the file of one run, finished or not; `index` is that of its seed, from 0."""
        path = self.folder / "runs" / label / f"seed-{index:04d}.records"
        return RunFile(path, self.scenario, self.dtype, is_older=self.is_older)

    def simulated_clients(self, index: int) -> SimulatedClients | None:
        """Return the clients of a seed; None: only a run may execute the files that make them."""
        is_closed = self.is_read_only and self.scenario.is_custom
        return None if is_closed else self.scenario.simulated_clients(index)

    def progress(self) -> float:
        """Return how many runs are on disk, fractions included."""
        return sum(self.run_file(*run).progress() for run in self.runs())

    def runs(self) -> list[tuple[str, int]]:
        """Return (policy label, index of the seed) of every run."""
        return [(label, i) for i in range(self.seeds) for label in self.scenario.policies]

    def missing(self) -> list[tuple[str, int]]:
        """Return the runs that are not finished."""
        return [run for run in self.runs() if not self.run_file(*run).is_finished()]

    def records(self, label: str) -> list[Records]:
        """Return the records of a policy, seed by seed; runs may differ in length."""
        if label not in self._records:
            files = [self.run_file(label, index) for index in range(self.seeds)]
            self._records[label] = [file.read() for file in files]
        return self._records[label]

    def selection_s(self, label: str) -> list[float]:
        """Return the seconds of selecting and observing in a round, where they were measured."""
        measured = (self.run_file(label, index).selection_s() for index in range(self.seeds))
        return [seconds for seconds in measured if seconds is not None]

    def versions(self) -> list[Versions]:
        """Return the versions that the runs were finished with, each once."""
        first: Versions = read_manifest(self.folder)["versions"]
        finished = (self.run_file(*run).checksums() for run in self.runs())
        found = [one["versions"] if one else first for one in finished]
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
        columns: dict[str, list[Any]] = {name: [] for name in ("policy", "seed")}
        names = self.dtype.names or ()
        columns |= {name: [] for name in names}
        ids = [
            clients.ids if (clients := self.simulated_clients(index)) else None
            for index in range(self.seeds)
        ]
        for label, index in self.runs():
            records = self.records(label)[index]
            seed = self.scenario.first_seed + index
            for name, value in (("policy", label), ("seed", seed)):
                columns[name] += [value] * len(records)
            for name in names:
                values = records[name].tolist()
                is_clients = name in PLACES
                columns[name] += (
                    [_clients(row, ids[index]) for row in values] if is_clients else values
                )
        return data_frame(columns)

    def write_manifest(self) -> None:
        """Write the manifest, or check that the folder holds results of the same scenario.

        The versions are those of the first run. Later ones that finish further runs are added, and
        runs that an earlier version of bsfl finished get their checksums.
        """
        manifest: dict[str, Any] = {
            "name": self.scenario.name,
            "seeds": self.seeds,
            "scenario": self.scenario.plain(),
            "record": json.loads(json.dumps(self.dtype.descr)),
            "versions": versions_now(self.scenario),
            "files": digests(self.scenario),
        }
        if (self.folder / "manifest.json").exists():
            known = read_manifest(self.folder)
            scenario = self._continued(known, manifest)
            since: list[Versions] = known.get("versions_since", [])
            if manifest["versions"] not in [known["versions"], *since] and self.missing():
                since = [*since, manifest["versions"]]
            manifest["files"] = known.get("files", {}) | manifest["files"]
            seeds = max(self.seeds, known["seeds"])
            manifest |= {"seeds": seeds, "scenario": scenario, "versions": known["versions"]}
            manifest |= {"versions_since": since} if since else {}
            if known["format"] < checksummed.FORMAT:
                self._finalise_older(known)
        checksummed.write(self.folder / "manifest.json", manifest)

    def _continued(self, known: dict[str, Any], manifest: dict[str, Any]) -> dict[str, Any]:
        """Return the scenario of a folder that is continued, with its policies and the new ones."""
        then, now = known["scenario"], self.scenario.plain()
        old, new = then.get("policies", {}), now.get("policies", {})
        changed = differences(then, now)
        files = known.get("files", {})
        changed += [name for name, d in manifest["files"].items() if files.get(name, d) != d]
        changed += ["the layout of a record"] * (known["record"] != manifest["record"])
        if changed:
            raise InvalidInput(
                f"{self.folder} holds results of another {known['name']!r} "
                f"(it differs in {', '.join(changed)}); choose another folder with --out FOLDER "
                "(folder= of compare), or delete this one"
            )
        return {**now, "policies": old | new}  # a folder may gain policies

    def _finalise_older(self, known: dict[str, Any]) -> None:
        """Finalise runs of an earlier version, with the versions of its manifest."""
        for label in known["scenario"].get("policies", {}):
            for index in range(known["seeds"]):
                run = self.run_file(label, index)
                if run.progress() == 1 and run.checksums() is None:
                    run.finalise(known["versions"])


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what is written about the results in a folder."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise InvalidInput(f"{folder} holds no results (there is no manifest.json)")
    manifest = checksummed.read(path, advice=MANIFEST_ADVICE)
    kinds = {"name": str, "seeds": int, "scenario": dict, "versions": dict, "record": list}
    if not all(isinstance(manifest.get(key), kind) for key, kind in kinds.items()):
        raise InvalidInput(f"{path} is damaged; {MANIFEST_ADVICE}")
    return manifest


def open_results(folder: str | Path) -> Results:
    """Return the results in a folder."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    place = str(folder / "manifest.json")
    scenario = parse_scenario(
        manifest["scenario"], name=manifest["name"], file=place, is_opened=True
    )
    seeds = validation.natural(f"{place}: seeds", manifest["seeds"])
    is_older = manifest["format"] < checksummed.FORMAT
    results = Results(folder, scenario, seeds, is_older=is_older, is_read_only=True)
    try:
        fields = [(name, kind, *map(tuple, shape)) for name, kind, *shape in manifest["record"]]
        results.dtype = np.dtype(fields)  # as it was written, perhaps by an older bsfl
    except (TypeError, ValueError):
        raise InvalidInput(f"{place} is damaged; {MANIFEST_ADVICE}") from None
    return results


def older_results(folder: Path) -> bool:
    """Return whether an earlier bsfl wrote the results in a folder, without checksums."""
    is_there = (folder / "manifest.json").is_file()
    return is_there and bool(read_manifest(folder)["format"] < checksummed.FORMAT)


def record_dtype(scenario: Scenario) -> np.dtype[np.void]:
    """Return the layout of one round on disk; empty places of a cohort are -1."""
    counts = [(name, "<u4") for name in ("round", "n_available", "n_timeouts")]
    numbers = ["duration_s", "clock_s", "regret"]
    if scenario.learning:
        numbers += ["train_loss", "test_loss", "test_accuracy", "worst_label_accuracy"]
    plan = scenario.plan
    n = plan.buffer if isinstance(plan, BufferPlan) else plan.max_invited
    n_kept = n if isinstance(plan, BufferPlan) or plan.late == "drop" else 2 * n
    places = [("cohort", "<i4", (n,)), ("kept", "<i4", (n_kept,))]
    return np.dtype([*counts, *((name, "<f8") for name in numbers), *places])


def _clients(places: Sequence[int], ids: Sequence[str] | None) -> list[int] | list[str]:
    """Return the clients in a row of places, of which some may be empty."""
    clients = [client for client in places if client >= 0]
    return clients if ids is None else [ids[client] for client in clients]


def took_part(records: Records) -> IntArray:
    """Return the clients whose responses entered the model, [round, place]; empty places are -1."""
    named: tuple[str, ...] = records.dtype.names or ()
    found: IntArray = records["kept" if "kept" in named else "cohort"]  # 0.1.0 kept everyone
    return found
