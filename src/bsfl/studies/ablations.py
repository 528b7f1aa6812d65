"""What each option of BSFL buys, measured: one study per option.

A study runs a few scenarios that train nothing and condenses them into rows of numbers, each with
its 95 % interval over seeds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bsfl.analysis.statistics import at_same_gini, interval
from bsfl.analysis.summary import fair_selections
from bsfl.fairness import gini, participation
from bsfl.records import FloatArray
from bsfl.runs.results import Records, Results
from bsfl.runs.run import run_scenario
from bsfl.scenario.scenario import Scenario, find_scenario, parse_scenario
from bsfl.studies.candidates import TAIL

Row = dict[str, Any]
TURNS_LEFT_OUT = 3
"""Times that the fleet is chosen through before learning counts as finished."""
FLOOR, FLOOR_PART, FLOOR_ROUNDS = 0.8, 5, 1000
"""The floor that is asked for; from which part of the run on it must hold; and for how long."""
FLOOR_SEED = 100
"""Seed of the first world: the controller was adjusted on others."""
FLOOR_FLEETS = (
    "phones-iid",
    "phones-quantity",
    "authors-bimodal",
    "authors-three-speeds",
    "drift",
    "flaky",
    "availability-8pct",
)


@dataclass(frozen=True, slots=True)
class Ablation:
    """A study.

    Attributes:
        about: One line.
        scenarios: What it runs, by name.
        rows: Returns what came out, from the results by scenario.
    """

    about: str
    scenarios: tuple[str, ...]
    rows: Callable[[dict[str, Results]], list[Row]]


def run_ablation(
    name: str,
    folder: Path,
    *,
    seeds: int | None = None,
    jobs: int = -1,
    watch: Callable[[Results], Any],
) -> dict[str, Results]:
    """Run what is missing of a study in the folder and return the results by scenario."""
    study, found = ABLATIONS[name], {}
    for one in study.scenarios:
        scenario = with_floors(find_scenario(one)) if name == "floor" else find_scenario(one)
        results = Results(folder / one, scenario, seeds or scenario.seeds)
        with watch(results):
            found[one] = run_scenario(scenario, folder / one, seeds=results.seeds, jobs=jobs)
    return found


def left_out(scenario: Scenario) -> int:
    """Return the rounds of the exploration phase, 3 K / m."""
    return -(-TURNS_LEFT_OUT * scenario.fleet.n_clients // scenario.cohort_size)


def late(records: Records, scenario: Scenario) -> tuple[float, float]:
    """Return virtual time and Gini of the rounds after the exploration phase."""
    rest = records[left_out(scenario) :]
    counts = participation(rest["cohort"], scenario.fleet.n_clients)
    return float(rest["duration_s"].sum()), gini(counts)


def radius_rows(found: dict[str, Results]) -> list[Row]:
    """Compare every index with the genie at the same Gini, and its regret with the paper's."""
    rows = []
    for name, results in found.items():
        scenario = results.scenario
        points = {
            label: [late(records, scenario) for records in results.records(label)]
            for label in scenario.policies
        }
        fronts = [
            [points[k][seed] for k in points if k.startswith("genie")]
            for seed in range(results.seeds)
        ]
        for label in scenario.policies:
            if label.startswith("genie"):
                continue
            pairs = zip(points[label], fronts, strict=True)
            ratio = [time_s / at_same_gini(front, uneven) for (time_s, uneven), front in pairs]
            early = [r["duration_s"][: left_out(scenario)].sum() for r in results.records(label)]
            row = {
                "fleet": name.removeprefix("ablation-radius-"),
                "index": label,
                "time over genie at this Gini": interval(ratio).as_json(),
                "Gini": interval([g for _, g in points[label]]).as_json(),
                "exploration (s)": interval(early).as_json(),
                "regret over the paper's": None,
            }
            assert scenario.objective
            paper = f"paper-{scenario.objective.alpha:g}"
            if label.endswith(f"-{scenario.objective.alpha:g}"):
                regret = results.cumulative(label, "regret")[:, -1]
                base = results.cumulative(paper, "regret")[:, -1]
                row["regret over the paper's"] = interval(regret / base).as_json()
            rows.append(row)
    return rows


def drift_rows(found: dict[str, Results]) -> list[Row]:
    """Compare the time lost after a change with that of the policy that never forgets."""
    drift, steady = found["ablation-drift"], found["ablation-steady"]
    change = drift.scenario.fleet.drift
    assert change
    half = change.at - 1

    def after(results: Results, label: str, first: int, last: int) -> FloatArray:
        return np.array([r["duration_s"][first:last].sum() for r in results.records(label)])

    def excess(label: str) -> FloatArray:
        end = drift.scenario.rounds
        return after(drift, label, half, end) - after(steady, label, half, end)

    rows = []
    for label in drift.scenario.policies:
        lost = excess(label)
        fresh = after(steady, label, 0, drift.scenario.rounds - half)
        rows.append(
            {
                "policy": label,
                "before (s)": interval(after(drift, label, 0, half)).as_json(),
                "after (s)": interval(after(drift, label, half, drift.scenario.rounds)).as_json(),
                "lost by the change (s)": interval(lost).as_json(),
                "lost, over stationary": interval(lost / excess("stationary")).as_json(),
                "after, over starting afresh": interval(
                    after(drift, label, half, drift.scenario.rounds) / fresh
                ).as_json(),
            }
        )
    return rows


def plain_rows(found: dict[str, Results]) -> list[Row]:
    """Compare mean round time and Gini with those of random selection."""
    (results,) = found.values()
    n_clients = results.scenario.fleet.n_clients

    def rounds(label: str) -> FloatArray:
        return np.array([r["duration_s"].mean() for r in results.records(label)])

    return [
        {
            "policy": label,
            "mean round (s)": interval(rounds(label)).as_json(),
            "over random": interval(rounds(label) / rounds("random")).as_json(),
            "Gini": interval(
                [gini(participation(r["cohort"], n_clients)) for r in results.records(label)]
            ).as_json(),
        }
        for label in results.scenario.policies
    ]


def jitter_rows(found: dict[str, Results]) -> list[Row]:
    """The same, and mean round time over that of the mean-based index with the same alpha."""
    (results,) = found.values()
    rows = plain_rows(found)
    for row in rows:
        alpha = row["policy"].partition("-")[2]
        if alpha:
            own, base = (
                np.array([r["duration_s"].mean() for r in results.records(label)])
                for label in (row["policy"], f"means-{alpha}")
            )
            row["over means"] = interval(own / base).as_json()
        else:
            row["over means"] = None
    return rows


def with_floors(scenario: Scenario) -> Scenario:
    """Return the fleet of an arena's scenario with policies that are asked for a floor."""
    source = {k: v for k, v in scenario.source.items() if k not in ("learning", "time_s")}
    fleet = dict(source["fleet"])
    if scenario.learning:  # clients take as long as if they trained
        held = scenario.learning.deal(scenario.fleet.n_clients, seed=FLOOR_SEED).sizes
        spread = float(np.log(held).std()) if held.std() > 1 else 0.0
        fleet["data"] = {"mean_samples": float(held.mean()), "size_sigma": spread}
    if "drift" in fleet:
        fleet["drift"] = {**fleet["drift"], "at": FLOOR_ROUNDS // 2 + 1}
    asked = {"policy": "bsfl", "alpha": {"kind": "floor", "share": FLOOR}}
    source |= {
        "fleet": fleet,
        "rounds": FLOOR_ROUNDS,
        "first_seed": FLOOR_SEED,
        "policies": {
            "floor-paper": asked,
            "floor-bernstein": {**asked, "index": {"kind": "means", "radius": "bernstein"}},
            "floor-lognormal": {**asked, **TAIL},
            "random": {},
        },
    }
    return parse_scenario(source, name=scenario.name, file=f"{scenario.name}.toml")


def floor_rows(found: dict[str, Results]) -> list[Row]:
    """Return the least share that any client ever had after the first part of the run."""
    rows = []
    for name, results in found.items():
        for label in results.scenario.policies:
            base = np.array([r["duration_s"].mean() for r in results.records("random")])
            own = np.array([r["duration_s"].mean() for r in results.records(label)])
            rows.append(
                {
                    "fleet": name,
                    "policy": label,
                    "least share": interval(least_shares(results, label)).as_json(),
                    "mean round over random": interval(own / base).as_json(),
                }
            )
    return rows


def least_shares(results: Results, label: str) -> FloatArray:
    """Return the smallest part of its share that a client had at any time, seed by seed."""
    n_clients = results.scenario.fleet.n_clients
    rate = fair_selections(results, label) / results.scenario.rounds
    least = []
    for records, fair in zip(results.records(label), rate, strict=True):
        chosen = np.zeros((len(records), n_clients))
        for t, cohort in enumerate(records["cohort"]):
            chosen[t, cohort[cohort >= 0]] = 1.0
        share = np.cumsum(chosen, axis=0) / (np.arange(1, len(records) + 1)[:, None] * fair)
        least.append(share[len(records) // FLOOR_PART :].min())
    return np.array(least)


ABLATIONS = {
    "radius": Ablation(
        "narrower confidence radii and the lognormal index, against the genie",
        tuple(f"ablation-radius-{fleet}" for fleet in ("phones", "bimodal", "three-speeds")),
        radius_rows,
    ),
    "drift": Ablation(
        "memories that fade, when a third of the fleet changes speed",
        ("ablation-drift", "ablation-steady"),
        drift_rows,
    ),
    "cold-start": Ablation(
        "a model of strangers, when most clients are met once at most",
        ("ablation-cold-start",),
        plain_rows,
    ),
    "jitter": Ablation(
        "an index of the tail, when half of the clients are jittery",
        ("ablation-jitter",),
        jitter_rows,
    ),
    "floor": Ablation(
        "no client below 80 % of its share, in every fleet of the arena",
        FLOOR_FLEETS,
        floor_rows,
    ),
}
"""Every study by name."""
