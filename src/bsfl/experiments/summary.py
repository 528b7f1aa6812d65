"""What the results of a scenario amount to, as plain numbers."""

from typing import Any

import numpy as np

from bsfl.experiments.results import Results
from bsfl.experiments.statistics import interval
from bsfl.generalization import capped_shares
from bsfl.records import FloatArray, IntArray
from bsfl.simulation import gini, growth_exponent, participation, regret_bound

BASELINES = ("random", "weighted")
"""Registry names of the policies that speed-ups are relative to, the first one present."""


def summarise(results: Results) -> dict[str, Any]:
    """Return the summary that is written to summary.json."""
    scenario = results.scenario
    base = baseline(results)
    base_time = total_time(results, base) if base else None
    summary: dict[str, Any] = {
        "scenario": scenario.name,
        "title": scenario.title,
        "n_clients": scenario.fleet.n_clients,
        "cohort_size": scenario.cohort_size,
        "rounds": scenario.rounds,
        "seeds": results.seeds,
        "policies": {},
    }
    for label in scenario.policies:
        time = total_time(results, label)
        counts = selections(results, label)
        fair = fair_selections(results)
        durations = results.column(label, "duration_s")
        row: dict[str, Any] = {
            "total_time_s": interval(time).as_json(),
            "mean_round_s": interval(time / scenario.rounds).as_json(),
            "round_s_quantiles": {
                f"p{q}": float(np.percentile(durations, q)) for q in (50, 95, 99)
            },
            "speed_up": interval(base_time / time).as_json() if base_time is not None else None,
            "gini": interval(np.array([gini(c) for c in counts])).as_json(),
            "min_share": interval((counts / fair).min(axis=1)).as_json(),
            "max_share": interval((counts / fair).max(axis=1)).as_json(),
            "timeouts_per_round": float(results.column(label, "n_timeouts").mean()),
        }
        if scenario.objective:
            row |= _regret(results, label)
        summary["policies"][label] = row
    if scenario.objective:
        summary["theorem_1_bound"] = float(bound(results, np.array([scenario.rounds]))[0])
    return summary


def baseline(results: Results) -> str | None:
    """Return the label of the policy that speed-ups are relative to."""
    named = {name: label for label, (name, _) in results.scenario.policies.items()}
    return next((named[name] for name in BASELINES if name in named), None)


def total_time(results: Results, label: str) -> FloatArray:
    """Return the virtual seconds each seed took."""
    return np.asarray(results.column(label, "clock_s")[:, -1])


def selections(results: Results, label: str) -> FloatArray:
    """Return how often each client was chosen, [seed, client]."""
    cohorts = results.column(label, "cohort")
    n_clients = results.scenario.fleet.n_clients
    return np.stack([participation(c, n_clients) for c in cohorts]).astype(np.float64)


def fair_selections(results: Results) -> FloatArray:
    """Return how often each client should be chosen by the objective's targets, [seed, client].

    Equal for all, or in proportion to samples x quality where the objective weighs them.
    """
    scenario = results.scenario
    weights = np.ones((results.seeds, scenario.fleet.n_clients))
    if scenario.objective and scenario.objective.generalization == "weighted":
        worlds = [scenario.fleet.build(seed) for seed in range(results.seeds)]
        weights = np.stack([world.roster.significance for world in worlds])
    targets = [capped_shares(w, scenario.cohort_size) for w in weights]
    return scenario.rounds * np.stack(targets)


def decades(results: Results) -> dict[str, tuple[int, int]]:
    """Return the first decade, from when everyone can have been met, and the last one."""
    scenario = results.scenario
    start = -(-scenario.fleet.n_clients // scenario.cohort_size)
    return {
        "first": (start, min(10 * start, scenario.rounds)),
        "last": (max(1, scenario.rounds // 10), scenario.rounds),
    }


def bound(results: Results, rounds: IntArray) -> FloatArray:
    """Return Theorem 1's bound at some rounds, as the mean over the seeds' worlds.

    Delta_max = 2 alpha + mu_max - mu_min as the paper bounds it. Delta_min, the smallest
    difference between two rewards, is taken as the smallest gap between two mean speeds.
    """
    scenario = results.scenario
    assert scenario.objective
    curves = []
    for seed in range(results.seeds):
        mu = np.sort(scenario.fleet.build(seed).mean_speed(1))
        curves.append(
            regret_bound(
                rounds,
                n_clients=len(mu),
                cohort_size=scenario.cohort_size,
                delta_max=2 * scenario.objective.alpha + float(mu[-1] - mu[0]),
                delta_min=float(np.diff(mu).min()),
            )
        )
    return np.asarray(np.mean(curves, axis=0))


def _regret(results: Results, label: str) -> dict[str, Any]:
    regret = results.cumulative(label, "regret")
    row: dict[str, Any] = {"regret": interval(regret[:, -1]).as_json()}
    for name, (first, last) in decades(results).items():
        slopes = np.array([growth_exponent(curve, first, last) for curve in regret])
        row[f"growth_exponent_{name}_decade"] = interval(slopes).as_json()
    return row
