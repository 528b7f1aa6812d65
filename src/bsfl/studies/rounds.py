"""The effect of how rounds close, compared with the effect of the selection policy."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bsfl.experiments.reading import read_scenario
from bsfl.experiments.scenario import Scenario
from bsfl.experiments.summary import Summary, summarise
from bsfl.report import Report
from bsfl.report.plots import Bars, Panel, Plot
from bsfl.studies.study import ROUNDS, Effort, table_of, with_policies

SCENARIOS = ("phones-iid", "flaky", "phones-week")
TAIL = {"kind": "lognormal"}
POLICIES: dict[str, dict[str, Any]] = {
    "random": {},
    "bsfl": {"alpha": 1.0, "index": TAIL},
    "rbcs-f": {},
    "oort": {},
}
ASYNCHRONOUS = {"bsfl": {"alpha": 25.0, "index": TAIL}}
"""Settings for asynchronous rounds: one client is selected at a time, and g is 25 times smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundKinds:
    """How much does the way rounds close matter, compared with the selection policy?

    Attributes:
        scenarios: Scenarios that train.
    """

    scenarios: tuple[str, ...] = SCENARIOS

    def play(self, folder: Path, effort: Effort) -> Report:
        kinds = [(name, kind) for name in self.scenarios for kind in ROUNDS]
        results = effort.run_all(
            {folder / name / kind: with_rounds(name, kind) for name, kind in kinds}
        )
        found = dict(zip(kinds, map(summarise, results), strict=True))
        rows = [
            {
                "scenario": name,
                "rounds": kind,
                **{k: summary.interval(k, "time_to_target_s") for k in summary.policies},
            }
            for (name, kind), summary in found.items()
        ]
        numbers = {f"{name}, {kind}": one.as_json() for (name, kind), one in found.items()}
        title = "time_to_target_s, by how rounds close and by policy"
        panels = [
            Panel(
                y="virtual seconds to the target",
                title=name,
                marks=[_bars(label, name, found) for label in POLICIES],
            )
            for name in self.scenarios
        ]
        caption = "Lower is better, with 95 % intervals. No bar: not every seed reached the target."
        plot = Plot(name="rounds", caption=caption, panels=panels, n_columns=len(panels))
        table = table_of(title, rows, note="–: not every seed reached the target")
        return Report(title=title, numbers=numbers, tables=[table], plots=[plot])


def with_rounds(name: str, kind: str) -> Scenario:
    """Return a scenario with one kind of rounds and the policies of this study."""
    settings = POLICIES | (ASYNCHRONOUS if ROUNDS[kind]["kind"] == "buffered" else {})
    policies = {policy: (policy, options) for policy, options in settings.items()}
    return with_policies(read_scenario(name), policies, round=ROUNDS[kind])


def _bars(label: str, scenario: str, found: dict[tuple[str, str], Summary]) -> Bars:
    times = [found[scenario, kind].interval(label, "time_to_target_s") for kind in ROUNDS]
    height = np.array([one.mean if one else np.nan for one in times])
    half = np.array([(one.high - one.low) / 2 if one else np.nan for one in times])
    return Bars(label=label, names=list(ROUNDS), height=height, half=half, is_stacked=False)
