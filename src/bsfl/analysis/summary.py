"""What the results of a scenario amount to, as plain numbers."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bsfl.analysis.statistics import interval
from bsfl.fairness import capped_shares, gini, participation
from bsfl.records import BoolArray, FloatArray, IntArray
from bsfl.runs.results import Records, Results
from bsfl.simulation import growth_exponent, regret_bound

ACCURACY_PART, LOSS_TIMES = 0.97, 2.0
"""The target where a scenario names none, relative to what the worst policy ends with."""
BASELINES = ("random", "weighted")
"""Registry names of the policies that speed-ups are relative to, the first one present."""


def summarise(results: Results) -> dict[str, Any]:
    """Return the summary that is written to summary.json."""
    scenario = results.scenario
    base = baseline(results)
    base_round = mean_round(results, base) if base else None
    summary: dict[str, Any] = {
        "scenario": scenario.name,
        "title": scenario.title,
        "n_clients": scenario.fleet.n_clients,
        "cohort_size": scenario.cohort_size,
        "rounds": scenario.rounds if math.isinf(scenario.time_s) else None,
        "time_s": None if math.isinf(scenario.time_s) else scenario.time_s,
        "seeds": results.seeds,
        "policies": {},
    }
    for label in scenario.policies:
        records = results.records(label)
        own_round = mean_round(results, label)
        served = selections(results, label) / fair_selections(results, label)
        durations = np.concatenate([r["duration_s"] for r in records])
        row: dict[str, Any] = {
            "rounds": interval([len(r) for r in records]).as_json(),
            "total_time_s": interval([r["clock_s"][-1] for r in records]).as_json(),
            "mean_round_s": interval(own_round).as_json(),
            "round_s_quantiles": {
                f"p{q}": float(np.percentile(durations, q)) for q in (50, 95, 99)
            },
            "speed_up": interval(base_round / own_round).as_json()
            if base_round is not None
            else None,
            "gini": interval([gini(c) for c in selections(results, label)]).as_json(),
            "min_share": interval(served.min(axis=1)).as_json(),
            "max_share": interval(served.max(axis=1)).as_json(),
            "timeouts_per_round": float(np.mean([r["n_timeouts"].mean() for r in records])),
        }
        if scenario.objective:
            row |= _regret(results, label)
        summary["policies"][label] = row
    if scenario.objective:
        at_the_end = float(bound(results, np.array([scenario.rounds]))[0])
        summary["theorem_1_bound"] = at_the_end if math.isfinite(at_the_end) else None
    if scenario.learning:
        target = find_target(results)
        summary["target"] = {"column": target.column, "value": target.value, "name": str(target)}
        for label, row in summary["policies"].items():
            row |= _learning(results, label, base, target)
    return summary


def length(summary: dict[str, Any]) -> str:
    """Return how long the runs of a summary were, in words."""
    if summary["time_s"] is None:
        return f"{summary['rounds']:,} rounds"
    return f"{summary['time_s']:,.0f} s of virtual time"


def baseline(results: Results) -> str | None:
    """Return the label of the policy that speed-ups are relative to."""
    named = {name: label for label, (name, _) in results.scenario.policies.items()}
    return next((named[name] for name in BASELINES if name in named), None)


def mean_round(results: Results, label: str) -> FloatArray:
    """Return the mean virtual seconds of a round, seed by seed."""
    return np.array([r["clock_s"][-1] / len(r) for r in results.records(label)])


def selections(results: Results, label: str) -> FloatArray:
    """Return how often each client was chosen, [seed, client]."""
    n_clients = results.scenario.fleet.n_clients
    counts = [participation(r["cohort"], n_clients) for r in results.records(label)]
    return np.stack(counts).astype(np.float64)


def fair_selections(results: Results, label: str) -> FloatArray:
    """Return how often each client should have been chosen by the targets, [seed, client].

    Equal for all, or in proportion to samples x quality where the objective weighs them.
    """
    scenario = results.scenario
    weights = np.ones((results.seeds, scenario.fleet.n_clients))
    if scenario.objective and scenario.objective.generalization == "weighted":
        worlds = [scenario.world(seed) for seed in range(results.seeds)]
        weights = np.stack([world.roster.significance for world in worlds])
    targets = [capped_shares(w, scenario.cohort_size) for w in weights]
    n_rounds = np.array([len(r) for r in results.records(label)])
    return n_rounds[:, np.newaxis] * np.stack(targets)


def evaluated(records: Records) -> Records:
    """Return the records of rounds after which the model was evaluated."""
    asked: BoolArray = ~np.isnan(records["test_loss"])
    return records[asked]


@dataclass(frozen=True, slots=True)
class Target:
    """A quality of the model to which time is measured.

    Attributes:
        column: "test_accuracy", to be reached from below, or "test_loss", from above.
        value: The quality.
    """

    column: str
    value: float

    def __str__(self) -> str:
        return f"{self.value:.1%}" if self.column == "test_accuracy" else f"loss {self.value:.3g}"

    def reached(self, records: Records) -> BoolArray:
        """Return whether each round ended with the target met."""
        values = records[self.column]
        met: BoolArray = (
            values >= self.value if self.column == "test_accuracy" else values <= self.value
        )
        return met


def find_target(results: Results) -> Target:
    """Return the target of a scenario that trains.

    It is the scenario's target_accuracy. Where that is not given, it is a part of the lowest
    accuracy that a policy ends with, or twice the highest loss where there is no accuracy, so that
    all can reach it.
    """
    learning = results.scenario.learning
    assert learning
    if learning.target_accuracy is not None:
        return Target("test_accuracy", learning.target_accuracy)

    def ends(column: str) -> list[float]:
        """Return the mean over seeds of each policy's last evaluation."""
        return [
            float(np.mean([evaluated(r)[column][-1] for r in results.records(label)]))
            for label in results.scenario.policies
        ]

    accuracies = ends("test_accuracy")
    if not np.isnan(accuracies).any():
        return Target("test_accuracy", round(ACCURACY_PART * min(accuracies), 3))
    finite = [loss for loss in ends("test_loss") if math.isfinite(loss)]  # some may diverge
    return Target("test_loss", LOSS_TIMES * max(finite, default=0.0))


def time_to(results: Results, label: str, target: Target) -> FloatArray:
    """Return the virtual time at which each seed first met the target, infinite if never."""
    times = []
    for records in results.records(label):
        met = records[target.reached(records)]
        times.append(met["clock_s"][0] if len(met) else np.inf)
    return np.array(times)


def _learning(results: Results, label: str, base: str | None, target: Target) -> dict[str, Any]:
    last = [evaluated(records)[-1] for records in results.records(label)]
    row: dict[str, Any] = {
        name: interval([r[name] for r in last]).as_json() for name in ("test_accuracy", "test_loss")
    }
    times = time_to(results, label, target)
    row["reached_target"] = float(np.isfinite(times).mean())
    row["time_to_target_s"] = row["target_speed_up"] = None
    if np.isfinite(times).all():
        row["time_to_target_s"] = interval(times).as_json()
        base_times = time_to(results, base, target) if base else np.array([np.inf])
        if np.isfinite(base_times).all():
            row["target_speed_up"] = interval(base_times / times).as_json()
    return row


def decades(results: Results) -> dict[str, tuple[int, int]]:
    """Return the first decade, from when everyone can have been met, and the last one."""
    scenario = results.scenario
    start = -(-scenario.fleet.n_clients // scenario.cohort_size)
    return {
        "first": (start, min(10 * start, scenario.rounds)),
        "last": (max(1, scenario.rounds // 10), scenario.rounds),
    }


def bound(results: Results, rounds: IntArray) -> FloatArray:
    """Return Theorem 1's bound at some rounds, as the median over the seeds' worlds.

    Delta_max = 2 alpha + mu_max - mu_min as the paper bounds it. Delta_min, the smallest
    difference between two rewards, is unknown; the smallest gap between two mean speeds stands for
    it, so this shows the bound's size and is not itself proven. Infinite where two are equal.
    """
    scenario = results.scenario
    assert scenario.objective
    curves = []
    for seed in range(results.seeds):
        mu = np.sort(scenario.world(seed).mean_speed(1))
        curves.append(
            regret_bound(
                rounds,
                n_clients=len(mu),
                cohort_size=scenario.cohort_size,
                delta_max=2 * scenario.objective.alpha + float(mu[-1] - mu[0]),
                delta_min=float(np.diff(mu).min(initial=np.inf)),
            )
        )
    return np.asarray(np.median(curves, axis=0))


def _regret(results: Results, label: str) -> dict[str, Any]:
    regret = results.cumulative(label, "regret")
    row: dict[str, Any] = {"regret": interval(regret[:, -1]).as_json()}
    for name, (first, last) in decades(results).items():
        slopes = np.array([growth_exponent(curve, first, last) for curve in regret])
        row[f"growth_exponent_{name}_decade"] = interval(slopes).as_json()
    return row
