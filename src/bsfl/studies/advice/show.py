"""The results of the advisor: sentences, tables, and a figure with a movable floor."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bsfl.experiments.statistics import Interval
from bsfl.experiments.tables import Column, Table
from bsfl.html import Markup, render
from bsfl.monitoring.words import seconds
from bsfl.report import Section
from bsfl.report.plots import Mark, Panel, Plot, Points, Rule
from bsfl.studies.advice.trials import Setting, Trial, recommended

FLOORS = range(101)
"""Floors that can be selected on the page, in per cent."""
ABOUT = {
    "over_selection": "invitations per target response; auto: from the clients' response rates",
    "responses": "responses per round that entered the model",
    "min_participation": "participations of the least served client over its fair count",
    "gini": "0: all clients participate equally; near 1: a few clients do nearly all",
}


def over_selection_words(setting: Setting) -> str:
    """Return the over-selection of a setting in words."""
    if setting.over_selection == "auto":
        return "automatic over-selection"
    words = f"over-selection {setting.over_selection:g}"
    return "no over-selection" if setting.over_selection == 1.0 else words


def sentence(trial: Trial) -> str:
    """Return a sentence with a setting and its results."""
    one = trial.setting
    return (
        f"{one.short()} with cohorts of {one.cohort_size:,}, {over_selection_words(one)} and a "
        f"deadline of {seconds(one.deadline_s)}: "
        f"{spread(trial.interval('mean_round_s'), seconds)} and "
        f"{trial.mean('responses'):.1f} responses per round."
    )


def saving(trial: Trial, baseline: Trial, same_plan: Trial) -> list[str]:
    """Return what a setting saves against random selection: the baseline, and with its own plan."""
    words = (
        f"{trial.setting.short()} {saves(trial.saved(baseline), 'random selection')} for the same "
        f"number of responses, and every client gets at least "
        f"{percent(trial.mean('min_participation'))} of its fair count{in_return(trial, baseline)}."
    )
    if same_plan is baseline or same_plan is trial:
        return [words]
    part = saves(trial.saved(same_plan), "random selection with the same invitations and deadline")
    return [words, f"It {part}{in_return(trial, same_plan)}."]


def in_return(trial: Trial, other: Trial) -> str:
    """Return the gain in fairness of a setting that is slower than another, in words."""
    ratio, base = trial.mean("min_participation"), other.mean("min_participation")
    if trial.saved(other).mean >= 0 or ratio <= base:
        return ""
    return f"; in return, the minimum participation is {percent(ratio)} instead of {percent(base)}"


def floor_words(trial: Trial, floor: float) -> list[str]:
    """Return an explanation if the minimum participation of a setting is below the floor."""
    ratio, fair_count = trial.mean("min_participation"), trial.mean("fair_count")
    if not trial.keeps(floor):
        return [
            f"No setting keeps every client at {percent(floor)} of its fair count; this one comes "
            "closest."
        ]
    if ratio >= floor:
        return []
    return [
        f"A minimum participation of {percent(ratio)} is accepted for a floor of {percent(floor)}: "
        f"the fair count of a client in {trial.rounds:,} rounds is {fair_count:.1f}, and one round "
        f"is {percent(1 / max(fair_count, 1.0))} of it. More --rounds are more precise."
    ]


def saves(part: Interval, other: str) -> str:
    """Return in words which fraction of another setting's time is saved, or is needed in addition.

    >>> saves(Interval(0.42, 0.38, 0.46), "random selection")
    'saves 42 % (38 to 46 %) of the time of random selection'
    >>> saves(Interval(-0.1, math.nan, math.nan), "random selection")
    'takes 10 % more time than random selection'
    >>> saves(Interval(0.1, -0.2, 0.4), "random selection")
    'saves 10 % (-20 to 40 %, not significant) of the time of random selection'
    """
    doubt = ", not significant" if part.low <= 0 <= part.high else ""
    if part.mean < 0:
        more = Interval(-part.mean, -part.high, -part.low)
        return f"takes {spread(more, percent, doubt)} more time than {other}"
    return f"saves {spread(part, percent, doubt)} of the time of {other}"


def percent(value: float) -> str:
    """Return a fraction in per cent."""
    return f"{100 * value:.0f} %"


def spread(found: Interval, words: Callable[[float], str], doubt: str = "") -> str:
    """Return a mean with its interval, whose unit is written once, and a remark."""
    if math.isnan(found.low):
        return words(found.mean)
    low, high = words(found.low), words(found.high)
    number, _, unit = low.rpartition(" ")
    low = number if number and high.endswith(f" {unit}") else low
    return f"{words(found.mean)} ({low} to {high}{doubt})"


def trials_table(trials: Sequence[Trial], best: Trial, read: str = "") -> Table:
    """Return one row per setting, the recommended one first, then by time; `read` is the log."""
    ordered = sorted(trials, key=lambda one: (one is not best, float(one.time_s.mean())))
    columns = [
        Column("setting"),
        Column(f"{best.setting.cohort_size:,} responses in (s)", "less"),
        Column("min_participation", "more", form=".2f"),
        Column("mean_round_s"),
        Column("responses", form=".1f"),
        Column("over_selection", form="g"),
        Column("deadline_s", form="g"),
        Column("gini", "less", form=".3f"),
    ]
    return Table(
        title="All settings on these clients, ± 95 %",
        columns=[replace(column, about=ABOUT.get(column.title, "")) for column in columns],
        rows=[
            [
                one.setting.short() + " *" * (one is best),
                one.interval("for_as_many_s"),
                one.mean("min_participation"),
                one.interval("mean_round_s"),
                one.mean("responses"),
                one.setting.over_selection,
                one.setting.deadline_s,
                one.mean("gini"),
            ]
            for one in ordered
        ],
        note="*: recommended" + f". The log: {read}" * bool(read),
    )


def brief_table(trials: Sequence[Trial], best: Trial) -> Table:
    """Return the recommended setting, random selection and the best settings for other floors."""
    front = {id(recommended(trials, floor / 100)) for floor in FLOORS}
    chosen = [one for one in trials if id(one) in front or one is trials[0] or one is best]
    chosen.sort(key=lambda one: float(one.time_s.mean()))
    return Table(
        title="The best setting for every floor of min_participation",
        columns=[
            Column("setting"),
            Column("over_selection", form="g"),
            Column("deadline_s", form="g"),
            Column("mean_round_s"),
            Column("min_participation", form=".2f"),
        ],
        rows=[
            [
                ("* " if one is best else "  ") + one.setting.short(),
                one.setting.over_selection,
                one.setting.deadline_s,
                one.interval("mean_round_s"),
                one.mean("min_participation"),
            ]
            for one in chosen
        ],
        note="*: recommended; report.html has all settings",
    )


def sizes_table(trials: Sequence[Trial]) -> Table:
    """Return the results for other cohort sizes; a log cannot show which of them trains fastest.

    Args:
        trials: For every size, a setting and random selection with the same plan.
    """
    pairs = list(zip(trials[::2], trials[1::2], strict=True))

    def per_minute(one: Trial) -> float:
        return 60 * one.mean("responses") / one.mean("mean_round_s")

    return Table(
        title=f"{trials[0].setting.short()} with other cohort sizes, and random selection",
        columns=[
            Column("cohort_size"),
            Column("mean_round_s", wide=False),
            Column("random's mean_round_s", wide=False),
            Column("responses per minute", form=".1f"),
            Column("random's responses per minute", form=".1f"),
            Column("min_participation", form=".2f"),
        ],
        rows=[
            [
                f"{one.setting.cohort_size:,}",
                one.interval("mean_round_s"),
                other.interval("mean_round_s"),
                per_minute(one),
                per_minute(other),
                one.mean("min_participation"),
            ]
            for one, other in pairs
        ],
        note="Whether shorter rounds or more responses per round train faster depends on the task; "
        "a log of latencies does not show it. Random selection has the same invitations and "
        "deadline here. These runs are shorter than those above.",
    )


def choice_plot(trials: Sequence[Trial], best: Trial, floor: float) -> Plot:
    """Return a plot of time against minimum participation, with a point per setting."""
    marks: list[Mark] = []
    for policy in dict.fromkeys(one.setting.policy for one in trials):
        of_policy = [one for one in trials if one.setting.policy == policy]
        marks.append(Points(label=policy, **_places(of_policy)))
    like = best.setting.policy
    marks.append(Points(label="recommended", is_star=True, like=like, **_places([best])))
    marks.append(Rule(at=floor, label="min-participation", is_upright=True))
    size = best.setting.cohort_size
    x, y = "minimum participation (1 is fair)", f"seconds for {size:,} responses"
    return Plot(
        name="advice",
        caption="Each point is a setting; hover over a point for details. Lower is faster, further "
        "to the right is fairer. The star is the fastest setting to the right of the floor, or the "
        "fairest of the settings that are tied with it.",
        title="The cost of a floor on these clients",
        panels=[Panel(x=x, y=y, marks=marks, starts_at_0="y")],
    )


def _places(trials: Sequence[Trial]) -> dict[str, Any]:
    return {
        "x": np.array([one.mean("min_participation") for one in trials]),
        "y": np.array([float(one.time_s.mean()) for one in trials]),
        "names": [Markup("<br>").join(_lines(one)) for one in trials],
    }


def _lines(trial: Trial) -> list[str]:
    """Return the hover text of a setting."""
    one = trial.setting
    return [
        one.short(),
        f"over-selection {one.over_selection}, deadline {one.deadline_s:g} s",
        f"{trial.interval('mean_round_s').text()} s a round, "
        f"{trial.mean('responses'):.1f} responses",
    ]


def floor_section(trials: Sequence[Trial], floor: float, same_plan: Sequence[Trial]) -> Section:
    """Return the section of the page with the slider for the floor and the recommendation.

    Args:
        trials: All settings that ran at full length; the first is the baseline, random selection.
        floor: The floor that the user requested.
        same_plan: For every trial, random selection with the same plan.
    """
    by_floor = [recommended(trials, one / 100) for one in FLOORS]
    best = by_floor[round(100 * floor)]
    plot = choice_plot(trials, best, floor)
    colours = {mark.label: plot.look(mark).colour for mark in plot.panels[0].marks}
    places = {id(one): i for i, one in enumerate(trials)}
    content = {
        "by_floor": [places[id(one)] for one in by_floor],
        "trials": [
            {
                **{k: v for k, v in _places([one]).items() if k == "names"},
                "x": one.mean("min_participation"),
                "y": float(one.time_s.mean()),
                "sentence": sentence(one),
                "saving": " ".join(saving(one, trials[0], random)),
                "code": one.setting.code(),
                "colour": colours[one.setting.policy],
                "keeps": max((i for i in FLOORS if one.keeps(i / 100)), default=-1),
            }
            for one, random in zip(trials, same_plan, strict=True)
        ],
    }
    html = render(
        "advice.html",
        percent=percent(floor),
        floor=round(100 * floor),
        code=best.setting.code(),
        content=content,
    )
    return Section(
        question="How much time does fairness cost?",
        html=html,
        plots=[plot],
        script=SCRIPT,
    )


SCRIPT = """"use strict";
/* The slider selects the recommendation for a floor, which was computed in advance. */
{
  const known = JSON.parse(document.getElementById("advice").text);
  const place = document.querySelector("figure[data-plot=advice] .panel");
  const slider = document.getElementById("floor");
  const say = (id, words) => { document.getElementById(id).textContent = words; };
  const move = () => {
    const floor = slider.value / 100, best = known.trials[known.by_floor[slider.value]];
    say("floor-shown", `${slider.value} %`);
    say("advice-sentence", best.sentence);
    say("advice-saving", best.saving);
    say("advice-code", best.code);
    const warning = "No setting keeps this floor; this one comes closest.";
    say("advice-warning", best.keeps < slider.value ? warning : "");
    const star = place.data.findIndex((trace) => trace.legendgroup === "recommended");
    const look = { x: [[best.x]], y: [[best.y]], text: [best.names], "marker.color": best.colour };
    Plotly.restyle(place, look, [star]);
    document.querySelector("[data-label=recommended] polygon").setAttribute("fill", best.colour);
    const at = { "shapes[0].x0": floor, "shapes[0].x1": floor, "annotations[0].x": floor };
    Plotly.relayout(place, at);
  };
  slider.addEventListener("input", move);
}
"""
