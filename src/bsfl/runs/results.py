"""Results on disk: a manifest, and the files of every run.

DIR/manifest.json                    the scenario, versions and the layout of a record
DIR/runs/<policy>/seed-0003.records  one record per round
DIR/runs/<policy>/seed-0003.seconds  how long selecting and observing took in a round
DIR/runs/<policy>/seed-0003.json     the seal of a finished run: checksums and versions
DIR/runs/<policy>/seed-0003.model    what a run that trains goes on from, until it is finished
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.extras import data_frame
from bsfl.files import sealed
from bsfl.records import FloatArray, IntArray
from bsfl.rounds import BufferPlan
from bsfl.runs.run_file import PLACES, Records, RunFile, Versions, versions_now
from bsfl.scenario import Scenario, parse_scenario
from bsfl.scenario.files import digests

MANIFEST_ADVICE = "choose another folder, or delete it and run the same scenario again"


class Results:
    """All runs of one scenario in a folder; one that an earlier version wrote has no seals."""

    def __init__(
        self, folder: Path, scenario: Scenario, seeds: int, *, is_older: bool = False
    ) -> None:
        checks.folder(folder)
        self.folder, self.scenario, self.seeds = folder, scenario, seeds
        self.is_older = is_older
        self.dtype = record_dtype(scenario)
        self._records: dict[str, list[Records]] = {}

    def run_file(self, label: str, world: int) -> RunFile:
        """Return the file of one run, finished or not."""
        path = self.folder / "runs" / label / f"seed-{world:04d}.records"
        return RunFile(path, self.scenario, self.dtype, is_older=self.is_older)

    def progress(self) -> float:
        """Return how many runs are on disk, parts of runs included."""
        return sum(self.run_file(*run).progress() for run in self.runs())

    def runs(self) -> list[tuple[str, int]]:
        """Return (policy label, number of its world) of every run."""
        return [(label, seed) for seed in range(self.seeds) for label in self.scenario.policies]

    def missing(self) -> list[tuple[str, int]]:
        """Return the runs that are not finished."""
        return [run for run in self.runs() if not self.run_file(*run).is_finished()]

    def records(self, label: str) -> list[Records]:
        """Return the records of a policy, world by world; runs may differ in length."""
        if label not in self._records:
            files = [self.run_file(label, seed) for seed in range(self.seeds)]
            self._records[label] = [file.read() for file in files]
        return self._records[label]

    def selection_s(self, label: str) -> list[float]:
        """Return the seconds that selecting and observing took in a round, where it was noted."""
        noted = (self.run_file(label, seed).selection_s() for seed in range(self.seeds))
        return [seconds for seconds in noted if seconds is not None]

    def versions(self) -> list[Versions]:
        """Return the versions that the runs were finished with, each once."""
        first: Versions = read_manifest(self.folder)["versions"]
        seals = (self.run_file(*run).seal() for run in self.runs())
        found = [seal["versions"] if seal else first for seal in seals]
        return [one for i, one in enumerate(found) if one not in found[:i]]

    def column(self, label: str, name: str) -> npt.NDArray[Any]:
        """Return one column of a policy's records as [world, round, ...], to the shortest run."""
        columns = [records[name] for records in self.records(label)]
        return np.stack([column[: min(map(len, columns))] for column in columns])

    def cumulative(self, label: str, name: str) -> FloatArray:
        """Return the running sum of a column over the rounds."""
        return np.cumsum(self.column(label, name), axis=1)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: one row per policy, world and round.

        `cohort` (who was invited) and `kept` (whose answers entered the model) are lists of
        clients, by their names where the world has any.
        """
        columns: dict[str, list[Any]] = {name: [] for name in ("policy", "world", "seed")}
        names = self.dtype.names or ()
        columns |= {name: [] for name in names}
        ids = [self.scenario.world(world).ids for world in range(self.seeds)]
        for label, world in self.runs():
            records = self.records(label)[world]
            seed = self.scenario.first_seed + world
            for name, value in (("policy", label), ("world", world), ("seed", seed)):
                columns[name] += [value] * len(records)
            for name in names:
                values = records[name].tolist()
                is_clients = name in PLACES
                columns[name] += (
                    [_clients(row, ids[world]) for row in values] if is_clients else values
                )
        return data_frame(columns)

    def write_manifest(self) -> None:
        """Write what these results are, or check that the folder is about the same thing.

        The versions are those of the first run. Later ones that finish further runs are noted, and
        what an earlier version of bsfl finished is sealed as it is.
        """
        manifest: dict[str, Any] = {
            "name": self.scenario.name,
            "seeds": self.seeds,
            "scenario": self.scenario.source,
            "record": json.loads(json.dumps(self.dtype.descr)),
            "versions": versions_now(self.scenario),
            "files": digests(self.scenario.source),
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
            if known["format"] < sealed.FORMAT:
                self._seal_older(known)
        sealed.write(self.folder / "manifest.json", manifest)

    def _continued(self, known: dict[str, Any], manifest: dict[str, Any]) -> dict[str, Any]:
        """Return the scenario of a folder that is continued, with all policies of then and now."""
        then, now = known["scenario"], self.scenario.source
        old, new = then["policies"], now["policies"]
        changed = [key for key in then | now if key != "policies" and then.get(key) != now.get(key)]
        changed += [
            f"policies.{label}"
            for label in new
            if label in old and {"policy": label, **old[label]} != {"policy": label, **new[label]}
        ]
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

    def _seal_older(self, known: dict[str, Any]) -> None:
        """Seal what an earlier version finished, with the versions of its manifest."""
        for label in known["scenario"]["policies"]:
            for seed in range(known["seeds"]):
                run = self.run_file(label, seed)
                if run.progress() == 1 and run.seal() is None:
                    run.write_seal(known["versions"])


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what is written about the results in a folder."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise InvalidInput(f"{folder} holds no results (there is no manifest.json)")
    manifest = sealed.read(path, advice=MANIFEST_ADVICE)
    kinds = {"name": str, "seeds": int, "scenario": dict, "versions": dict, "record": list}
    if not all(isinstance(manifest.get(key), kind) for key, kind in kinds.items()):
        raise InvalidInput(f"{path} is damaged; {MANIFEST_ADVICE}")
    return manifest


def open_results(folder: str | Path) -> Results:
    """Return the results in a folder."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    place = str(folder / "manifest.json")
    scenario = parse_scenario(manifest["scenario"], name=manifest["name"], file=place)
    seeds = checks.natural(f"{place}: seeds", manifest["seeds"])
    results = Results(folder, scenario, seeds, is_older=manifest["format"] < sealed.FORMAT)
    try:
        fields = [(name, kind, *map(tuple, shape)) for name, kind, *shape in manifest["record"]]
        results.dtype = np.dtype(fields)  # as it was written, by an older bsfl perhaps
    except (TypeError, ValueError):
        raise InvalidInput(f"{place} is damaged; {MANIFEST_ADVICE}") from None
    return results


def older_results(folder: Path) -> bool:
    """Return whether an earlier version of bsfl wrote the results in a folder, without seals."""
    is_there = (folder / "manifest.json").is_file()
    return is_there and bool(read_manifest(folder)["format"] < sealed.FORMAT)


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


def _clients(places: Sequence[int], ids: Sequence[str] | None) -> list[int] | list[str]:
    """Return the clients in a row of places, of which some may be empty."""
    clients = [client for client in places if client >= 0]
    return clients if ids is None else [ids[client] for client in clients]


def took_part(records: Records) -> IntArray:
    """Return whose answers entered the model, [round, place]; empty places are -1."""
    named: tuple[str, ...] = records.dtype.names or ()
    found: IntArray = records["kept" if "kept" in named else "cohort"]  # 0.1.0 kept everyone
    return found
