"""Every policy in every scenario: tuned with the same budget, then compared on the same seeds.

DIR/tuning/<scenario>/      candidate settings, with a seed that is used for tuning only
DIR/<scenario>/             the selected settings, with the evaluation seeds
DIR/<scenario>/front.json   round times and Gini of BSFL and the genie with other weights
"""

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.estimators.fairness import gini
from bsfl.experiments.learning_spec import LINEAR
from bsfl.experiments.metrics import at_the_end, find_target, time_to
from bsfl.experiments.parallel import in_parallel
from bsfl.experiments.reading import read_scenario
from bsfl.experiments.results import Results, read_checked, write_checked
from bsfl.experiments.runner import play
from bsfl.experiments.scenario import MAX_ROUNDS, NamedPolicy, Scenario
from bsfl.experiments.summary import Summary, summarise
from bsfl.experiments.tables import summary_table
from bsfl.policies import POLICIES
from bsfl.report import Report
from bsfl.report.plots import Line, Mark, Panel, Plot, Points
from bsfl.studies.study import ROUNDS, Effort, totals, with_policies
from bsfl.studies.winners import overall, winners_table

BENCHMARK_SUITE = (
    *("phones-iid", "phones-dirichlet", "phones-quantity", "authors-bimodal"),
    *("authors-three-speeds", "availability-8pct", "drift", "flaky", "phones-week"),
)
"""The scenarios of the leaderboard."""
COMPETITORS = tuple(name for name, policy in POLICIES.items() if not policy.is_oracle)
"""The policies of the leaderboard: all but oracles, which know the true latencies."""
CANDIDATES: dict[str, tuple[dict[str, Any], ...]] = {
    name: ({}, *policy.search_space) for name, policy in POLICIES.items() if policy.search_space
}
"""Candidate settings of each policy: its defaults first, then the search space of its class."""
FIRST_SEED, TUNING_SEED = 300, 10_000
"""First seed of the evaluation, which no setting was chosen with, and the seed for tuning."""
QUICK_PART, QUICK_SEEDS = 4, 1
"""A quick leaderboard runs a quarter of the time with one seed."""
FRONT_ALPHAS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 20.0, 40.0, 100.0, 300.0, 1000.0)
FRONTS: dict[str, tuple[str, dict[str, Any]]] = {
    "BSFL as published": ("bsfl", {}),
    "BSFL lognormal": ("bsfl", {"index": {"kind": "lognormal"}}),
    "BSFL lognormal, optimistic": ("bsfl", {"index": {"kind": "lognormal", "optimism": 2.0}}),
    "genie": ("genie", {}),
}
"""Policies whose Pareto fronts of round time and participation are drawn, over their weights.

BSFL has its published index, the index that it may be tuned to, and that index with more optimism,
which helps where few clients participate: it finds the fastest of all clients.
"""
N_COLUMNS = 4

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Standing:
    """Results of one scenario of the leaderboard, with the tuned settings and the fronts."""

    summary: Summary
    settings: dict[str, Settings]
    fronts: list[Settings]

    def as_json(self) -> Settings:
        """Return plain numbers."""
        return {**self.summary.as_json(), "settings": self.settings, "fronts": self.fronts}

    def note(self) -> str:
        """Return a sentence with the settings of all policies."""
        used = []
        for name, settings in self.settings.items():
            words = ", ".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
            used += [f"{name} ({words}); "] * bool(settings)
        return f"Settings: {''.join(used)}{'all others' if used else 'all'} with their defaults."

    def panel(self) -> Panel:
        """Return a plot of mean round time against Gini, with fronts."""
        marks: list[Mark] = []
        for name in FRONTS:
            points = [p for p in self.fronts if p["front"] == name]
            if points:
                x, y = np.array(sorted((p["gini"], p["mean_round_s"]) for p in points)).T
                marks.append(Line(label=f"{name}, other weights", x=x, y=y, is_grey=True))
        for label in self.summary.policies:
            x, y = (np.array([self.summary.mean(label, k)]) for k in ("gini", "mean_round_s"))
            marks.append(Points(label=label, x=x, y=y, names=[label]))
        axes: Any = {"x": "Gini of participation", "y": "mean round (s)", "starts_at_0": "y"}
        return Panel(title=self.summary.scenario.name, marks=marks, **axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """Which policy trains fastest, in which scenario?

    Attributes:
        scenarios: Scenarios that train, by name or file.
        policies: The policies to compare, by registry name.
        tune: Number of candidate settings to tune each policy over; 1: its defaults are used.
        rounds: How rounds close, for all policies: "over-selection", "synchronous" or
            "asynchronous".
        engine: Training engine, "jax" or "fast"; None: from each scenario.
    """

    scenarios: tuple[str, ...] = BENCHMARK_SUITE
    policies: tuple[str, ...] = COMPETITORS
    tune: int = 1
    rounds: str = "over-selection"
    engine: str | None = None

    def __post_init__(self) -> None:
        validation.one_of("rounds", self.rounds, tuple(ROUNDS))
        validation.between("tune", self.tune, 1, max(map(len, CANDIDATES.values())))
        for name in self.policies:
            POLICIES.find(name)  # its error lists the known policies

    def play(self, folder: Path, effort: Effort) -> Report:
        scenarios = [read_scenario(name) for name in self.scenarios]
        for one in scenarios:
            if not one.learning or getattr(one.learning, "dataset", None) == LINEAR:
                raise InvalidInput(f"{one.name} trains no classifier, so it has no leaderboard")
        scenarios = [for_leaderboard(one, self.rounds, self.engine) for one in scenarios]
        if effort.quick:
            scenarios = [quick(one) for one in scenarios]
        standings = self.compete(scenarios, folder, effort)
        tuning = f"Every policy was tuned over up to {self.tune} settings, with a separate seed."
        summaries = [one.summary for one in standings]
        winners = [winners_table(summaries)] if len(summaries) > 1 else []
        pareto = Plot(
            name="pareto",
            question="What do short rounds cost in fairness?",
            caption="Lower and further left is better. The grey lines show BSFL, and the genie, "
            "which knows the true latencies, with other weights.",
            panels=[one.panel() for one in standings],
            n_columns=N_COLUMNS,
        )
        return Report(
            title="Leaderboard",
            headline=[
                *overall(summaries),
                f"Times are virtual; rounds: {self.rounds}. "
                f"{tuning if self.tune > 1 else 'No policy was tuned.'}",
                *(line for one in standings for line in one.summary.warnings()),
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
            terminal_tables=[
                *(summary_table(one.summary, "top") for one in standings),
                *winners,
            ],
            plots=[pareto],
        )

    def compete(self, scenarios: list[Scenario], folder: Path, effort: Effort) -> list[Standing]:
        """Complete the runs in the folder and return the standing of each scenario."""
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
            of_bsfl = [p for p in points if FRONTS[p["front"]][0] == "bsfl"]
            front = [(p["mean_round_s"], p["gini"]) for p in of_bsfl]
            standings.append(Standing(summarise(results, front), settings[one.name], points))
        return standings


def can_run(name: str, scenario: Scenario) -> bool:
    """Return whether a policy supports a scenario; the genie does not support drift."""
    return name != "genie" or scenario.clients.drift is None


def for_leaderboard(scenario: Scenario, rounds: str, engine: str | None) -> Scenario:
    """Return a scenario as the leaderboard runs it: with new seeds and a given kind of rounds.

    Rounds that do not wait for the slowest client are shorter, so half of the time is enough.
    """
    learning, part = scenario.learning, 1 if rounds == "synchronous" else 2
    assert learning
    changes: dict[str, Any] = {"evaluate_every_s": learning.evaluate_every_s / part}
    changes |= {"engine": engine} if engine else {}
    return scenario.changed(
        round=ROUNDS[rounds],
        first_seed=FIRST_SEED,
        learning=learning.changed(**changes),
        time_s=scenario.time_s / part if scenario.is_timed else None,
    )


def quick(scenario: Scenario) -> Scenario:
    """Return a small version of a scenario: less time or fewer rounds, with one seed."""
    learning, clients = scenario.learning, scenario.clients
    if drift := clients.drift:
        at = max(2, drift.at // QUICK_PART)
        clients = clients.changed(drift=drift.changed(at=at))
    return scenario.changed(
        seeds=QUICK_SEEDS,
        time_s=scenario.time_s / QUICK_PART if scenario.is_timed else None,
        rounds=None if scenario.rounds == MAX_ROUNDS else scenario.rounds // QUICK_PART,
        clients=clients,
        learning=learning and learning.changed(target_accuracy=None),
    )


def tuned(
    scenarios: list[Scenario], folder: Path, policies: tuple[str, ...], budget: int, effort: Effort
) -> dict[str, dict[str, Settings]]:
    """Return, for every scenario, the settings with which each policy is fastest.

    Candidates run with the tuning seed. Where none of them reaches the target, the highest accuracy
    at the end decides. With a budget of 1 the defaults are used without a trial.
    """
    chosen = {
        one.name: {name: dict[str, Any]() for name in policies if can_run(name, one)}
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
            # the best comes last and overwrites the others
            policy = results.scenario.policies[label]
            assert isinstance(policy, NamedPolicy)
            chosen[results.scenario.name][policy.name] = policy.settings
    return chosen


def score(results: Results, label: str) -> tuple[float, float]:
    """Return a sort key, which is smallest for the best settings."""
    ended = at_the_end(results, label, "test_accuracy")[0]
    return float(time_to(results, label, find_target(results))[0]), -float(ended)


def fronts(scenario: Scenario, folder: Path, *, seeds: int, jobs: int) -> list[Settings]:
    """Return mean round time and Gini of BSFL with three indices, and of the genie, by weight.

    These runs do not train, because neither number depends on the model.
    """
    path = folder / "front.json"
    able = {label: front for label, front in FRONTS.items() if can_run(front[0], scenario)}
    inputs = {"seeds": seeds, "alphas": list(FRONT_ALPHAS), "fronts": json.loads(json.dumps(able))}
    known = read_checked(path) if path.is_file() else None
    if known and {**inputs, "points": known["points"]} == known:
        points: list[Settings] = known["points"]
        return points
    choices = [(label, alpha) for label in able for alpha in FRONT_ALPHAS]
    policies = [(able[label][0], {**able[label][1], "alpha": alpha}) for label, alpha in choices]
    weighted = with_policies(scenario, {str(i): policy for i, policy in enumerate(policies)})
    runs = [(weighted, label, i) for label in weighted.policies for i in range(seeds)]
    found = np.array(in_parallel(_run_untrained, runs, jobs=jobs)).reshape(len(choices), seeds, 2)
    points = [
        {"front": label, "alpha": alpha, "mean_round_s": round_s, "gini": uneven}
        for (label, alpha), (round_s, uneven) in zip(choices, found.mean(1).tolist(), strict=True)
    ]
    write_checked(path, {**inputs, "points": points})
    return points


def _run_untrained(scenario: Scenario, label: str, index: int) -> tuple[float, float]:
    """Return mean round time and Gini of one run without training."""
    fleet = scenario.simulated_clients(index)
    records = play(scenario, scenario.policy(label, fleet), fleet, index)
    mean_round_s, counts = totals(records, fleet.n_clients)
    return mean_round_s, gini(counts)
