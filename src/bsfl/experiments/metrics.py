"""Every number by which results are compared, in one table.

A metric says what it is called, how it is written, which way is better, how it is measured and in
which tables it is shown. Terminal, page, Markdown, ranking and rows for a data frame are made from
METRICS, so a new metric is a new entry there.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from bsfl.estimators.fairness import capped_shares, gini, participation
from bsfl.experiments.results import Results, took_part
from bsfl.experiments.run_file import Records
from bsfl.experiments.statistics import at_same_gini
from bsfl.experiments.target import Target, at_equal_times, at_the_end, time_to
from bsfl.simulation.regret import growth_exponent
from bsfl.types import FloatArray

BASELINES = ("random", "weighted")
"""Registry names of the policies that speed-ups are relative to, the first one present."""


@dataclass(frozen=True, slots=True)
class Played:
    """The runs of one policy, one for every seed.

    `front` is (mean round in seconds, Gini) of BSFL with many weights, to compare with; the target
    is None where nothing is trained.
    """

    results: Results
    label: str
    target: Target | None = None
    front: Sequence[tuple[float, float]] = ()

    @property
    def runs(self) -> list[Records]:
        """The records for every seed."""
        return self.results.records(self.label)

    @property
    def baseline(self) -> "Played | None":
        """The runs that speed-ups are relative to."""
        named = {one.name: label for label, one in self.results.scenario.policies.items()}
        found = next((named[name] for name in BASELINES if name in named), None)
        return Played(self.results, found, self.target) if found else None

    def evaluation(self, find: Callable[..., FloatArray], column: str) -> FloatArray | None:
        """Return a quality of the models, if there is such a number."""
        values = find(self.results, self.label, column) if self.target else np.array(np.nan)
        return None if np.isnan(values).any() else values

    @property
    def regret(self) -> FloatArray | None:
        """The regret so far, [seed, round], if it is measured."""
        is_measured = self.results.scenario.objective
        return self.results.cumulative(self.label, "regret") if is_measured else None

    def growth(self, first: int, last: int) -> list[float] | None:
        """Return the exponent of regret between two rounds, if it is measured."""
        if (curves := self.regret) is None:
            return None
        return [growth_exponent(c, max(1, first), min(last, len(c))) for c in curves]


Measure = Callable[[Played], npt.ArrayLike | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a run.

    Attributes:
        key: Its name in files and data frames.
        title: Its name in tables.
        form: How it is written, as for format(); empty: three digits.
        better: Which way is better; None: neither.
        measure: Returns one number for every seed; None where there is none.
        about: What it is.
        wide, short: Tables in which it is shown, with its interval or without: "report" (the page
            of a run), "selection" and "training" (a run in the terminal), "leaderboard" and, in
            the terminal, "top".
        partly: What is written where only some seeds have a finite value.
    """

    key: str
    title: str
    form: str
    better: Literal["less", "more"] | None
    measure: Measure
    about: str = ""
    wide: str = ""
    short: str = ""
    partly: str = ""


def selections(results: Results, label: str) -> FloatArray:
    """Return how often each client took part, [seed, client]."""
    n_clients = results.scenario.clients.n_clients
    counts = [participation(took_part(r), n_clients) for r in results.records(label)]
    return np.stack(counts).astype(np.float64)


def fair_selections(results: Results, label: str) -> FloatArray:
    """Return how often each client should take part by the targets, [seed, client].

    Equal for all, or in proportion to samples x quality where the objective weighs them.
    """
    scenario = results.scenario
    weights = np.ones((results.seeds, scenario.clients.n_clients))
    if scenario.objective and scenario.objective.generalization == "weighted":
        seeds = [results.simulated_clients(index) for index in range(results.seeds)]
        known = [clients.significance for clients in seeds if clients]
        if not known:  # only a run may make the clients
            return np.full(weights.shape, np.nan)
        weights = np.stack(known)
    targets = [capped_shares(w, scenario.cohort_size) for w in weights]
    n_rounds = np.array([len(r) for r in results.records(label)])
    return n_rounds[:, np.newaxis] * np.stack(targets)


def _times(of: Played) -> FloatArray | None:
    return time_to(of.results, of.label, of.target) if of.target else None


def _mean_rounds(of: Played) -> FloatArray:
    return np.array([r["clock_s"][-1] / len(r) for r in of.runs])


def _ginis(of: Played) -> FloatArray:
    return np.array([gini(counts) for counts in selections(of.results, of.label)])


def _participation_ratios(of: Played) -> FloatArray:
    return selections(of.results, of.label) / fair_selections(of.results, of.label)


def _quantile(q: int) -> Measure:
    return lambda of: [float(np.percentile(r["duration_s"], q)) for r in of.runs]


def _over_baseline(measure: Callable[[Played], FloatArray | None]) -> Measure:
    """Return how many times as much the baseline has, seed by seed, if both have a number."""

    def ratio(of: Played) -> FloatArray | None:
        own, base = measure(of), measure(of.baseline) if of.baseline else None
        if own is None or base is None or not np.isfinite([own, base]).all():
            return None
        return np.asarray(base / own)

    return ratio


def _first_decade(of: Played) -> list[float] | None:
    scenario = of.results.scenario
    start = -(-scenario.clients.n_clients // scenario.cohort_size)
    return of.growth(start, 10 * start)


def _over_front(of: Played) -> list[float] | None:
    """Return the mean round over that of the front at the same Gini, one number for all seeds."""
    uneven = float(_ginis(of).mean())
    if not of.front or uneven < min(g for _, g in of.front):
        return None
    return [_mean_rounds(of).mean() / at_same_gini(of.front, uneven)]


def _is_timed(of: Played) -> bool:
    """Return whether all runs take the same time, and not the same rounds."""
    return math.isfinite(of.results.scenario.time_s)


# fmt: off
_TABLE = (
    Metric("time_to_target_s", "time to target (s)", ",.0f", "less", _times,
           "virtual seconds until the model was as good as the target",
           wide="report leaderboard top", short="training", partly="reached by {:.0%}"),
    Metric("target_speed_up", "speed-up", ".2f", "more", _over_baseline(_times),
           "time to target of random selection over this one",
           wide="report leaderboard top training"),
    Metric("reached_target", "reached", ".0%", "more",
           lambda of: None if (times := _times(of)) is None else np.isfinite(times) * 1.0,
           "share of the seeds with which the target was reached"),
    Metric("test_accuracy", "accuracy", ".3f", "more",
           lambda of: of.evaluation(at_the_end, "test_accuracy"),
           "on test data at the end", wide="report", short="training"),
    Metric("accuracy", "accuracy", ".3f", "more",
           lambda of: of.evaluation(at_equal_times, "test_accuracy"),
           "on test data at equal virtual time", wide="leaderboard", short="top"),
    Metric("worst_label_accuracy", "worst label", ".3f", "more",
           lambda of: of.evaluation(at_equal_times, "worst_label_accuracy"),
           "accuracy of the label with the lowest, at equal virtual time",
           wide="leaderboard"),
    Metric("test_loss", "test loss", ".3g", "less",
           lambda of: of.evaluation(at_the_end, "test_loss"),
           "on test data at the end", wide="report", short="training"),
    Metric("rounds", "rounds", ",.0f", None,
           lambda of: [len(r) for r in of.runs] if _is_timed(of) else None,
           "simulated in the time", short="report training leaderboard"),
    Metric("total_time_s", "time (s)", ",.0f", "less",
           lambda of: None if _is_timed(of) else [r["clock_s"][-1] for r in of.runs],
           "virtual seconds that the rounds took", wide="report", short="selection"),
    Metric("mean_round_s", "mean round (s)", "", "less", _mean_rounds,
           "virtual seconds", wide="report leaderboard", short="top"),
    Metric("round_p50_s", "median round (s)", "", "less", _quantile(50)),
    Metric("round_p95_s", "95 % of rounds within (s)", "", "less", _quantile(95)),
    Metric("round_p99_s", "99 % of rounds within (s)", "", "less", _quantile(99)),
    Metric("speed_up", "round speed-up", ".2f", "more", _over_baseline(_mean_rounds),
           "mean round of random selection over this one", wide="report selection"),
    Metric("gini", "Gini", ".3f", "less", _ginis,
           "inequality of participation: 0 all clients alike, near 1 a few did nearly all",
           wide="report", short="training selection leaderboard top"),
    Metric("min_participation", "min participation", ".2f", "more",
           lambda of: _participation_ratios(of).min(axis=1),
           "participations of the least served client over its fair number",
           wide="report", short="selection"),
    Metric("max_participation", "max participation", ".2f", "less",
           lambda of: _participation_ratios(of).max(axis=1),
           "the same of the most served client", wide="report"),
    Metric("timeouts_per_round", "timeouts a round", ".2f", "less",
           lambda of: [r["n_timeouts"].mean() for r in of.runs]),
    Metric("regret", "regret", ",.0f", "less",
           lambda of: None if of.regret is None else of.regret[:, -1],
           "what the oracle would have earned more", wide="report", short="selection"),
    Metric("growth_exponent_first_decade", "early growth", ".2f", "less", _first_decade,
           "exponent of regret over the first decade of rounds"),
    Metric("growth_exponent_last_decade", "growth", ".2f", "less",
           lambda of: of.growth(of.results.scenario.rounds // 10, of.results.scenario.rounds),
           "exponent of regret over the last decade of rounds, 1 is linear",
           wide="report", short="selection"),
    Metric("selection_ms", "select (ms)", ".2f", "less",
           lambda of: [1000 * s for s in of.results.selection_s(of.label)] or None,
           "wall-clock time of selecting and learning in a round", short="leaderboard"),
    Metric("round_over_bsfl_at_gini", "round / BSFL's best", ".2f", "less", _over_front,
           "mean round over BSFL's shortest with any alpha at no larger Gini; below 1 is shorter",
           short="leaderboard"),
)
# fmt: on
METRICS = {metric.key: metric for metric in _TABLE}
"""Every metric by its key, in the order of the columns."""
RANKING = ("time_to_target_s", "accuracy")
"""What policies are ranked by: the first, and among equals the next."""
RANKING_UNTRAINED = ("mean_round_s", "gini")
"""The same where nothing is trained."""
