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
from bsfl.scenario import find_scenario
from bsfl.studies.study import Effort, with_policies

WORLDS = ("phones-iid", "flaky", "phones-week")
KINDS: dict[str, dict[str, Any]] = {
    "barrier": {"kind": "barrier"},
    "1.3 x invited": {"kind": "barrier", "invite": 1.3},
    "no barrier": {"kind": "buffered", "buffer": 10},
}
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
        found = {
            (world, kind): self.summary(world, kind, folder, effort)
            for world in self.worlds
            for kind in KINDS
        }
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
        caption = "Lower is better; no bar: not every world reached the target."
        plot = Plot(name="rounds", caption=caption, panels=panels, n_columns=len(panels))
        return Findings(title=title, numbers=numbers, tables=[table_of(title, rows)], plots=[plot])

    def summary(self, world: str, kind: str, folder: Path, effort: Effort) -> Summary:
        """Play one world with one kind of rounds."""
        own = POLICIES | (ALONE if KINDS[kind]["kind"] == "buffered" else {})
        settings = {name: (name, chosen) for name, chosen in own.items()}
        scenario = with_policies(find_scenario(world), settings, round=KINDS[kind])
        place = folder / world / kind.replace(" ", "-")
        return summarise(effort.run(scenario, place))


def _cell(summary: Summary, label: str) -> str | Interval:
    return summary.text(label, "time_to_target_s", wide=True)


def _bars(label: str, world: str, found: dict[tuple[str, str], Summary]) -> Bars:
    means = [found[world, kind].mean(label, "time_to_target_s") for kind in KINDS]
    height = np.nan_to_num(np.array(means))
    return Bars(label=label, names=list(KINDS), height=height, is_stacked=False)
