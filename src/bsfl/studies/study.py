"""What a study is: a question, the runs that answer it, and what they show."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bsfl.extras import optional_module
from bsfl.fairness import participation
from bsfl.records import IntArray, RoundRecord
from bsfl.report import Findings
from bsfl.runs import Results, run_scenario
from bsfl.scenario import Scenario, parse_scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is put into a study: worlds (None: as each scenario says) and processes.

    Quick is a small version, for a look. `watch` shows the progress of results while they come.
    """

    seeds: int | None = None
    quick: bool = False
    jobs: int = -1
    watch: Callable[[Results], AbstractContextManager[None]] = lambda _: nullcontext()

    def __post_init__(self) -> None:
        optional_module("joblib")  # what is missing shows before anything is begun

    def run(self, scenario: Scenario, folder: Path) -> Results:
        """Run what is missing in a folder and return the results."""
        results = Results(folder, scenario, self.seeds or scenario.seeds)
        with self.watch(results):
            return run_scenario(scenario, folder, seeds=results.seeds, jobs=self.jobs)


class Study(Protocol):
    """Runs what is missing in a folder, and says what came out. Its docstring says the question."""

    def play(self, folder: Path, effort: Effort) -> Findings:
        """Return what came out."""


def totals(records: Iterable[RoundRecord], n_clients: int) -> tuple[float, IntArray]:
    """Return the mean virtual seconds of a round, and how often each client was chosen."""
    played = list(records)
    clock_s = played[-1].clock_s
    assert clock_s is not None
    chosen = np.array([k for record in played for k in record.kept or ()], dtype=np.int64)
    return clock_s / len(played), participation(chosen, n_clients)


def changed(scenario: Scenario, **changes: Any) -> Scenario:
    """Return a scenario with other values of its keys; None takes a key out."""
    source = {k: v for k, v in {**scenario.source, **changes}.items() if v is not None}
    return parse_scenario(source, name=scenario.name, file=f"{scenario.name}.toml")


def with_policies(
    scenario: Scenario, policies: dict[str, tuple[str, dict[str, Any]]], **changes: Any
) -> Scenario:
    """Return a scenario with other policies, (registry name, settings) by label."""
    tables = {label: {"policy": name, **settings} for label, (name, settings) in policies.items()}
    return changed(scenario, policies=tables, **changes)
