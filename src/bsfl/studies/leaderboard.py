"""Every policy in every scenario: tuned by the same budget, then compared in the same worlds.

DIR/tuning/<scenario>/   each policy's candidate settings in one world that is not used again
DIR/<scenario>/          the chosen settings in the worlds that count
DIR/<scenario>/front.json   what BSFL and the genie reach with other weights: time, participation
DIR/leaderboard.json     all of it in numbers
"""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from bsfl.analysis.statistics import at_same_gini, interval
from bsfl.analysis.summary import evaluated, find_target, summarise, time_to
from bsfl.errors import InvalidInput
from bsfl.extras import optional_imports
from bsfl.fairness import gini, participation
from bsfl.files import replace_file
from bsfl.policies import POLICIES
from bsfl.records import FloatArray
from bsfl.runs.results import Results
from bsfl.runs.run import run_scenario
from bsfl.scenario.learning_spec import LINEAR
from bsfl.scenario.scenario import Scenario, parse_scenario
from bsfl.simulation import simulate
from bsfl.studies.candidates import CANDIDATES, KNOWS_THE_TRUTH, TAIL

with optional_imports():
    from joblib import Parallel, delayed

ARENA = (
    "phones-iid",
    "phones-dirichlet",
    "phones-quantity",
    "authors-bimodal",
    "authors-three-speeds",
    "availability-8pct",
    "drift",
    "flaky",
)
"""The scenarios of the leaderboard."""

COMPETITORS = tuple(name for name in POLICIES if name not in KNOWS_THE_TRUTH)
"""The policies of the leaderboard."""

TUNING_SEED = 10_000
"""Seed of the world for tuning, far from those that count."""
QUICK_PART, QUICK_SEEDS = 4, 1
"""A quick leaderboard plays a quarter of the time in one world."""
FRONT_ALPHAS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 20.0, 40.0, 100.0, 300.0, 1000.0)
FRONTS: dict[str, tuple[str, dict[str, Any]]] = {
    "BSFL as printed": ("bsfl", {}),
    "BSFL lognormal": ("bsfl", TAIL),
    "BSFL lognormal, optimistic": ("bsfl", {"index": {"kind": "lognormal", "optimism": 2.0}}),
    "genie": ("genie", {}),
}
"""Whose fronts of round time against participation are drawn, weight by weight.

BSFL with the index as printed, with the one it may be tuned to, and with that and more optimism,
which pays where few clients take part: it finds the quickest of all.
"""

Settings = dict[str, Any]
Watch = Callable[[Results], AbstractContextManager[None]]


def run_leaderboard(
    scenarios: list[Scenario],
    folder: Path,
    *,
    policies: list[str],
    seeds: int | None = None,
    tune: int = 1,
    jobs: int = -1,
    watch: Watch = lambda _: nullcontext(),
) -> dict[str, Any]:
    """Run what is missing in the folder and return the leaderboard.

    Args:
        scenarios: The worlds, each of which trains.
        folder: Where results are, or will be.
        policies: Who competes, by registry name.
        seeds: How many worlds; None: as many as each scenario says.
        tune: How many candidate settings each policy may try; 1: its defaults are taken.
        jobs: Processes; -1: one per core.
        watch: Shows the progress of results while they are computed.
    """
    for scenario in scenarios:
        if not scenario.learning or scenario.learning.dataset == LINEAR:
            raise InvalidInput(f"{scenario.name} trains no classifier, so it has no leaderboard")
    board: dict[str, Any] = {"tune": tune, "scenarios": {}}
    for scenario in scenarios:
        able = [name for name in policies if can_play(name, scenario)]
        settings = tuned(scenario, folder / "tuning" / scenario.name, able, tune, jobs, watch)
        final = with_policies(scenario, {name: (name, settings[name]) for name in able})
        results = Results(folder / scenario.name, final, seeds or final.seeds)
        with watch(results):
            run_scenario(final, results.folder, seeds=results.seeds, jobs=jobs)
        points = fronts(scenario, results.folder, seeds=results.seeds, jobs=jobs)
        board["scenarios"][scenario.name] = {
            "title": scenario.title,
            "seeds": results.seeds,
            "target": str(find_target(results)),
            "settings": settings,
            "fronts": points,
            "policies": _rows(results, points),
        }
    content = json.dumps(board, indent=2) + "\n"
    replace_file(folder / "leaderboard.json", content.encode())
    return board


def can_play(name: str, scenario: Scenario) -> bool:
    """Return whether a policy can take part: the genie knows one truth, and so no drift."""
    return name != "genie" or scenario.fleet.drift is None


def with_policies(
    scenario: Scenario, policies: dict[str, tuple[str, Settings]], **changes: Any
) -> Scenario:
    """Return the scenario with other policies, (registry name, settings) by label."""
    tables = {label: {"policy": name, **settings} for label, (name, settings) in policies.items()}
    source = {**scenario.source, "policies": tables, **changes}
    return parse_scenario(source, name=scenario.name, file=f"{scenario.name}.toml")


def quick(scenario: Scenario) -> Scenario:
    """Return a small version: less time or fewer rounds, in one world."""
    source = {**scenario.source, "seeds": QUICK_SEEDS}
    if "time_s" in source:
        source["time_s"] = source["time_s"] / QUICK_PART
    if "rounds" in source:
        source["rounds"] = source["rounds"] // QUICK_PART
    fleet = source["fleet"]
    if "drift" in fleet:
        at = max(2, fleet["drift"]["at"] // QUICK_PART)
        source["fleet"] = {**fleet, "drift": {**fleet["drift"], "at": at}}
    if "learning" in source:
        lesson = source["learning"].items()
        source["learning"] = {k: v for k, v in lesson if k != "target_accuracy"}
    return parse_scenario(source, name=scenario.name, file=f"{scenario.name}.toml")


def tuned(
    scenario: Scenario, folder: Path, policies: list[str], budget: int, jobs: int, watch: Watch
) -> dict[str, Settings]:
    """Return the settings with which each policy is quickest to the target in a world of its own.

    Where none reaches the target, the highest accuracy at the end decides. With a budget of 1 the
    first candidate, the defaults, is taken without a trial.
    """
    candidates = {name: CANDIDATES.get(name, ({},))[: max(1, budget)] for name in policies}
    chosen = {name: dict(tries[0]) for name, tries in candidates.items()}
    trials = {
        f"{name}.{i}": (name, dict(settings))
        for name, tries in candidates.items()
        if len(tries) > 1
        for i, settings in enumerate(tries)
    }
    if not trials:
        return chosen
    trial = with_policies(scenario, trials, seeds=1, first_seed=TUNING_SEED)
    results = Results(folder, trial, 1)
    with watch(results):
        run_scenario(trial, folder, seeds=1, jobs=jobs)
    target = find_target(results)

    def score(label: str) -> tuple[float, float]:
        ended = evaluated(results.records(label)[0])[-1]
        return float(time_to(results, label, target)[0]), -float(ended["test_accuracy"])

    for name, tries in candidates.items():
        if len(tries) > 1:
            best = min(range(len(tries)), key=lambda i: score(f"{name}.{i}"))
            chosen[name] = dict(tries[best])
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
    played = Parallel(n_jobs=jobs)(
        delayed(_played)(weighted, label, seed)
        for label in weighted.policies
        for seed in range(seeds)
    )
    measured = np.array(played).reshape(len(choices), seeds, 2).mean(axis=1)
    points = [
        {"front": label, "alpha": alpha, "mean_round_s": float(round_s), "gini": float(uneven)}
        for (label, alpha), (round_s, uneven) in zip(choices, measured, strict=True)
    ]
    content = json.dumps({**asked, "points": points}, indent=2) + "\n"
    replace_file(path, content.encode())
    return points


def _played(scenario: Scenario, label: str, seed: int) -> tuple[float, float]:
    """Return mean round time and Gini of one run that trains nothing."""
    fleet = scenario.world(seed)
    records = list(
        simulate(
            scenario.policy(label, fleet),
            fleet,
            cohort_size=scenario.cohort_size,
            rounds=scenario.rounds,
            time_s=scenario.time_s,
            seed=scenario.first_seed + seed,
        )
    )
    chosen = np.concatenate([np.array(record.cohort, dtype=np.int64) for record in records])
    clock_s = records[-1].clock_s
    assert clock_s is not None
    return clock_s / len(records), gini(participation(chosen, fleet.n_clients))


def round_at_gini(points: list[Settings], uneven: float) -> float | None:
    """Return BSFL's mean round time at a Gini; None if that is more even than any weight gets."""
    reached = [p for p in points if FRONTS[p["front"]][0] == "bsfl"]
    if uneven < min(point["gini"] for point in reached):
        return None
    return at_same_gini([(point["mean_round_s"], point["gini"]) for point in reached], uneven)


def _rows(results: Results, points: list[Settings]) -> dict[str, Any]:
    """Return the numbers of every policy in one scenario."""
    summary = summarise(results)
    equal_s = equal_times(results)
    rows = {}
    for label, row in summary["policies"].items():
        bsfl_round = round_at_gini(points, row["gini"]["mean"])
        own_round = row["mean_round_s"]["mean"]
        rows[label] = {
            key: row[key]
            for key in (
                "time_to_target_s",
                "reached_target",
                "target_speed_up",
                "mean_round_s",
                "gini",
                "rounds",
            )
        }
        rows[label] |= {
            "blind": label not in KNOWS_THE_TRUTH,
            "accuracy": interval(value_at(results, label, "test_accuracy", equal_s)).as_json(),
            "worst_label_accuracy": interval(
                value_at(results, label, "worst_label_accuracy", equal_s)
            ).as_json(),
            "selection_s": results.selection_s(label),
            "round_over_bsfl_at_gini": own_round / bsfl_round if bsfl_round else None,
        }
    return rows


def equal_times(results: Results) -> FloatArray:
    """Return the virtual time up to which every policy has played, seed by seed."""
    ends = [[r["clock_s"][-1] for r in results.records(k)] for k in results.scenario.policies]
    first: FloatArray = np.min(ends, axis=0)
    return first


def value_at(results: Results, label: str, column: str, times: FloatArray) -> FloatArray:
    """Return the last evaluation before a time, seed by seed."""
    values = []
    for records, time_s in zip(results.records(label), times, strict=True):
        seen = evaluated(records)
        values.append(seen[column][max(0, np.searchsorted(seen["clock_s"], time_s, "right") - 1)])
    return np.array(values)
