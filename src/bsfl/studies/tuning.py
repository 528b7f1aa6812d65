"""From a log of latencies to a setting: simulate the fleet in it and see what each weight costs."""

from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bsfl import checks
from bsfl.analysis.statistics import Interval, interval
from bsfl.analysis.tables import Table
from bsfl.errors import InvalidInput
from bsfl.extras import in_parallel
from bsfl.fairness import gini
from bsfl.fleet import Fleet
from bsfl.fleet.latency import Recorded
from bsfl.fleet.traces import LATENCY, read_trace
from bsfl.policies import make_policy
from bsfl.records import FloatArray
from bsfl.report import Findings
from bsfl.report.plots import Line, Mark, Panel, Plot, Points, Rule
from bsfl.simulation import simulate
from bsfl.studies.study import Effort, totals

WEIGHTS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0)
"""Values of alpha that are tried, in units of K/m."""
INDICES: dict[str, dict[str, Any]] = {
    "bernstein": {"index": {"kind": "means", "radius": "bernstein"}},
    "tail": {"index": {"kind": "lognormal"}},
}
"""Ways to judge clients that are tried."""


@dataclass(frozen=True, slots=True)
class Log:
    """Latencies that a user recorded: of every answer, client by client, and the deadline."""

    latencies: list[FloatArray]
    tau_max: float

    def fleet(self, seed: int) -> Fleet:
        """Return a fleet whose clients answer as they did, in a random order."""
        tau_min = min(self.tau_max, *(float(seen.min()) for seen in self.latencies))
        latency = Recorded(self.latencies)
        return Fleet(latency=latency, tau_min=tau_min, tau_max=self.tau_max, seed=seed)


@dataclass(frozen=True, slots=True)
class Trial:
    """What a setting of BSFL came to; random selection, which is tried as well, has no settings.

    `saved` is a part of random selection's time, `least_share` the selections of the least chosen
    client over its fair number.
    """

    index: str
    settings: dict[str, Any]
    mean_round_s: Interval
    saved: Interval
    gini: float
    least_share: float

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers."""
        intervals = {"mean_round_s": self.mean_round_s, "saved": self.saved}
        return asdict(self) | {key: one.as_json() for key, one in intervals.items()}

    @property
    def saved_percent(self) -> str:
        """How much of random selection's time is saved."""
        return Interval(*(100 * v for v in astuple(self.saved))).text(".0f") + " %"


def read_log(path: Path, deadline_s: float | None = None) -> Log:
    """Return the latencies in a CSV file with the columns client,latency_s."""
    columns, rows = read_trace(path)
    if columns != LATENCY:
        raise InvalidInput(f"{path}: the first line must be client,latency_s")
    latencies = [seen[:, 0] for seen in rows.values()]
    longest = max(float(seen.max()) for seen in latencies)
    tau_max = longest if deadline_s is None else checks.positive("deadline_s", deadline_s)
    return Log(latencies, tau_max)


def try_settings(
    log: Log, *, cohort_size: int, rounds: int, seeds: int = 3, jobs: int = -1
) -> list[Trial]:
    """Return random selection and every weight with every index, simulated on the log."""
    n_clients = len(log.latencies)
    if not 1 <= checks.natural("cohort_size", cohort_size) < n_clients:
        raise InvalidInput(
            f"cohort_size must be below the {n_clients} clients of the log, got {cohort_size}"
        )
    choices: list[tuple[str, dict[str, Any]]] = [("random", {})]
    choices += [
        (index, {"alpha": round(weight * n_clients / cohort_size, 3), **settings})
        for index, settings in INDICES.items()
        for weight in WEIGHTS
    ]

    def play(settings: dict[str, Any], seed: int) -> tuple[float, float, float]:
        """Return mean round time, Gini and least share of one run."""
        told = {"tau_max": log.tau_max, **settings} if settings else {}
        policy, fleet = make_policy("bsfl" if settings else "random", **told), log.fleet(seed)
        records = simulate(policy, fleet, cohort_size=cohort_size, rounds=rounds, seed=seed)
        mean_round_s, counts = totals(records, n_clients)
        return mean_round_s, gini(counts), counts.min() / (rounds * cohort_size / n_clients)

    runs = [(settings, seed) for _, settings in choices for seed in range(seeds)]
    numbers = np.array(in_parallel(play, runs, jobs=jobs)).reshape(len(choices), seeds, 3)
    by_chance = numbers[0, :, 0]
    return [
        Trial(
            index=index,
            settings=settings,
            mean_round_s=interval(own[:, 0]),
            saved=interval(1 - own[:, 0] / by_chance),
            gini=float(own[:, 1].mean()),
            least_share=float(own[:, 2].mean()),
        )
        for (index, settings), own in zip(choices, numbers, strict=True)
    ]


def recommended(trials: list[Trial], floor: float) -> Trial:
    """Return the quickest setting in which nobody falls below the floor.

    Where none holds it, the one with the highest least share.
    """
    bsfl = [trial for trial in trials if trial.settings]
    fair = [trial for trial in bsfl if trial.least_share >= floor]
    if fair:
        return min(fair, key=lambda trial: trial.mean_round_s.mean)
    return max(bsfl, key=lambda trial: trial.least_share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Which setting of BSFL suits the clients in a log of latencies?

    The log is a CSV file with the columns client,latency_s; `floor` is the least part of its fair
    share that a client shall have. Without a deadline it is the longest latency in the log.
    """

    latencies: Path
    cohort_size: int
    floor: float = 0.8
    deadline_s: float | None = None
    rounds: int = 1000

    def __post_init__(self) -> None:
        checks.between("floor", self.floor, 0.0, 1.0)

    def play(self, folder: Path, effort: Effort) -> Findings:
        log = read_log(self.latencies, self.deadline_s)
        size = {"cohort_size": self.cohort_size, "rounds": self.rounds}
        trials = try_settings(log, **size, seeds=effort.seeds or 3, jobs=effort.jobs)
        best = recommended(trials, self.floor)
        settings = {**best.settings, "tau_max": log.tau_max}
        arguments = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        unmet = f"No setting keeps everybody at {self.floor:.0%}; this comes closest."
        return Findings(
            title="What each weight costs on these clients",
            verdict=[
                *[unmet] * (best.least_share < self.floor),
                f"recommended: BSFL({arguments})",
                f"expected: {best.saved_percent} of the time of random selection saved, nobody "
                f"below {best.least_share:.0%} of its share",
            ],
            numbers={
                "floor": self.floor,
                "recommended": {**best.as_json(), "settings": settings},
                "trials": [trial.as_json() for trial in trials],
            },
            tables=[trials_table(trials, best)],
            plots=[trials_plot(trials, best, self.floor)],
        )


def trials_table(trials: list[Trial], best: Trial) -> Table:
    """Return one row per setting that was tried, with the recommended one marked."""
    return Table(
        title="what each weight costs on these clients (± 95 %)",
        columns=["index", "alpha", "mean round (s)", "saved", "least share", "Gini"],
        rows=[
            [
                trial.index + " *" * (trial is best),
                f"{trial.settings['alpha']:g}" if trial.settings else "",
                trial.mean_round_s.text(),
                trial.saved_percent,
                f"{trial.least_share:.2f}",
                f"{trial.gini:.3f}",
            ]
            for trial in trials
        ],
        note="saved: of random selection's time; least share: 1 is fair; *: recommended",
    )


def trials_plot(trials: list[Trial], best: Trial, floor: float) -> Plot:
    """Return mean round time against the least share and against Gini, for every index."""
    panels = []
    for name, x_title, title in (
        ("least_share", "share of the least chosen client (1 is fair)", "Nobody left behind"),
        ("gini", "Gini of selections (0 is even)", "Evenness over all"),
    ):
        marks: list[Mark] = []
        for index in dict.fromkeys(trial.index for trial in trials):
            own = [t for t in trials if t.index == index]
            x, y = np.array(sorted((getattr(t, name), t.mean_round_s.mean) for t in own)).T
            label = index if index == "random" else f"BSFL, {index}"
            marks.append(Line(label=label, x=x, y=y, has_markers=True))
        x, y = np.array([getattr(best, name)]), np.array([best.mean_round_s.mean])
        marks.append(Points(label="recommended", x=x, y=y, is_star=True))
        if name == "least_share":
            marks.append(Rule(at=floor, label="floor", is_upright=True))
        y_title = "mean round (s)"
        panels.append(Panel(x=x_title, y=y_title, title=title, marks=marks, starts_at_0="y"))
    return Plot(name="tune", caption="What each weight costs on these clients.", panels=panels)
