"""What a study is: a question, the runs that answer it, and what they show."""

from collections.abc import Callable, Iterable, Mapping, Sequence
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

Steps = Callable[[str, int], AbstractContextManager[Callable[[], None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is put into a study: worlds (None: as each scenario says) and processes.

    Quick is a small version, for a look. `watch` shows the progress of all results while they come,
    `steps` that of so many steps under a title; it gives what to call after each. `say` prints a
    line at once.
    """

    seeds: int | None = None
    quick: bool = False
    jobs: int = -1
    watch: Callable[[Sequence[Results]], AbstractContextManager[None]] = lambda _: nullcontext()
    steps: Steps = lambda *_: nullcontext(lambda: None)
    say: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        optional_module("joblib")  # what is missing shows before anything is begun

    def run(self, scenario: Scenario, folder: Path) -> Results:
        """Run what is missing in a folder and return the results."""
        return self.run_all({folder: scenario})[0]

    def run_all(self, scenarios: Mapping[Path, Scenario]) -> list[Results]:
        """Run what is missing of scenarios, each in its folder, and return the results."""
        grids = [Results(at, one, self.seeds or one.seeds) for at, one in scenarios.items()]
        with self.watch(grids):
            return [
                run_scenario(one.scenario, one.folder, seeds=one.seeds, jobs=self.jobs)
                for one in grids
            ]


class Study(Protocol):
    """Runs what is missing in a folder, and says what came out. Its docstring says the question."""

    def play(self, folder: Path, effort: Effort) -> Findings:
        """Return what came out."""


ROUNDS: dict[str, dict[str, Any]] = {
    "barrier": {"kind": "barrier"},
    "over-selection": {"kind": "barrier", "invite": 1.3},
    "no barrier": {"kind": "buffered", "buffer": 10},
}
"""How rounds may be closed: with the last answer, with the first m of 1.3 m, or never."""


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
