"""Every number by which results are compared, in one table.

A metric says what it is called, how it is written, which way is better, how it is measured and in
which tables it is shown. Terminal, page, Markdown, ranking and data frame are made from METRICS, so
a new metric is a new entry there.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from bsfl.estimators.fairness import capped_shares, gini, participation
from bsfl.experiments.results import Records, Results
from bsfl.experiments.scenario import Scenario
from bsfl.experiments.statistics import at_same_gini
from bsfl.simulation.regret import growth_exponent
from bsfl.types import BoolArray, FloatArray

BASELINES = ("random", "weighted")
"""Registry names of the policies that speed-ups are relative to, the first one present."""
MIN_FAIR_COUNT = 1.0
"""Fair number of participations from which on a client has a participation ratio."""
ACCURACY_PART, LOSS_TIMES = 0.97, 2.0
"""The target where a scenario names none, relative to what the worst policy ends with."""


@dataclass(frozen=True, slots=True)
class Target:
    """A "test_accuracy" to be reached from below, or a "test_loss" from above."""

    column: str
    value: float

    def __str__(self) -> str:
        is_accuracy = self.column == "test_accuracy"
        return f"accuracy {self.value:.1%}" if is_accuracy else f"loss {self.value:.3g}"


def evaluated(records: Records) -> Records:
    """Return the records of rounds after which the model was evaluated."""
    is_evaluated: BoolArray = ~np.isnan(records["test_loss"])
    return records[is_evaluated]


def at_the_end(results: Results, label: str, column: str) -> FloatArray:
    """Return a column of the last evaluation, seed by seed."""
    return np.array([evaluated(records)[column][-1] for records in results.records(label)])


def at_equal_times(results: Results, label: str, column: str) -> FloatArray:
    """Return a column of the last evaluation before the time up to which every policy played."""
    ends = [[r["clock_s"][-1] for r in results.records(k)] for k in results.scenario.policies]
    values = []
    for records, time_s in zip(results.records(label), np.min(ends, axis=0), strict=True):
        seen = evaluated(records)
        values.append(seen[column][max(0, np.searchsorted(seen["clock_s"], time_s, "right") - 1)])
    return np.array(values)


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
        return [float(at_the_end(results, k, column).mean()) for k in results.scenario.policies]

    accuracies = ends("test_accuracy")
    if not np.isnan(accuracies).any():
        return Target("test_accuracy", round(ACCURACY_PART * min(accuracies), 3))
    finite = [loss for loss in ends("test_loss") if math.isfinite(loss)]  # some may diverge
    return Target("test_loss", LOSS_TIMES * max(finite, default=0.0))


def time_to(results: Results, label: str, target: Target) -> FloatArray:
    """Return when the target was first reached, in virtual time, by seed; infinite if never."""
    sign = 1 if target.column == "test_accuracy" else -1
    times = []
    for records in results.records(label):
        is_reached = sign * records[target.column] >= sign * target.value
        times.append(min(records["clock_s"][is_reached], default=np.inf))
    return np.array(times)


@dataclass(frozen=True, slots=True)
class PolicyRuns:
    """The runs of one policy, one for every seed.

    Attributes:
        results: The runs of all policies.
        label: The policy.
        target: None where nothing is trained.
        front: (mean round in seconds, Gini) of BSFL with many weights, to compare with.
    """

    results: Results
    label: str
    target: Target | None
    front: Sequence[tuple[float, float]] = ()

    @property
    def scenario(self) -> Scenario:
        """The scenario of the runs."""
        return self.results.scenario

    @property
    def runs(self) -> list[Records]:
        """The records for every seed."""
        return self.results.records(self.label)


Better = Literal["less", "more"]
Measure = Callable[[PolicyRuns], npt.ArrayLike | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a run.

    Attributes:
        name: Its name in tables, files and data frames.
        form: How it is written, as for format(); empty: three digits.
        better: Which way is better; None: neither.
        measure: Returns one number for every seed; None where there is none.
        about: What it is.
        wide, short: Tables in which it is shown, with its interval or without: "report" (the page
            of a run), "selection" and "training" (a run in the terminal), "leaderboard" and, in
            the terminal, "top".
    """

    name: str
    form: str
    better: Better | None
    measure: Measure
    about: str
    wide: str = ""
    short: str = ""


def baseline(scenario: Scenario) -> str | None:
    """Return the label of the policy that speed-ups are relative to, if it takes part."""
    labels = {policy.name: label for label, policy in scenario.policies.items()}
    return next((labels[name] for name in BASELINES if name in labels), None)


def participations(results: Results, label: str) -> FloatArray:
    """Return how many responses of each client entered the model, [seed, client]."""
    n_clients = results.scenario.clients.n_clients
    counts = [participation(r["kept"], n_clients) for r in results.records(label)]
    return np.stack(counts).astype(np.float64)


def fair_counts(results: Results, label: str) -> FloatArray:
    """Return the fair number of participations of every client, [seed, client].

    It is the sum of m / |A| over the rounds in which the client was one of the available clients A,
    as in `Scheduler.table()`; where the objective weighs clients, its share of samples x quality.
    """
    scenario, runs = results.scenario, results.runs_of(label)
    if not scenario.objective or scenario.objective.generalization != "weighted":
        return np.stack([run.fair_count for run in runs])
    seeds = [results.simulated_clients(index) for index in range(results.seeds)]
    known = [clients.significance for clients in seeds if clients]
    if not known:  # only a run may make the clients
        return np.full((results.seeds, scenario.clients.n_clients), np.nan)
    shares = [capped_shares(weights, scenario.cohort_size) for weights in known]
    return np.stack([len(run.records) * one for run, one in zip(runs, shares, strict=True)])


def _times(of: PolicyRuns) -> FloatArray | None:
    return time_to(of.results, of.label, of.target) if of.target else None


def _quality(find: Callable[[Results, str, str], FloatArray], column: str) -> Measure:
    """Return the measure of a quality of the models, None where the task has no such number."""

    def quality(of: PolicyRuns) -> FloatArray | None:
        values = find(of.results, of.label, column) if of.target else np.array(np.nan)
        return None if np.isnan(values).any() else values

    return quality


def _mean_rounds(of: PolicyRuns) -> FloatArray:
    return np.array([r["clock_s"][-1] / len(r) for r in of.runs])


def _round_percentile(q: int) -> Measure:
    return lambda of: [float(np.percentile(r["duration_s"], q)) for r in of.runs]


def _speed_up(measure: Callable[[PolicyRuns], FloatArray | None]) -> Measure:
    """Return the measure of the baseline's time over the policy's, by seed, if both have one."""

    def ratio(of: PolicyRuns) -> FloatArray | None:
        label = baseline(of.scenario)
        own, base = measure(of), measure(replace(of, label=label)) if label else None
        if own is None or base is None or not np.isfinite([own, base]).all():
            return None
        return np.asarray(base / own)

    return ratio


def _ginis(of: PolicyRuns) -> FloatArray:
    return np.array([gini(counts) for counts in participations(of.results, of.label)])


def _participation_ratios(of: PolicyRuns) -> FloatArray:
    """Return participations over the fair count, NaN for clients that were hardly available."""
    fair = fair_counts(of.results, of.label)
    enough = fair >= np.minimum(MIN_FAIR_COUNT, fair.max(axis=1, keepdims=True))
    return participations(of.results, of.label) / np.where(enough & (fair > 0), fair, np.nan)


def _extreme_ratio(find: Callable[..., FloatArray]) -> Measure:
    """Return the measure of the smallest or the largest participation ratio of a client."""

    def extreme(of: PolicyRuns) -> FloatArray | None:
        ratios = _participation_ratios(of)
        return None if np.isnan(ratios).all(axis=1).any() else find(ratios, axis=1)

    return extreme


def _regret(of: PolicyRuns) -> FloatArray | None:
    """Return the regret so far, [seed, round], if it is measured."""
    return of.results.cumulative(of.label, "regret") if of.scenario.objective else None


def _regret_exponents(of: PolicyRuns, *, early: bool = False) -> list[float] | None:
    """Return the growth of regret over a decade of rounds: the last one, or the first.

    The first decade begins when every client may have been selected once.
    """
    curves, one = _regret(of), of.scenario
    once = -(-one.clients.n_clients // one.cohort_size)
    first, last = (once, 10 * once) if early else (max(1, one.rounds // 10), one.rounds)
    return None if curves is None else [growth_exponent(curve, first, last) for curve in curves]


def _over_front(of: PolicyRuns) -> list[float] | None:
    """Return the mean round over that of the front at the same Gini, one number for all seeds."""
    uneven = float(_ginis(of).mean())
    if not of.front or uneven < min(g for _, g in of.front):
        return None
    return [_mean_rounds(of).mean() / at_same_gini(of.front, uneven)]


# fmt: off
_TABLE = (
    Metric("time_to_target_s", ",.0f", "less", _times,
           "virtual seconds until the model was as good as the target",
           wide="report leaderboard top", short="training"),
    Metric("target_speed_up", ".2f", "more", _speed_up(_times),
           "time to target of random selection over this one",
           wide="report leaderboard top training"),
    Metric("reached_target", ".0%", "more",
           lambda of: None if (times := _times(of)) is None else np.isfinite(times) * 1.0,
           "share of the seeds with which the target was reached; time_to_target_s needs all",
           short="report leaderboard top training"),
    Metric("final_accuracy", ".3f", "more", _quality(at_the_end, "test_accuracy"),
           "accuracy on test data at the end", wide="report", short="training"),
    Metric("accuracy", ".3f", "more", _quality(at_equal_times, "test_accuracy"),
           "accuracy on test data at equal virtual time", wide="leaderboard", short="top"),
    Metric("worst_label_accuracy", ".3f", "more",
           _quality(at_equal_times, "worst_label_accuracy"),
           "accuracy of the label with the lowest, at equal virtual time", wide="leaderboard"),
    Metric("final_loss", "", "less", _quality(at_the_end, "test_loss"),
           "loss on test data at the end", wide="report", short="training"),
    Metric("rounds", ",.0f", None,
           lambda of: [len(r) for r in of.runs] if of.scenario.is_timed else None,
           "rounds that were simulated in the time", short="report leaderboard"),
    Metric("total_time_s", ",.0f", "less",
           lambda of: None if of.scenario.is_timed else [r["clock_s"][-1] for r in of.runs],
           "virtual seconds that the rounds took", wide="report", short="selection"),
    Metric("mean_round_s", "", "less", _mean_rounds,
           "virtual seconds per round", wide="report leaderboard", short="top"),
    Metric("round_p50_s", "", "less", _round_percentile(50), "median round in virtual seconds"),
    Metric("round_p95_s", "", "less", _round_percentile(95), "95 % of the rounds are shorter"),
    Metric("round_p99_s", "", "less", _round_percentile(99), "99 % of the rounds are shorter"),
    Metric("round_speed_up", ".2f", "more", _speed_up(_mean_rounds),
           "mean round of random selection over this one", wide="report selection"),
    Metric("gini", ".3f", "less", _ginis,
           "inequality of participation: 0 all clients alike, near 1 a few did nearly all",
           wide="report", short="training selection leaderboard top"),
    Metric("min_participation", ".2f", "more", _extreme_ratio(np.nanmin),
           "least participation ratio of a client: participations over its fair count",
           wide="report", short="selection"),
    Metric("max_participation", ".2f", "less", _extreme_ratio(np.nanmax),
           "largest participation ratio of a client", wide="report"),
    Metric("timeouts_per_round", ".2f", "less",
           lambda of: [r["n_timeouts"].mean() for r in of.runs],
           "clients that did not respond before the deadline"),
    Metric("regret", ",.0f", "less",
           lambda of: None if (curves := _regret(of)) is None else curves[:, -1],
           "reward of the oracle over that of the policy", wide="report", short="selection"),
    Metric("early_regret_exponent", ".2f", "less", partial(_regret_exponents, early=True),
           "growth exponent of regret over the first decade of rounds"),
    Metric("regret_exponent", ".2f", "less", _regret_exponents,
           "growth exponent of regret over the last decade of rounds, 1 is linear",
           wide="report", short="selection"),
    Metric("selection_ms", ".2f", "less",
           lambda of: [1000 * s for s in of.results.selection_s(of.label)] or None,
           "wall-clock time of selecting and learning in a round", short="leaderboard"),
    Metric("round_over_bsfl_at_gini", ".2f", "less", _over_front,
           "mean round over BSFL's shortest with any alpha at no larger Gini; below 1 is shorter",
           short="leaderboard"),
)
# fmt: on
METRICS = {metric.name: metric for metric in _TABLE}
"""Every metric by its name, in the order of the columns."""
RANKING = ("time_to_target_s", "accuracy")
"""What policies are ranked by: the first, and among equals the next."""
RANKING_UNTRAINED = ("mean_round_s", "gini")
"""The same where nothing is trained."""
