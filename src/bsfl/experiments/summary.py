"""The summary of a scenario: every metric of every policy, seed by seed."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from bsfl.experiments.metrics import (
    METRICS,
    RANKING,
    RANKING_UNTRAINED,
    PolicyRuns,
    Target,
    baseline,
    find_target,
)
from bsfl.experiments.results import Results
from bsfl.experiments.scenario import Scenario
from bsfl.experiments.statistics import Interval, interval, seeds_in_words
from bsfl.extras import data_frame
from bsfl.simulation.regret import regret_bound
from bsfl.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers of one scenario: for every policy and metric, one for every seed.

    The target is None where nothing was trained, the bound where regret is not measured. There is
    more than one set of versions where a folder was continued with others.
    """

    scenario: Scenario
    seeds: int
    target: Target | None
    theorem_1_bound: float | None
    policies: dict[str, dict[str, FloatArray]]
    versions: list[dict[str, str]] = field(default_factory=list)

    def interval(self, label: str, key: str) -> Interval | None:
        """Return mean and interval of a metric; None unless it is finite for all seeds."""
        values = self.policies[label].get(key)
        return interval(values) if values is not None and np.isfinite(values).all() else None

    def mean(self, label: str, key: str) -> float:
        """Return the mean of a metric, NaN where there is none."""
        known = self.interval(label, key)
        return known.mean if known else math.nan

    def text(self, label: str, key: str) -> str:
        """Return the mean of a metric as a sentence has it."""
        known = self.interval(label, key)
        return known.text(METRICS[key].form, wide=False) if known else "–"

    @property
    def ranking(self) -> tuple[str, ...]:
        """What policies are ranked by: the time to the target, or the length of their rounds."""
        return RANKING if self.target else RANKING_UNTRAINED

    def ranked(self) -> list[str]:
        """Return the labels, the best first; policies without a number come last."""

        def cost(label: str, key: str) -> float:
            known, sign = self.interval(label, key), -1 if METRICS[key].better == "more" else 1
            return sign * known.mean if known else math.inf

        return sorted(self.policies, key=lambda label: [cost(label, key) for key in self.ranking])

    def warnings(self) -> list[str]:
        """Return the warning that runs were made by different versions, where they were."""
        if len(self.versions) < 2:
            return []
        first, *others = (set(versions.items()) for versions in self.versions)
        differing = sorted(first.union(*others) - first.intersection(*others))
        words = ", ".join(f"{name} {version}" for name, version in differing)
        return [f"{self.scenario.name}: runs of different versions may differ by that ({words})."]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: one row per policy and seed, one column per metric."""
        return data_frame(self.rows())

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per policy and seed."""
        first = self.scenario.first_seed
        return [
            {"policy": label, "seed": first + index}
            | {key: float(v[index]) for key, v in numbers.items() if len(v) == self.seeds}
            for label, numbers in self.policies.items()
            for index in range(self.seeds)
        ]

    @property
    def baseline(self) -> str | None:
        """Label of the policy that speed-ups are relative to, if it takes part."""
        return baseline(self.scenario)

    @property
    def oracles(self) -> list[str]:
        """Labels of the policies that know the true speeds; a reference, not competitors."""
        return [label for label, one in self.scenario.policies.items() if one.is_oracle]

    @property
    def title(self) -> str:
        """What was simulated, and how much of it, in words."""
        one = self.scenario
        length = (
            f"{one.time_s:,.0f} s of virtual time" if one.is_timed else f"{one.rounds:,} rounds"
        )
        seeds = seeds_in_words(self.seeds, " (± 95 %)")
        target = f", target {self.target}" if self.target else ""
        size = f"K = {one.clients.n_clients:,}, m = {one.cohort_size:,}"
        return f"{one.title}: {size}, {length}, {seeds}{target}"

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers: mean, interval and the value for every seed."""
        one, target, policies = self.scenario, self.target, self.policies
        return {
            "scenario": one.name,
            "title": one.title,
            "n_clients": one.clients.n_clients,
            "cohort_size": one.cohort_size,
            "rounds": None if one.is_timed else one.rounds,
            "time_s": one.time_s if one.is_timed else None,
            "seeds": self.seeds,
            "target": target and {**asdict(target), "name": str(target)},
            "theorem_1_bound": self.theorem_1_bound,
            "versions": self.versions,
            "warnings": self.warnings(),
            "policies": {k: {m: _plain(v) for m, v in own.items()} for k, own in policies.items()},
        }


def summarise(results: Results, front: Sequence[tuple[float, float]] = ()) -> Summary:
    """Return every metric of every policy; `front` as in PolicyRuns."""
    scenario = results.scenario
    target = find_target(results) if scenario.learning else None
    policies: dict[str, dict[str, FloatArray]] = {}
    for label in scenario.policies:
        runs = PolicyRuns(results, label, target, front)
        values = {key: metric.measure(runs) for key, metric in METRICS.items()}
        policies[label] = {k: np.asarray(v, float) for k, v in values.items() if v is not None}
    limit = bound(results, np.array([scenario.rounds]))[0] if scenario.objective else math.inf
    limit = float(limit) if math.isfinite(limit) else None
    return Summary(scenario, results.seeds, target, limit, policies, results.versions())


def bound(results: Results, rounds: IntArray) -> FloatArray:
    """Return Theorem 1's bound at some rounds, as the median over the seeds.

    Delta_max = 2 alpha + mu_max - mu_min as the paper bounds it. Delta_min, the smallest
    difference between two rewards, is unknown; the smallest gap between two mean speeds stands for
    it, so this shows the bound's size and is not itself proven. Infinite where two are equal, and
    where only a run may make the clients.
    """
    scenario = results.scenario
    assert scenario.objective
    size = {"n_clients": scenario.clients.n_clients, "cohort_size": scenario.cohort_size}
    curves = []
    for index in range(results.seeds):
        clients = results.simulated_clients(index)
        if clients is None:
            return np.full(rounds.shape, np.inf)
        mu = np.sort(clients.mean_speed(1))
        delta_max = 2 * scenario.objective.alpha + float(mu[-1] - mu[0])
        delta_min = float(np.diff(mu).min(initial=np.inf))
        curves.append(regret_bound(rounds, **size, delta_max=delta_max, delta_min=delta_min))
    return np.asarray(np.median(curves, axis=0))


def _plain(values: FloatArray) -> dict[str, Any]:
    numbers = [float(v) if math.isfinite(v) else None for v in values]
    known = interval(values if None not in numbers else [math.nan])
    return {**known.as_json(), "values": numbers}
