"""A study: a question, the runs that answer it, and the report of their results."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bsfl.estimators.fairness import participation
from bsfl.experiments.metrics import METRICS, Better
from bsfl.experiments.results import Results
from bsfl.experiments.runner import run_scenario
from bsfl.experiments.scenario import Scenario
from bsfl.experiments.tables import Cell, Column, Table, metric_column
from bsfl.extras import optional_module
from bsfl.report import Report
from bsfl.types import IntArray, RoundRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How to run a study.

    Attributes:
        seeds: Number of seeds; None: from each scenario.
        quick: Whether to run a small version.
        jobs: Number of processes; -1: one per core.
        progress: Whether to show the progress of runs.
    """

    seeds: int | None = None
    quick: bool = False
    jobs: int = -1
    progress: bool = False

    def __post_init__(self) -> None:
        optional_module("joblib")  # fail before any run starts

    def run(self, scenario: Scenario, folder: Path) -> Results:
        """Complete the runs of a scenario in a folder and return the results."""
        return run_scenario(
            scenario, folder, seeds=self.seeds, jobs=self.jobs, progress=self.progress
        )

    def run_all(self, scenarios: Mapping[Path, Scenario]) -> list[Results]:
        """Complete the runs of scenarios, each in its folder, and return the results."""
        return [self.run(scenario, folder) for folder, scenario in scenarios.items()]


class Study(Protocol):
    """Completes the runs in a folder and reports the results; its docstring is the question."""

    def play(self, folder: Path, effort: Effort) -> Report:
        """Return the report of the results."""


ROUNDS: dict[str, dict[str, Any]] = {
    "synchronous": {"kind": "synchronous"},
    "over-selection": {"kind": "synchronous", "over_selection": 1.3},
    "asynchronous": {"kind": "buffered", "buffer_size": 10},
}
"""How rounds can close: with the last response, with the first m of 1.3 m, or never."""


def totals(records: Iterable[RoundRecord], n_clients: int) -> tuple[float, IntArray]:
    """Return the mean virtual seconds per round, and how often each client participated."""
    rounds = list(records)
    clock_s = rounds[-1].clock_s
    assert clock_s is not None
    participants = np.array([k for record in rounds for k in record.kept or ()], dtype=np.int64)
    return clock_s / len(rounds), participation(participants, n_clients)


def with_policies(
    scenario: Scenario, policies: dict[str, tuple[str, dict[str, Any]]], **changes: Any
) -> Scenario:
    """Return a scenario with other policies, given as (registry name, settings) by label."""
    tables = {label: {"policy": name, **settings} for label, (name, settings) in policies.items()}
    return scenario.changed(policies=tables, **changes)


def table_of(
    title: str,
    rows: Sequence[Mapping[str, Cell]],
    better: Mapping[str, Better] | None = None,
    note: str = "",
) -> Table:
    """Return rows of names and numbers as a table; `better` says which way is, by column.

    >>> from bsfl.experiments import Interval
    >>> print(table_of("t", [{"policy": "a", "time": Interval(1234.5, 1230.0, 1239.0)}]))
    t
    <BLANKLINE>
    policy       time
    a       1,234 ± 4
    """
    columns = [
        metric_column(METRICS[name]) if name in METRICS else Column(name, (better or {}).get(name))
        for name in rows[0]
    ]
    return Table(title=title, columns=columns, rows=[list(row.values()) for row in rows], note=note)
