"""The figures of the paper that are scenarios, and its figure of g."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bsfl.estimators.generalization import signed_power
from bsfl.experiments.learning_spec import Learning
from bsfl.experiments.reading import read_scenario
from bsfl.experiments.scenario import Scenario
from bsfl.report import Report, scenario_report
from bsfl.report.plots import Line, Panel, Plot, Rule
from bsfl.studies.study import Effort

QUICK_PART, QUICK_SEEDS = 10, 3
"""A quick reproduction runs a tenth of the rounds with three seeds, or trains with one seed."""
EMBEDDED = {"fashion-mnist": "fashion-mnist-small"}
"""Data sets that need no download, in place of the full ones."""


@dataclass(frozen=True, slots=True)
class ScenarioStudy:
    """One scenario of the paper, with its figures."""

    name: str

    def scenario(self, *, quick: bool) -> Scenario:
        """Return the scenario to run; quick: a shorter version, on embedded images."""
        whole = read_scenario(self.name)
        if not quick:
            return whole
        if not whole.learning:
            return whole.changed(rounds=whole.rounds // QUICK_PART, seeds=QUICK_SEEDS)
        assert isinstance(whole.learning, Learning)
        dataset = EMBEDDED.get(whole.learning.dataset, whole.learning.dataset)
        learning = whole.learning.changed(dataset=dataset)
        return whole.changed(time_s=whole.time_s / QUICK_PART, seeds=1, learning=learning)

    def play(self, folder: Path, effort: Effort) -> Report:
        return scenario_report(effort.run(self.scenario(quick=effort.quick), folder))


@dataclass(frozen=True, slots=True)
class Generalization:
    """The generalization value g by rate of selection, for several values of beta."""

    target: float = 0.25
    betas: tuple[int, ...] = (1, 2, 3, 5)

    def play(self, folder: Path, effort: Effort) -> Report:
        rate = np.linspace(0, 1, 401)
        worth = {f"beta = {beta}": signed_power(self.target - rate, beta) for beta in self.betas}
        lines = [Line(label=label, x=rate, y=g) for label, g in worth.items()]
        share = Rule(at=self.target, label=f"share m/K = {self.target:g}", is_upright=True)
        panel = Panel(
            x="rate of selection so far, c / t",
            y="generalization value g",
            title="Selected too rarely: positive; too often: negative",
            marks=[*lines, Rule(at=0.0), share],
        )
        return Report(
            title="The generalization value",
            numbers={"target_rate": self.target, "betas": list(self.betas)},
            plots=[Plot(name="generalization", caption=panel.title, panels=[panel])],
        )
