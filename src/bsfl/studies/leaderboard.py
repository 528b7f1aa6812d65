"""Every policy in every scenario: tuned by the same budget, then compared in the same worlds.

DIR/tuning/<scenario>/      candidate settings in one world that is not used again
DIR/<scenario>/             the chosen settings in the worlds that count
DIR/<scenario>/front.json   what BSFL and the genie reach with other weights: time, participation
"""

import copy
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bsfl import checks
from bsfl.analysis.summary import Summary, summarise
from bsfl.analysis.tables import summary_table
from bsfl.analysis.target import at_the_end, find_target, time_to
from bsfl.errors import InvalidInput
from bsfl.extras import in_parallel
from bsfl.fairness import gini
from bsfl.files import write_json
from bsfl.policies import POLICIES
from bsfl.report import Findings
from bsfl.report.plots import Line, Mark, Panel, Plot, Points
from bsfl.runs.run import play
from bsfl.scenario import Scenario, find_scenario
from bsfl.scenario.learning_spec import LINEAR
from bsfl.studies.study import Effort, changed, totals, with_policies

ARENA = (
    *("phones-iid", "phones-dirichlet", "phones-quantity", "authors-bimodal"),
    *("authors-three-speeds", "availability-8pct", "drift", "flaky"),
)
"""The scenarios of the leaderboard."""
COMPETITORS = tuple(
    name for name, policy in POLICIES.items() if not getattr(policy, "knows_truth", False)
)
"""The policies of the leaderboard: all but those that are told true speeds."""
CANDIDATES: dict[str, tuple[dict[str, Any], ...]] = {
    name: ({}, *policy.tuning) for name, policy in POLICIES.items() if hasattr(policy, "tuning")
}
"""What each policy may be tuned to: its defaults first, then what its class says."""
TUNING_SEED = 10_000
"""Seed of the world for tuning, far from those that count."""
QUICK_PART, QUICK_SEEDS = 4, 1
"""A quick leaderboard plays a quarter of the time in one world."""
FRONT_ALPHAS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 20.0, 40.0, 100.0, 300.0, 1000.0)
FRONTS: dict[str, tuple[str, dict[str, Any]]] = {
    "BSFL as printed": ("bsfl", {}),
    "BSFL lognormal": ("bsfl", {"index": {"kind": "lognormal"}}),
    "BSFL lognormal, optimistic": ("bsfl", {"index": {"kind": "lognormal", "optimism": 2.0}}),
    "genie": ("genie", {}),
}
"""Whose fronts of round time against participation are drawn, weight by weight.

BSFL with the index as printed, with the one it may be tuned to, and with that and more optimism,
which pays where few clients take part: it finds the quickest of all.
"""
N_COLUMNS = 4

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Standing:
    """One scenario of the leaderboard: the numbers, what each policy was tuned to, and fronts."""

    summary: Summary
    settings: dict[str, Settings]
    fronts: list[Settings]

    def as_json(self) -> Settings:
        """Return plain numbers."""
        return {**self.summary.as_json(), "settings": self.settings, "fronts": self.fronts}

    def note(self) -> str:
        """Return the settings in words."""
        used = []
        for name, settings in self.settings.items():
            words = ", ".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
            used += [f"{name} ({words}); "] * bool(settings)
        return f"Settings: {''.join(used)}{'all others' if used else 'all'} with their defaults."

    def panel(self) -> Panel:
        """Return mean round time against Gini, with fronts."""
        marks: list[Mark] = []
        for name in FRONTS:
            own = [p for p in self.fronts if p["front"] == name]
            if own:
                x, y = np.array(sorted((p["gini"], p["mean_round_s"]) for p in own)).T
                marks.append(Line(label=f"{name}, other weights", x=x, y=y, is_grey=True))
        for label in self.summary.policies:
            x, y = (np.array([self.summary.mean(label, k)]) for k in ("gini", "mean_round_s"))
            marks.append(Points(label=label, x=x, y=y, names=[label]))
        axes: Any = {"x": "Gini of participation", "y": "mean round (s)", "starts_at_0": "y"}
        return Panel(title=self.summary.scenario.name, marks=marks, **axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """Which policy trains quickest, in which world?

    Attributes:
        scenarios: The worlds, by name or file; each trains.
        policies: Who competes, by registry name.
        tune: How many candidate settings each policy may try; 1: its defaults are taken.
    """

    scenarios: tuple[str, ...] = ARENA
    policies: tuple[str, ...] = COMPETITORS
    tune: int = 1

    def __post_init__(self) -> None:
        checks.between("tune", self.tune, 1, max(map(len, CANDIDATES.values())))

    def play(self, folder: Path, effort: Effort) -> Findings:
        scenarios = [find_scenario(name) for name in self.scenarios]
        for one in scenarios:
            if not one.learning or one.learning.dataset == LINEAR:
                raise InvalidInput(f"{one.name} trains no classifier, so it has no leaderboard")
        if effort.quick:
            scenarios = [quick(one) for one in scenarios]
        standings = [self.compete(one, folder, effort) for one in scenarios]
        tried = f"Every policy could try up to {self.tune} settings in a world of its own."
        pareto = Plot(
            name="pareto",
            caption="Lower and further left is better. The grey lines are what BSFL, and the genie "
            "that is told true speeds, reach with other weights.",
            panels=[one.panel() for one in standings],
            n_columns=N_COLUMNS,
        )
        return Findings(
            title="Leaderboard",
            verdict=[
                f"Times are virtual. {tried if self.tune > 1 else 'Nothing was tuned.'}",
                *(one.summary.verdict() for one in standings),
            ],
            numbers={
                "tune": self.tune,
                "scenarios": {one.summary.scenario.name: one.as_json() for one in standings},
            },
            tables=[summary_table(one.summary, "leaderboard", one.note()) for one in standings],
            brief=[summary_table(one.summary, "podium") for one in standings],
            plots=[pareto],
        )

    def compete(self, scenario: Scenario, folder: Path, effort: Effort) -> Standing:
        """Run what is missing of a scenario in the folder and return who stands where."""
        able = [name for name in self.policies if can_play(name, scenario)]
        settings = tuned(scenario, folder / "tuning" / scenario.name, able, self.tune, effort)
        final = with_policies(scenario, {name: (name, settings[name]) for name in able})
        results = effort.run(final, folder / scenario.name)
        points = fronts(scenario, results.folder, seeds=results.seeds, jobs=effort.jobs)
        own = [p for p in points if FRONTS[p["front"]][0] == "bsfl"]
        front = [(p["mean_round_s"], p["gini"]) for p in own]
        return Standing(summarise(results, front), settings, points)


def can_play(name: str, scenario: Scenario) -> bool:
    """Return whether a policy can take part: the genie knows one truth, and so no drift."""
    return name != "genie" or scenario.fleet.drift is None


def quick(scenario: Scenario) -> Scenario:
    """Return a small version: less time or fewer rounds, in one world."""
    source = copy.deepcopy(scenario.source) | {"seeds": QUICK_SEEDS}
    if "time_s" in source:
        source["time_s"] /= QUICK_PART
    if "rounds" in source:
        source["rounds"] //= QUICK_PART
    if drift := source["fleet"].get("drift"):
        drift["at"] = max(2, drift["at"] // QUICK_PART)
    source.get("learning", {}).pop("target_accuracy", None)
    return changed(scenario, **source)


def tuned(
    scenario: Scenario, folder: Path, policies: list[str], budget: int, effort: Effort
) -> dict[str, Settings]:
    """Return the settings with which each policy is quickest to the target in a world of its own.

    Where none reaches the target, the highest accuracy at the end decides. With a budget of 1 the
    defaults are taken without a trial.
    """
    chosen: dict[str, Settings] = {name: {} for name in policies}
    trials = {
        f"{name}.{i}": (name, dict(settings))
        for name in policies
        if len(tries := CANDIDATES.get(name, ())[:budget]) > 1
        for i, settings in enumerate(tries)
    }
    if not trials:
        return chosen
    trial = with_policies(scenario, trials, seeds=1, first_seed=TUNING_SEED)
    results = replace(effort, seeds=1).run(trial, folder)
    target = find_target(results)

    def score(label: str) -> tuple[float, float]:
        ended = at_the_end(results, label, "test_accuracy")[0]
        return float(time_to(results, label, target)[0]), -float(ended)

    for label in sorted(trials, key=score)[::-1]:  # the best of a policy has the last word
        name, settings = trials[label]
        chosen[name] = settings
    return chosen


def fronts(scenario: Scenario, folder: Path, *, seeds: int, jobs: int) -> list[Settings]:
    """Return mean round time and Gini of BSFL with three indices, and of the genie, by weight.

    Nothing is trained for it: neither depends on the model.
    """
    path = folder / "front.json"
    able = {label: front for label, front in FRONTS.items() if can_play(front[0], scenario)}
    asked = {"seeds": seeds, "alphas": list(FRONT_ALPHAS), "fronts": json.loads(json.dumps(able))}
    if path.is_file():
        known = json.loads(path.read_text())
        points: list[Settings] = known.pop("points")
        if known == asked:
            return points
    choices = [(label, alpha) for label in able for alpha in FRONT_ALPHAS]
    policies = [(able[label][0], {**able[label][1], "alpha": alpha}) for label, alpha in choices]
    weighted = with_policies(scenario, {str(i): policy for i, policy in enumerate(policies)})
    runs = [(weighted, label, seed) for label in weighted.policies for seed in range(seeds)]
    played = np.array(in_parallel(_played, runs, jobs=jobs)).reshape(len(choices), seeds, 2)
    points = [
        {"front": label, "alpha": alpha, "mean_round_s": round_s, "gini": uneven}
        for (label, alpha), (round_s, uneven) in zip(choices, played.mean(1).tolist(), strict=True)
    ]
    write_json(path, {**asked, "points": points})
    return points


def _played(scenario: Scenario, label: str, world: int) -> tuple[float, float]:
    """Return mean round time and Gini of one run that trains nothing."""
    fleet = scenario.world(world)
    records = play(scenario, scenario.policy(label, fleet), fleet, world)
    mean_round_s, counts = totals(records, fleet.n_clients)
    return mean_round_s, gini(counts)
