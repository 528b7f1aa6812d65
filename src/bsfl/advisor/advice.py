"""What to change, what each change saves, and what it does to the client with the fewest rounds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bsfl import validation
from bsfl.advisor.log import ResponseLog, warm_start
from bsfl.advisor.search import Search, Trial, recommended
from bsfl.advisor.settings import RANDOM, Setting, can_evaluate, deadlines_from
from bsfl.errors import InvalidInput
from bsfl.experiments.scenario import parse_scenario
from bsfl.experiments.statistics import Interval, ratio_interval
from bsfl.experiments.tables import Column, Table
from bsfl.monitoring.words import figure, seconds
from bsfl.policies import POLICIES, Pace
from bsfl.report import Report
from bsfl.report.plots import Mark, Panel, Plot, Points, Rule
from bsfl.scheduler import Scheduler

N_SEEDS = 5
FEW_RESPONSES, FEW_ROUNDS = 3.0, 5.0
"""Responses per client, and fair count per client, below which a prediction is unreliable."""


@dataclass(frozen=True, slots=True)
class Change:
    """One step from random selection to the recommendation.

    Attributes:
        words: What to change.
        before, after: The settings without and with it.
    """

    words: str
    before: Trial
    after: Trial

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "change": self.words,
            "time_ratio": ratio_interval(self.after.time_ratio(self.before)).as_json(),
            "min_participation": self.after.interval("min_participation").as_json(),
        }

    def __str__(self) -> str:
        ratio, before = (one.interval("min_participation") for one in (self.after, self.before))
        return (
            f"{self.words}: this {saves(self.after, self.before)}. The lowest participation ratio "
            f"is {spread(ratio)}, and {spread(before)} without this change."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The recommendation for the clients in a log.

    Attributes:
        log: The log.
        floor: Minimum participation that was asked for.
        trials: All settings at full length; the first one is the baseline, random selection with
            the cohort size and the deadline of the log.
        path: From the baseline to the recommended setting, one change at a time.
    """

    log: ResponseLog
    floor: float
    trials: Sequence[Trial]
    path: Sequence[Trial]

    @property
    def best(self) -> Trial:
        """The recommended setting."""
        return self.path[-1]

    @property
    def changes(self) -> list[Change]:
        """What to change, in this order; each is compared with the changes before it."""
        steps = zip(self.path, self.path[1:], strict=False)
        return [Change(_difference(a, b), a, b) for a, b in steps]

    def scheduler(self) -> Scheduler:
        """Return a scheduler with the recommended setting that has observed the log."""
        one = self.best.setting
        size, over_selection = one.cohort_size, one.over_selection
        return warm_start(self.log, one.made(), cohort_size=size, over_selection=over_selection)

    def headline(self) -> list[str]:
        """Return the recommendation in sentences."""
        ratio = spread(self.best.interval("min_participation"))
        if not self.changes:
            return [
                "Change nothing: no setting that keeps every client at "
                f"{100 * self.floor:.0f} % of its fair count is significantly faster than random "
                f"selection, with which the lowest participation ratio is {ratio}.",
                *self.limits(),
            ]
        return [
            f"The recommendation {saves(self.best, self.path[0], ' of random selection')} for as "
            f"many responses. The lowest participation ratio of a client is {ratio}.",
            *(f"{i}. {change}" for i, change in enumerate(self.changes, 1)),
            *self.limits(),
        ]

    def limits(self) -> list[str]:
        """Return the limitations of the prediction."""
        log, found, fair_count = self.log, [], self.best.mean("fair_count")
        ratio = self.best.mean("min_participation")
        if not self.best.keeps(self.floor):
            found.append(
                f"No setting keeps every client at {100 * self.floor:.0f} % of its fair count; "
                "this one comes closest."
            )
        elif ratio < self.floor:
            found.append(
                f"A ratio of {ratio:.2f} is accepted for a floor of {self.floor:.2f}, because one "
                f"round is {100 / max(fair_count, 1.0):.0f} % of a client's fair count of "
                f"{fair_count:.1f} rounds. A larger --rounds is more precise."
            )
        if unresponsive := log.unresponsive():
            found.append(
                f"{len(unresponsive):,} of {log.n_clients:,} clients never responded within "
                f"{seconds(log.deadline_s)}. The simulation invites them and waits for them, too."
            )
        per_client = np.count_nonzero(log.responded) / log.n_clients
        if per_client < FEW_RESPONSES:
            found.append(
                f"The log has {per_client:.1f} responses per client: predictions are rough."
            )
        if fair_count < FEW_ROUNDS:
            rounds = math.ceil(2 * FEW_ROUNDS * self.best.rounds / fair_count)
            found.append(
                f"The fair count of a client in {self.best.rounds:,} rounds is {fair_count:.1f}, "
                f"too low to compare participation; use --rounds {rounds} for a reliable result."
            )
        return found

    def report(self) -> Report:
        """Return the report: the changes, the best setting for other floors, and all settings."""
        return Report(
            title=f"Recommendation for the {self.log.n_clients:,} clients in the log",
            headline=self.headline(),
            code=self.best.setting.code(),
            numbers={
                "read": self.log.words(),
                "min_participation": self.floor,
                "deadline_s": self.log.deadline_s,
                "recommended": self.best.as_json(),
                "time_ratio": ratio_interval(self.best.time_ratio(self.path[0])).as_json(),
                "changes": [change.as_json() for change in self.changes],
                "code": self.best.setting.code(),
                "trials": [one.as_json() for one in self.trials],
            },
            tables=[self._floors(), self._settings()],
            terminal_tables=[self._floors()],
            plots=[self._plot()],
        )

    def _settings(self) -> Table:
        ordered = sorted(self.trials, key=lambda one: (one is not self.best, one.mean("time_s")))
        rows = []
        for one in ordered:
            cells, (time_s, ratio) = _cells(one), map(one.interval, ("time_s", "min_participation"))
            rows.append([*cells[:4], _ends(time_s), cells[4], _ends(ratio), one.mean("gini")])
        return Table(
            title="All settings at full length, the recommended one first",
            columns=[
                *(*_COLUMNS[:4], Column("95 % of time_s"), _COLUMNS[4]),
                *(Column("95 % of min_participation"), Column("gini", "less", form=".3f")),
            ],
            rows=rows,
            note=f"95 %: where 95 % of client populations that fit the log are. {self.log.words()}",
        )

    def _floors(self) -> Table:
        best = [(floor / 100, recommended(self.trials, floor / 100)) for floor in range(101)]
        highest = {id(one): (floor, one) for floor, one in best if one.keeps(floor)}
        return Table(
            title="The best setting for other values of --min-participation",
            columns=[Column("up to a floor of"), *_COLUMNS],
            rows=[[f"{floor:.2f}", *_cells(one)] for floor, one in highest.values()],
            note="time_s: seconds for as many responses as the cohort size",
        )

    def _plot(self) -> Plot:
        marks: list[Mark] = []
        for policy in dict.fromkeys(one.setting.policy for one in self.trials):
            alike = [one for one in self.trials if one.setting.policy == policy]
            marks.append(Points(label=policy, **_places(alike)))
        like = self.best.setting.policy
        marks += [
            Points(label="recommended", is_star=True, like=like, **_places([self.best])),
            Rule(at=self.floor, label="min-participation", is_upright=True),
        ]
        x = "lowest participation ratio of a client (1 is fair)"
        y = f"seconds for {self.best.setting.cohort_size:,} responses"
        return Plot(
            name="advice",
            question="How much time does fairness cost?",
            caption="Each point is a setting at full length. Lower is faster, further to the right "
            "is fairer. The star is the recommendation: the fastest setting to the right of the "
            "floor, or the fairest of the settings that are tied with it.",
            panels=[Panel(x=x, y=y, marks=marks, starts_at_0="y")],
        )


def advise(
    log: ResponseLog,
    folder: str | Path,
    *,
    cohort_size: int | None = None,
    min_participation: float = 0.8,
    rounds: int = 500,
    policies: Sequence[str] | None = None,
    seeds: int = N_SEEDS,
    jobs: int = -1,
    progress: bool = False,
) -> Advice:
    """Return the fastest policy, invitations and deadline that leave no client behind.

    Args:
        log: What `read_log` returns.
        folder: Folder of the runs, which the same call resumes.
        cohort_size: Target responses per round; None: from the log, or a tenth of the clients.
        min_participation: Minimum participation of every client, as a fraction of its fair count.
        rounds: Number of rounds to simulate at full length.
        policies: Policies to compare; None: all that a log can evaluate.
        seeds: Number of client populations that are resampled from the log.
        jobs, progress: As for run_scenario.
    """
    validation.between("min_participation", min_participation, 0.0, 1.0)
    validation.natural("rounds", rounds)
    for name in policies or ():
        POLICIES.settings(name)  # its error lists the known policies
        if not can_evaluate(name):
            raise InvalidInput(
                f"{name} cannot be evaluated on a log of latencies: it needs other information"
            )
    baseline, folder = first_plan(log, cohort_size), Path(folder)
    plain = {"title": "Clients of a log", "clients": log.clients_of_seeds(), "rounds": rounds}
    search = Search(
        scenario=parse_scenario(
            {**plain, "cohort_size": baseline.cohort_size}, name="advice", file=str(folder)
        ),
        folder=folder / "runs" / log.digest()[:12],
        simulated=_learned(log, baseline.cohort_size),
        jobs=jobs,
        progress=progress,
    )
    deadlines = deadlines_from(log.latency_s[log.responded], log.deadline_s)
    few = search.best(baseline, min_participation, deadlines, rounds=rounds, policies=policies)
    title = "4 of 4: the best at full length"
    trials = search.trials(title, [baseline, *few], rounds=rounds, n_seeds=seeds)
    best = recommended(trials, min_participation)
    path = _steps(baseline, best.setting)
    steps = search.trials(title, path, rounds=rounds, n_seeds=seeds)
    return Advice(log=log, floor=min_participation, trials=trials, path=[*steps[:-1], best])


def first_plan(log: ResponseLog, cohort_size: int | None) -> Setting:
    """Return random selection with the log's cohort size and deadline."""
    n_clients = log.n_clients
    if n_clients < 2:
        raise InvalidInput("the log has one client, so there is nothing to choose")
    if cohort_size is not None:
        validation.natural("cohort_size", cohort_size)
    tenth = min(max(round(n_clients / 10), 2), n_clients - 1)
    size = cohort_size or log.cohort_size or tenth
    if size >= n_clients:
        hint = "" if cohort_size else " from the journal; set it with --cohort-size"
        raise InvalidInput(
            f"cohort_size must be below the {n_clients:,} clients of the log, got {size:,}{hint}"
        )
    return Setting(policy=RANDOM, cohort_size=size, deadline_s=log.deadline_s)


def _learned(log: ResponseLog, cohort_size: int) -> dict[str, dict[str, Any]]:
    """Return the settings that policies learn from the losses of a log: Pace's fairness."""
    if not log.has_losses:
        return {}
    scheduler = warm_start(log, Pace(tau_max=log.deadline_s), cohort_size=cohort_size)
    return {"pace": {"fairness": round(scheduler.diagnostics()["fairness_exponent"], 2)}}


def _steps(baseline: Setting, best: Setting) -> list[Setting]:
    """Return the settings from one to another: invitations, then the deadline, then the policy."""
    steps = [
        baseline,
        replace(baseline, over_selection=best.over_selection),
        replace(baseline, over_selection=best.over_selection, deadline_s=best.deadline_s),
        best,
    ]
    return list({one.key: one for one in steps}.values())


def _difference(before: Trial, after: Trial) -> str:
    """Return the one thing in which two settings differ, as a request."""
    one, other = after.setting, before.setting
    if one.over_selection != other.over_selection:
        about = " on average, as their reliability requires," * (one.over_selection == "auto")
        n_invited = f"{after.mean('invited'):.0f} clients{about}"
        return f"Invite {n_invited} and stop at {one.cohort_size:,} responses"
    if one.deadline_s != other.deadline_s:
        return (
            f"Close rounds after {seconds(one.deadline_s)} instead of {seconds(other.deadline_s)}"
        )
    return f"Select clients with {one.words()} instead of {other.words()}"


def saves(after: Trial, before: Trial, what: str = "") -> str:
    """Return in words which part of another setting's time is saved, or is needed in addition."""
    ratio = ratio_interval(after.time_ratio(before))
    if ratio.low <= 1 <= ratio.high:
        return f"takes {spread(ratio)} times the time{what}, a difference that is not significant"
    ends = [100 * abs(1 - x) for x in (ratio.mean, ratio.low, ratio.high)]
    if ratio.mean > 1:
        return f"takes {spread(Interval(*ends), '.0f', ' %')} more time than before"
    return f"saves {spread(Interval(ends[0], ends[2], ends[1]), '.0f', ' %')} of the time{what}"


def spread(found: Interval, form: str = ".2f", unit: str = "") -> str:
    """Return a mean with its interval.

    >>> spread(Interval(0.42, 0.38, 0.46)), spread(Interval(42, math.nan, math.nan), ".0f", " %")
    ('0.42 (0.38 to 0.46)', '42 %')
    """
    if math.isnan(found.low):
        return f"{found.mean:{form}}{unit}"
    return f"{found.mean:{form}}{unit} ({found.low:{form}} to {found.high:{form}}{unit})"


_COLUMNS = (
    *(Column("setting"), Column("over_selection", form="g"), Column("deadline_s", form="g")),
    Column("time_s", "less", "seconds for as many responses as the cohort size"),
    Column("min_participation", "more", "the lowest participation ratio", form=".2f"),
)


def _cells(trial: Trial) -> list[str | float]:
    one = trial.setting
    numbers = (trial.mean(name) for name in ("time_s", "min_participation"))
    return [one.words(), one.over_selection, one.deadline_s, *numbers]


def _ends(found: Interval) -> str:
    return "" if math.isnan(found.low) else f"{figure(found.low)} to {figure(found.high)}"


def _places(trials: Sequence[Trial]) -> dict[str, Any]:
    return {
        "x": np.array([one.mean("min_participation") for one in trials]),
        "y": np.array([one.mean("time_s") for one in trials]),
        "names": [one.setting.words() for one in trials],
    }
