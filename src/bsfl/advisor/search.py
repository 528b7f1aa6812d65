"""The search over settings: short runs of many, then longer runs of the few best ones.

1  every policy with several of its settings, without over-selection and with 1.3, and with the
   deadline of the log; one seed
2  the best of these with other invitations, deadlines and weights; runs as long
3  the best of 1 and 2; twice as long, two seeds
4  the best of 3 at full length with all seeds, which the recommendation is made from

"The best" are the fastest settings whose minimum participation keeps a floor, for the floor of the
user and for others: successive halving along the whole Pareto front. With one seed, all settings
meet the same clients with the same latencies and availability.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from bsfl.advisor.settings import Setting, first_settings, fitting, varied
from bsfl.estimators.fairness import gini
from bsfl.experiments.results import Results
from bsfl.experiments.runner import run_scenarios
from bsfl.experiments.scenario import Scenario
from bsfl.experiments.statistics import Interval, count_interval, interval, ratio_interval
from bsfl.simulation import SimulatedClients
from bsfl.types import FloatArray, IntArray, RoundPlan

FLOORS = (0.0, 0.25, 0.45, 0.6, 0.7, 0.78, 0.85, 0.92)
"""Floors for which the best settings are kept."""
SLACK = 0.05
"""By how much a setting may miss a floor in short runs."""
NO_RESPONSE = 1e-9
"""Responses of a run that had none, so that its time per response is long and finite."""
NEAR = 1.1
"""Ratio of times above which two settings count as different, for any number of seeds."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """The results of a setting with several seeds.

    Attributes:
        setting: The setting.
        rounds: Number of rounds per run.
        numbers: Arrays with one value per seed, by name: mean_round_s; responses that entered the
            model and invited, both per round; time_s, the time for cohort_size responses;
            min_participation, the lowest participation ratio of a client, 1 is fair; gini;
            fair_count, the mean fair count of a client.
    """

    setting: Setting
    rounds: int
    numbers: Mapping[str, FloatArray]

    def interval(self, name: str) -> Interval:
        """Return the mean of a number and where 95 % of such clients are; no end is negative."""
        is_count = name == "min_participation"  # over the fair count; it can be 0
        return (count_interval if is_count else ratio_interval)(self.numbers[name])

    def mean(self, name: str) -> float:
        """Return the mean of a number over the seeds."""
        return float(self.numbers[name].mean())

    def time_ratio(self, other: "Trial") -> FloatArray:
        """Return the time for as many responses over that of another setting, by seed."""
        return np.asarray(self.numbers["time_s"] / other.numbers["time_s"])

    def is_slower(self, other: "Trial") -> bool:
        """Return whether this setting is significantly slower than another."""
        found = interval(np.log(self.time_ratio(other)))
        return found.mean > np.log(NEAR) or found.low > 0.0

    def keeps(self, floor: float) -> bool:
        """Return whether no client falls below a floor by more than one round."""
        return self.mean("min_participation") >= floor - 1.0 / max(self.mean("fair_count"), 1.0)

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        one = self.setting
        numbers = {name: self.interval(name) for name in self.numbers if name != "gini"}
        return {
            "policy": one.words(),
            "cohort_size": one.cohort_size,
            "over_selection": one.over_selection,
            "deadline_s": one.deadline_s,
            "rounds": self.rounds,
            "gini": self.mean("gini"),
            **{name: found.as_json() for name, found in numbers.items()},
        }


def recommended(trials: Sequence[Trial], floor: float) -> Trial:
    """Return the fastest setting that keeps the floor; of settings tied with it, the fairest.

    If no setting keeps the floor, return the one with the highest minimum participation.
    """
    fair = [one for one in trials if one.keeps(floor)]
    if not fair:
        return max(trials, key=lambda one: one.mean("min_participation"))
    fastest = min(fair, key=lambda one: one.mean("time_s"))
    tied = [one for one in fair if one is fastest or not one.is_slower(fastest)]
    return max(tied, key=lambda one: (one.mean("min_participation"), -one.mean("gini")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Runs settings as scenarios; finished runs are in the folder and are not repeated.

    Attributes:
        scenario: The clients.
        folder: Where runs are.
        simulated: Settings of simulated policies that they would learn from losses, by policy.
        jobs: Number of processes.
        progress: Whether to show progress.
    """

    scenario: Scenario
    folder: Path
    simulated: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    jobs: int = -1
    progress: bool = False

    def best(
        self,
        plan: Setting,
        floor: float,
        deadlines: Sequence[float],
        *,
        rounds: int,
        policies: Sequence[str] | None,
    ) -> list[Setting]:
        """Return the few settings that are worth runs at full length, by stages 1 to 3.

        Args:
            plan: Random selection with the cohort size and deadline of the log.
            floor: Minimum participation that is asked for.
            deadlines: Deadlines to try.
            rounds: Number of rounds at full length.
            policies: As for first_settings.
        """
        short, half = max(rounds // 4, 1), max(rounds // 2, 1)
        n_clients = self.scenario.clients.n_clients
        invitations = fitting(plan.cohort_size, n_clients)
        settings = [
            setting
            for over_selection in invitations[:2]
            for same in [replace(plan, over_selection=over_selection)]
            for setting in first_settings(same, n_clients, floor, policies)
        ]
        trials = self.trials("1 of 4: policies", settings, rounds=short, n_seeds=1)
        kept = best_for_some_floor(trials, floor, 4)
        settings += [new for one in kept for new in varied(one.setting, invitations, deadlines)]
        title = "2 of 4: invitations and deadlines"
        trials = self.trials(title, settings, rounds=short, n_seeds=1)
        kept = best_for_some_floor(trials, floor, 6)
        settings = [one.setting for one in kept]
        trials = self.trials("3 of 4: longer runs", settings, rounds=half, n_seeds=2)
        return [one.setting for one in best_for_some_floor(trials, floor, 3)]

    def trials(
        self, title: str, settings: Iterable[Setting], *, rounds: int, n_seeds: int
    ) -> list[Trial]:
        """Return the results of settings, each once, with seeds from 0 on."""
        by_plan: dict[Path, dict[str, Setting]] = {}
        for one in settings:
            folder = self.folder / f"{rounds}-rounds" / one.plan
            by_plan.setdefault(folder, {})[one.label] = one
        scenarios = {k: self.scenario_of(own, rounds) for k, own in by_plan.items()}
        results = run_scenarios(
            scenarios, title=title, seeds=n_seeds, jobs=self.jobs, progress=self.progress
        )
        numbers = measured(results)
        return [
            Trial(one, rounds, numbers[one.key]) for own in by_plan.values() for one in own.values()
        ]

    def scenario_of(self, settings: Mapping[str, Setting], rounds: int) -> Scenario:
        """Return the scenario of settings that differ in their policies alone, by label."""
        first = next(iter(settings.values()))
        return self.scenario.changed(
            cohort_size=first.cohort_size,
            rounds=rounds,
            round={"over_selection": first.over_selection, "deadline_s": first.deadline_s},
            policies={
                label: {"policy": one.policy, **self.simulated.get(one.policy, {}), **one.options}
                for label, one in settings.items()
            },
        )


def measured(several: Sequence[Results]) -> dict[tuple[str, str], dict[str, FloatArray]]:
    """Return the numbers of a Trial for each policy, by (name of the folder, label)."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for index in range(several[0].seeds):
        clients = several[0].simulated_clients(index)
        assert clients
        keys = [(one, label) for one in several for label in one.scenario.policies]
        runs = [
            (one.run(label, index).records, cast(RoundPlan, one.scenario.plan))
            for one, label in keys
        ]
        for (one, label), run in zip(keys, participation(runs, clients), strict=True):
            numbers = found.setdefault((one.folder.name, label), {})
            for name, value in run.items():
                numbers.setdefault(name, []).append(value)
    return {key: {k: np.array(v) for k, v in runs.items()} for key, runs in found.items()}


def participation(
    runs: Sequence[tuple[Any, RoundPlan]], clients: SimulatedClients
) -> list[dict[str, float]]:
    """Return the numbers of runs with the same clients and as many rounds.

    A client participates when its response enters the model. A selection also counts when the
    client would not have responded within the deadline of the log, as no setting could change that.
    It does not count when the response comes after other clients have closed the round, or after a
    shorter deadline. The fair count is that of the engine: the sum of m / (idle clients) over the
    rounds in which the client was idle.
    """
    n, n_clients = len(runs), clients.n_clients
    served, fair, busy_until_s = (np.zeros((n, n_clients)) for _ in range(3))
    start_s = np.zeros(n)
    for t in range(1, len(runs[0][0]) + 1):
        latency_s, is_online = clients.latencies(t, 0.0), np.zeros(n_clients, dtype=bool)
        is_online[clients.available(t, 0.0)] = True
        for i, (records, plan) in enumerate(runs):
            row = records[t - 1]
            idle = is_online & (busy_until_s[i] <= start_s[i])
            fair[i] += idle * min(1.0, plan.target_responses / max(int(idle.sum()), 1))
            cohort: IntArray = row["cohort"][row["cohort"] >= 0]
            took_s = latency_s[cohort]
            served[i, row["kept"][row["kept"] >= 0]] += 1
            served[i, cohort[took_s > clients.tau_max]] += 1
            if row["duration_s"] < plan.due_s():
                late = took_s > row["duration_s"]
                busy_s = np.minimum(took_s[late], plan.expiry_s())
                busy_until_s[i, cohort[late]] = start_s[i] + busy_s
            start_s[i] = row["clock_s"]
    return [
        _numbers(*run, counts, fair_count)
        for run, counts, fair_count in zip(runs, served, fair, strict=True)
    ]


def _numbers(
    records: Any, plan: RoundPlan, served: FloatArray, fair: FloatArray
) -> dict[str, float]:
    clock_s, n_kept = float(records["clock_s"][-1]), int(np.count_nonzero(records["kept"] >= 0))
    ratios = served[fair > 0] / fair[fair > 0]
    return {
        "mean_round_s": clock_s / len(records),
        "time_s": clock_s / max(n_kept, NO_RESPONSE) * plan.target_responses,
        "responses": n_kept / len(records),
        "invited": np.count_nonzero(records["cohort"] >= 0) / len(records),
        "min_participation": float(ratios.min(initial=np.inf)) if len(ratios) else 0.0,
        "gini": gini(served),
        "fair_count": float(fair.mean()),
    }


def best_for_some_floor(trials: Sequence[Trial], floor: float, n: int) -> list[Trial]:
    """Return the n fastest settings for the given floor, and the fastest for each other floor.

    Of settings with identical results only the first counts.
    """
    distinct = {(t.mean("time_s"), t.mean("min_participation")): t for t in reversed(trials)}
    trials = sorted(distinct.values(), key=lambda t: t.mean("time_s"))
    kept: dict[int, Trial] = {}
    for one in (*FLOORS, floor):
        fair = [t for t in trials if t.keeps(one - SLACK)]
        kept |= {id(t): t for t in fair[: n if one == floor else 1]}
    return list(kept.values()) or trials[:n]
