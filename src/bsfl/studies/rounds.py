"""How much it matters how rounds are closed, beside who is chosen."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bsfl.analysis.statistics import Interval
from bsfl.analysis.summary import Summary, summarise
from bsfl.analysis.tables import table_of
from bsfl.report import Findings
from bsfl.report.plots import Bars, Panel, Plot
from bsfl.scenario import Scenario, find_scenario
from bsfl.studies.study import ROUNDS, Effort, with_policies

WORLDS = ("phones-iid", "flaky", "phones-week")
TAIL = {"kind": "lognormal"}
POLICIES: dict[str, dict[str, Any]] = {
    "random": {},
    "bsfl": {"alpha": 1.0, "index": TAIL},
    "rbcs-f": {},
    "oort": {},
}
ALONE = {"bsfl": {"alpha": 25.0, "index": TAIL}}
"""Settings without a barrier: one client at a time is chosen, and g is 25 times smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundKinds:
    """How much does it matter how rounds are closed, beside who is chosen?

    Attributes:
        worlds: Scenarios that train.
    """

    worlds: tuple[str, ...] = WORLDS

    def play(self, folder: Path, effort: Effort) -> Findings:
        kinds = [(world, kind) for world in self.worlds for kind in ROUNDS]
        played = effort.run_all(
            {
                folder / world / kind.replace(" ", "-"): scenario(world, kind)
                for world, kind in kinds
            }
        )
        found = dict(zip(kinds, map(summarise, played), strict=True))
        rows = [
            {
                "world": world,
                "rounds": kind,
                **{label: _cell(summary, label) for label in summary.policies},
            }
            for (world, kind), summary in found.items()
        ]
        numbers = {f"{world}, {kind}": one.as_json() for (world, kind), one in found.items()}
        title = "Seconds to the target, by how rounds are closed and who chooses"
        panels = [
            Panel(
                y="virtual seconds to the target",
                title=world,
                marks=[_bars(label, world, found) for label in POLICIES],
            )
            for world in self.worlds
        ]
        caption = (
            "Lower is better, with 95 % intervals. No bar: not every world reached the target."
        )
        plot = Plot(name="rounds", caption=caption, panels=panels, n_columns=len(panels))
        return Findings(title=title, numbers=numbers, tables=[table_of(title, rows)], plots=[plot])


def scenario(world: str, kind: str) -> Scenario:
    """Return one world with one kind of rounds."""
    own = POLICIES | (ALONE if ROUNDS[kind]["kind"] == "buffered" else {})
    settings = {name: (name, chosen) for name, chosen in own.items()}
    return with_policies(find_scenario(world), settings, round=ROUNDS[kind])


def _cell(summary: Summary, label: str) -> str | Interval:
    return summary.text(label, "time_to_target_s", wide=True)


def _bars(label: str, world: str, found: dict[tuple[str, str], Summary]) -> Bars:
    own = [found[world, kind].interval(label, "time_to_target_s") for kind in ROUNDS]
    height = np.array([one.mean if one else np.nan for one in own])
    half = np.array([(one.high - one.low) / 2 if one else np.nan for one in own])
    return Bars(label=label, names=list(ROUNDS), height=height, half=half, is_stacked=False)
