"""Every policy in every scenario: tuned by the same budget, then compared in the same worlds.

DIR/tuning/<scenario>/      candidate settings in one world that is not used again
DIR/<scenario>/             the chosen settings in the worlds that count
DIR/<scenario>/front.json   what BSFL and the genie reach with other weights: time, participation
"""

import copy
import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bsfl import checks
from bsfl.analysis.summary import Summary, summarise
from bsfl.analysis.tables import summary_table, winners_table
from bsfl.analysis.target import at_the_end, find_target, time_to
from bsfl.analysis.verdict import overall
from bsfl.errors import InvalidInput
from bsfl.extras import in_parallel
from bsfl.fairness import gini
from bsfl.files import sealed
from bsfl.policies import POLICIES
from bsfl.report import Findings
from bsfl.report.plots import Line, Mark, Panel, Plot, Points
from bsfl.runs import Results
from bsfl.runs.run import play
from bsfl.scenario import Scenario, find_scenario
from bsfl.scenario.learning_spec import LINEAR
from bsfl.studies.study import ROUNDS, Effort, changed, totals, with_policies

ARENA = (
    *("phones-iid", "phones-dirichlet", "phones-quantity", "authors-bimodal"),
    *("authors-three-speeds", "availability-8pct", "drift", "flaky", "phones-week"),
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
FIRST_SEED, TUNING_SEED = 300, 10_000
"""Seeds of the worlds that count, which nothing was chosen in, and of the world for tuning."""
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
        rounds: How rounds are closed, the same for all: "over-selection", "barrier" or "no
            barrier".
        engine: What trains, "jax" or "fast"; None: as each scenario says.
    """

    scenarios: tuple[str, ...] = ARENA
    policies: tuple[str, ...] = COMPETITORS
    tune: int = 1
    rounds: str = "over-selection"
    engine: str | None = None

    def __post_init__(self) -> None:
        checks.one_of("rounds", self.rounds, tuple(ROUNDS))
        checks.between("tune", self.tune, 1, max(map(len, CANDIDATES.values())))
        for name in self.policies:
            POLICIES.find(name)  # it says what is known

    def play(self, folder: Path, effort: Effort) -> Findings:
        scenarios = [find_scenario(name) for name in self.scenarios]
        for one in scenarios:
            if not one.learning or getattr(one.learning, "dataset", None) == LINEAR:
                raise InvalidInput(f"{one.name} trains no classifier, so it has no leaderboard")
        scenarios = [played(one, self.rounds, self.engine) for one in scenarios]
        if effort.quick:
            scenarios = [quick(one) for one in scenarios]
        standings = self.compete(scenarios, folder, effort)
        tried = f"Every policy could try up to {self.tune} settings in a world of its own."
        summaries = [one.summary for one in standings]
        winners = [winners_table(summaries)] if len(summaries) > 1 else []
        pareto = Plot(
            name="pareto",
            question="What do short rounds cost in evenness?",
            caption="Lower and further left is better. The grey lines are what BSFL, and the genie "
            "that is told true speeds, reach with other weights.",
            panels=[one.panel() for one in standings],
            n_columns=N_COLUMNS,
        )
        return Findings(
            title="Leaderboard",
            verdict=[
                *overall(summaries),
                f"Times are virtual, rounds close by {self.rounds}. "
                f"{tried if self.tune > 1 else 'Nothing was tuned.'}",
                *(line for one in standings for line in one.summary.mixed()),
            ],
            numbers={
                "tune": self.tune,
                "rounds": self.rounds,
                "scenarios": {one.summary.scenario.name: one.as_json() for one in standings},
            },
            tables=[
                *winners,
                *(summary_table(one.summary, "leaderboard", one.note()) for one in standings),
            ],
            brief=[
                *(summary_table(one.summary, "podium") for one in standings),
                *winners,
            ],
            plots=[pareto],
        )

    def compete(self, scenarios: list[Scenario], folder: Path, effort: Effort) -> list[Standing]:
        """Run what is missing of scenarios in the folder and return who stands where in each."""
        settings = tuned(scenarios, folder / "tuning", self.policies, self.tune, effort)
        finals = {
            folder / one.name: with_policies(
                one, {name: (name, chosen) for name, chosen in settings[one.name].items()}
            )
            for one in scenarios
        }
        standings = []
        for results in effort.run_all(finals):
            one = results.scenario
            points = fronts(one, results.folder, seeds=results.seeds, jobs=effort.jobs)
            own = [p for p in points if FRONTS[p["front"]][0] == "bsfl"]
            front = [(p["mean_round_s"], p["gini"]) for p in own]
            standings.append(Standing(summarise(results, front), settings[one.name], points))
        return standings


def can_play(name: str, scenario: Scenario) -> bool:
    """Return whether a policy can take part: the genie knows one truth, and so no drift."""
    return name != "genie" or scenario.fleet.drift is None


def played(scenario: Scenario, rounds: str, engine: str | None) -> Scenario:
    """Return a scenario as it is played here: fresh worlds, and rounds that are closed alike.

    Where no round waits for its slowest client, half the time is enough.
    """
    source = copy.deepcopy(scenario.source) | {"round": ROUNDS[rounds], "first_seed": FIRST_SEED}
    if engine:
        source["learning"]["engine"] = engine
    for table, key in ((source, "time_s"), (source["learning"], "evaluate_every_s")):
        if key in table and rounds != "barrier":
            table[key] /= 2
    return changed(scenario, **source)


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
    scenarios: list[Scenario], folder: Path, policies: tuple[str, ...], budget: int, effort: Effort
) -> dict[str, dict[str, Settings]]:
    """Return by scenario the settings with which each policy that can play it is quickest.

    That is in a world of its own. Where none reaches the target, the highest accuracy at the end
    decides. With a budget of 1 the defaults are taken without a trial.
    """
    chosen = {
        one.name: {name: dict[str, Any]() for name in policies if can_play(name, one)}
        for one in scenarios
    }
    trials = {}
    for one in scenarios:
        tries = {
            f"{name}.{i}": (name, dict(settings))
            for name in chosen[one.name]
            if len(candidates := CANDIDATES.get(name, ())[:budget]) > 1
            for i, settings in enumerate(candidates)
        }
        if tries:
            trials[folder / one.name] = with_policies(one, tries, seeds=1, first_seed=TUNING_SEED)
    for results in replace(effort, seeds=1).run_all(trials):
        for label in sorted(results.scenario.policies, key=partial(score, results))[::-1]:
            name, settings = results.scenario.policies[label]  # the best has the last word
            chosen[results.scenario.name][name] = dict(settings)
    return chosen


def score(results: Results, label: str) -> tuple[float, float]:
    """Return what is smallest for the best of the settings that were tried."""
    ended = at_the_end(results, label, "test_accuracy")[0]
    return float(time_to(results, label, find_target(results))[0]), -float(ended)


def fronts(scenario: Scenario, folder: Path, *, seeds: int, jobs: int) -> list[Settings]:
    """Return mean round time and Gini of BSFL with three indices, and of the genie, by weight.

    Nothing is trained for it: neither depends on the model.
    """
    path = folder / "front.json"
    able = {label: front for label, front in FRONTS.items() if can_play(front[0], scenario)}
    asked = {"seeds": seeds, "alphas": list(FRONT_ALPHAS), "fronts": json.loads(json.dumps(able))}
    if (known := _known_fronts(path)) and {**asked, "points": known["points"]} == known:
        points: list[Settings] = known["points"]
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
    sealed.write(path, {**asked, "points": points})
    return points


def _known_fronts(path: Path) -> Settings | None:
    """Return what was played before; None: nothing, or it is damaged and will be played again."""
    try:
        known = sealed.read(path, advice="it is played again")
    except (OSError, InvalidInput):
        return None
    return known if known.pop("format") == sealed.FORMAT else None


def _played(scenario: Scenario, label: str, world: int) -> tuple[float, float]:
    """Return mean round time and Gini of one run that trains nothing."""
    fleet = scenario.world(world)
    records = play(scenario, scenario.policy(label, fleet), fleet, world)
    mean_round_s, counts = totals(records, fleet.n_clients)
    return mean_round_s, gini(counts)
