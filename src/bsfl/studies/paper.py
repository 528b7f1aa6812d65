"""The paper's figures that are scenarios, and the one of g."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bsfl.generalization import signed_power
from bsfl.report import Findings, scenario_findings
from bsfl.report.plots import Line, Panel, Plot, Rule
from bsfl.scenario import Scenario, find_scenario
from bsfl.studies.study import Effort, changed

QUICK_PART, QUICK_SEEDS = 10, 3
"""A quick reproduction plays a tenth of the rounds with three seeds, or trains with one."""
EMBEDDED = {"fashion-mnist": "fashion-mnist-small"}
"""Images that need no download, in place of the full data."""


@dataclass(frozen=True, slots=True)
class ScenarioStudy:
    """The scenario with a name, as the paper draws it."""

    name: str

    def scenario(self, *, quick: bool) -> Scenario:
        """Return what is played; quick: less of it, on embedded images."""
        whole = find_scenario(self.name)
        if not quick:
            return whole
        if not whole.learning:
            return changed(whole, rounds=whole.rounds // QUICK_PART, seeds=QUICK_SEEDS)
        learning = dict(whole.source["learning"])
        learning["dataset"] = EMBEDDED.get(learning["dataset"], learning["dataset"])
        return changed(whole, time_s=whole.time_s / QUICK_PART, seeds=1, learning=learning)

    def play(self, folder: Path, effort: Effort) -> Findings:
        return scenario_findings(effort.run(self.scenario(quick=effort.quick), folder))


@dataclass(frozen=True, slots=True)
class Generalization:
    """What the generalization value g is worth after so many selections, for several beta."""

    target: float = 0.25
    betas: tuple[int, ...] = (1, 2, 3, 5)

    def play(self, folder: Path, effort: Effort) -> Findings:
        rate = np.linspace(0, 1, 401)
        worth = {f"beta = {beta}": signed_power(self.target - rate, beta) for beta in self.betas}
        lines = [Line(label=label, x=rate, y=g) for label, g in worth.items()]
        share = Rule(at=self.target, label=f"share m/K = {self.target:g}", is_upright=True)
        panel = Panel(
            x="rate of selection so far, c / t",
            y="generalization value g",
            title="Chosen too rarely: positive; too often: negative",
            marks=[*lines, Rule(at=0.0), share],
        )
        return Findings(
            title="The generalization value",
            numbers={"target_rate": self.target, "betas": list(self.betas)},
            plots=[Plot(name="generalization", caption=panel.title, panels=[panel])],
        )
