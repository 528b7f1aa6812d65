"""What clients that lie cost, by what they lie about and who chooses."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsfl.analysis.summary import summarise
from bsfl.analysis.tables import table_of
from bsfl.report import Findings
from bsfl.scenario import Scenario, find_scenario
from bsfl.studies.study import ROUNDS, Effort, changed, with_policies

WORLD = "phones-iid"
POLICIES: dict[str, dict[str, Any]] = {
    "pace": {},
    "bsfl": {"alpha": 1.0, "index": {"kind": "lognormal"}},
    "oort": {},
    "random": {},
}
LIES: dict[str, dict[str, Any] | None] = {
    "nobody lies": None,
    "1 %, about time and loss": {"share": 0.01, "time": True, "loss": 1000.0},
    "10 %, about time": {"share": 0.1, "time": True},
    "10 %, about loss": {"share": 0.1, "loss": 1000.0},
    "10 %, about time and loss": {"share": 0.1, "time": True, "loss": 1000.0},
    "10 %, loss at its bound": {"share": 0.1, "loss": 1e12},
}
"""Who lies about what: as fast as the fastest, and a loss a thousand times as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Liars:
    """What do clients that lie cost, if the server believes what they report?

    Attributes:
        world: A scenario that trains.
    """

    world: str = WORLD

    def play(self, folder: Path, effort: Effort) -> Findings:
        names = [f"lies-{i}" for i in range(len(LIES))]
        worlds = [told(self.world, lies) for lies in LIES.values()]
        played = effort.run_all(
            {folder / name: one for name, one in zip(names, worlds, strict=True)}
        )
        found = dict(zip(LIES, map(summarise, played), strict=True))
        rows = [
            {
                "liars": who,
                **{
                    label: summary.text(label, "time_to_target_s", wide=True)
                    for label in summary.policies
                },
                **{
                    f"{label}, at the end": summary.text(label, "test_accuracy", wide=True)
                    for label in summary.policies
                },
            }
            for who, summary in found.items()
        ]
        title = "Seconds to the target, and accuracy at the end, by who lies about what"
        numbers = {who: one.as_json() for who, one in found.items()}
        return Findings(title=title, numbers=numbers, tables=[table_of(title, rows)])


def told(world: str, lies: dict[str, Any] | None) -> Scenario:
    """Return a world with over-selection in which some clients lie."""
    honest = find_scenario(world)
    fleet = honest.source["fleet"] | ({"lies": lies} if lies else {})
    settings = {name: (name, chosen) for name, chosen in POLICIES.items()}
    return with_policies(changed(honest, fleet=fleet), settings, round=ROUNDS["over-selection"])
