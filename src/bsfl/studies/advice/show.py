"""What the advisor found: in words, as tables, and as a figure whose floor can be moved."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bsfl.analysis.statistics import Interval
from bsfl.analysis.tables import Table
from bsfl.frame import Markup, data, text
from bsfl.monitor.words import seconds
from bsfl.report import Section
from bsfl.report.plots import Mark, Panel, Plot, Points, Rule
from bsfl.studies.advice.trials import Setting, Trial, recommended

FLOORS = range(101)
"""Floors that the page can be asked for, in per cent."""
ABOUT = {
    "invite": "how many times the cohort are invited; auto: as many as it takes",
    "answers": "that entered the model in a round",
    "least share": "of the least served client, 1 is fair",
    "Gini": "0: all were served alike, towards 1: a few had it all",
}


def reserve(setting: Setting) -> str:
    """Return how many are invited, in words."""
    if setting.invite == "auto":
        return "as many invited as it takes by their record"
    times = f"{setting.invite:g} times as many invited"
    return "nobody in reserve" if setting.invite == 1.0 else times


def sentence(trial: Trial) -> str:
    """Return what a setting is and comes to."""
    one = trial.setting
    return (
        f"{one.short()} in cohorts of {one.cohort_size:,}, with {reserve(one)}, rounds closed "
        f"after {seconds(one.deadline_s)} at the latest: "
        f"{spread(trial.interval('mean_round_s'), seconds)} a round, "
        f"{trial.mean('answers'):.1f} answers in it."
    )


def saving(trial: Trial, by_chance: Trial, alike: Trial) -> list[str]:
    """Return what a setting saves against random selection, as it is and with the same plan."""
    words = (
        f"{trial.setting.short()} {saves(trial.saved(by_chance), 'random selection')} for as many "
        f"answers, and nobody falls below {percent(trial.mean('least_share'))} of its share"
        f"{in_return(trial, by_chance)}."
    )
    if alike is by_chance or alike is trial:
        return [words]
    part = saves(trial.saved(alike), "random selection that invites and waits the same")
    return [words, f"It {part}{in_return(trial, alike)}."]


def in_return(trial: Trial, other: Trial) -> str:
    """Return what a setting has for the time that it takes more than another, in words."""
    own, theirs = trial.mean("least_share"), other.mean("least_share")
    if trial.saved(other).mean >= 0 or own <= theirs:
        return ""
    return f"; in return the least served client has {percent(own)}, there {percent(theirs)}"


def floor_words(trial: Trial, floor: float) -> list[str]:
    """Return why a setting is recommended whose least share is below the floor, if it is."""
    least, chances = trial.mean("least_share"), trial.mean("chances")
    if not trial.keeps(floor):
        return [f"No setting keeps everybody at {percent(floor)} of its share; this is closest."]
    if least >= floor:
        return []
    return [
        f"A least share of {percent(least)} passes for {percent(floor)}: a fair share of "
        f"{trial.rounds:,} rounds is {chances:.1f} of them, and one round more or less is "
        f"{percent(1 / max(chances, 1.0))} of it. With more --rounds it is kept more closely."
    ]


def saves(part: Interval, other: str) -> str:
    """Return which part of another's time is saved, or is needed on top, in words.

    >>> saves(Interval(0.42, 0.38, 0.46), "random selection")
    'saves 42 % (38 to 46 %) of the time of random selection'
    >>> saves(Interval(-0.1, math.nan, math.nan), "random selection")
    'takes 10 % more time than random selection'
    >>> saves(Interval(0.1, -0.2, 0.4), "random selection")
    'saves 10 % (-20 to 40 %, which may be chance) of the time of random selection'
    """
    doubt = ", which may be chance" if part.low <= 0 <= part.high else ""
    if part.mean < 0:
        more = Interval(-part.mean, -part.high, -part.low)
        return f"takes {spread(more, percent, doubt)} more time than {other}"
    return f"saves {spread(part, percent, doubt)} of the time of {other}"


def percent(value: float) -> str:
    """Return a part in per cent."""
    return f"{100 * value:.0f} %"


def spread(found: Interval, words: Callable[[float], str], doubt: str = "") -> str:
    """Return a mean with its interval, whose unit is said once, and what is to be doubted."""
    if math.isnan(found.low):
        return words(found.mean)
    low, high = words(found.low), words(found.high)
    number, _, unit = low.rpartition(" ")
    low = number if number and high.endswith(f" {unit}") else low
    return f"{words(found.mean)} ({low} to {high}{doubt})"


def trials_table(trials: Sequence[Trial], best: Trial, read: str = "") -> Table:
    """Return one row per setting, the recommended one and then the quickest; and what was read."""
    ordered = sorted(trials, key=lambda one: (one is not best, float(one.time_s.mean())))
    in_time = f"{best.setting.cohort_size:,} answers in (s)"
    return Table(
        title="What each setting costs on these clients, ± 95 %",
        columns=[
            *("setting", in_time, "least share", "mean round (s)", "answers"),
            *("invite", "deadline (s)", "Gini"),
        ],
        rows=[
            [
                one.setting.short() + " *" * (one is best),
                one.interval("for_as_many_s").text(),
                f"{one.mean('least_share'):.2f}",
                one.interval("mean_round_s").text(),
                f"{one.mean('answers'):.1f}",
                str(one.setting.invite),
                f"{one.setting.deadline_s:g}",
                f"{one.mean('gini'):.3f}",
            ]
            for one in ordered
        ],
        note="*: recommended" + f". The log: {read}" * bool(read),
        better={in_time: "less", "least share": "more", "Gini": "less"},
        about=ABOUT,
    )


def brief_table(trials: Sequence[Trial], best: Trial) -> Table:
    """Return the recommended setting, random selection and what is the best for other floors."""
    front = {id(recommended(trials, floor / 100)) for floor in FLOORS}
    chosen = [one for one in trials if id(one) in front or one is trials[0] or one is best]
    chosen.sort(key=lambda one: float(one.time_s.mean()))
    return Table(
        title="The best for every floor of the least share",
        columns=["setting", "invite", "deadline", "round (s)", "least share"],
        rows=[
            [
                ("* " if one is best else "  ") + one.setting.short(),
                str(one.setting.invite),
                f"{one.setting.deadline_s:g} s",
                one.interval("mean_round_s").text(),
                f"{one.mean('least_share'):.2f}",
            ]
            for one in chosen
        ],
        note="*: recommended; report.html has all that were tried",
    )


def sizes_table(trials: Sequence[Trial]) -> Table:
    """Return what other cohort sizes cost, between which a log cannot choose.

    Args:
        trials: For every size a setting, and random selection with the same plan.
    """
    pairs = list(zip(trials[::2], trials[1::2], strict=True))

    def per_minute(one: Trial) -> str:
        return f"{60 * one.mean('answers') / one.mean('mean_round_s'):.1f}"

    return Table(
        title=f"{trials[0].setting.short()} with other cohort sizes, beside random selection",
        columns=[
            *("cohort size", "round (s)", "random's round (s)", "answers per minute"),
            *("random's answers per minute", "least share"),
        ],
        rows=[
            [
                f"{one.setting.cohort_size:,}",
                one.interval("mean_round_s").text(wide=False),
                other.interval("mean_round_s").text(wide=False),
                per_minute(one),
                per_minute(other),
                f"{one.mean('least_share'):.2f}",
            ]
            for one, other in pairs
        ],
        note="Shorter rounds or more answers in each: which trains faster depends on the task, and "
        "a log of times cannot say. Random selection invites and waits the same here. These were "
        "played for less long than the settings above.",
    )


def choice_plot(trials: Sequence[Trial], best: Trial, floor: float) -> Plot:
    """Return the time for as many answers against the least share, for every setting."""
    marks: list[Mark] = []
    for policy in dict.fromkeys(one.setting.policy for one in trials):
        own = [one for one in trials if one.setting.policy == policy]
        marks.append(Points(label=policy, **_places(own)))
    like = best.setting.policy
    marks.append(Points(label="recommended", is_star=True, like=like, **_places([best])))
    marks.append(Rule(at=floor, label="floor", is_upright=True))
    size = best.setting.cohort_size
    x, y = "share of the least served client (1 is fair)", f"seconds for {size:,} answers"
    return Plot(
        name="advice",
        caption="Each point is a setting; point at one to see which. Lower is quicker, further to "
        "the right is fairer. The star is the quickest setting to the right of the floor, or the "
        "fairest of those that are as quick.",
        title="What a floor costs on these clients",
        panels=[Panel(x=x, y=y, marks=marks, starts_at_0="y")],
    )


def _places(trials: Sequence[Trial]) -> dict[str, Any]:
    return {
        "x": np.array([one.mean("least_share") for one in trials]),
        "y": np.array([float(one.time_s.mean()) for one in trials]),
        "names": [Markup("<br>".join(map(text, _lines(one)))) for one in trials],
    }


def _lines(trial: Trial) -> list[str]:
    """Return what the figure says of a setting."""
    one = trial.setting
    return [
        one.short(),
        f"invite {one.invite}, deadline {one.deadline_s:g} s",
        f"{trial.interval('mean_round_s').text()} s a round, {trial.mean('answers'):.1f} answers",
    ]


def floor_section(trials: Sequence[Trial], floor: float, by_chance: Sequence[Trial]) -> Section:
    """Return the part of the page where the floor can be moved, and the recommendation follows.

    Args:
        trials: All that were played at full length; the first is random selection.
        floor: That which was asked for.
        by_chance: For every trial, random selection with the same plan.
    """
    chosen = [recommended(trials, one / 100) for one in FLOORS]
    best = chosen[round(100 * floor)]
    plot = choice_plot(trials, best, floor)
    colours = {mark.label: plot.look(mark).colour for mark in plot.panels[0].marks}
    places = {id(one): i for i, one in enumerate(trials)}
    content = {
        "by_floor": [places[id(one)] for one in chosen],
        "trials": [
            {
                **{k: v for k, v in _places([one]).items() if k == "names"},
                "x": one.mean("least_share"),
                "y": float(one.time_s.mean()),
                "sentence": sentence(one),
                "saving": " ".join(saving(one, trials[0], alike)),
                "code": one.setting.code(),
                "colour": colours[one.setting.policy],
                "keeps": max((i for i in FLOORS if one.keeps(i / 100)), default=-1),
            }
            for one, alike in zip(trials, by_chance, strict=True)
        ],
    }
    html = (
        '<p><label for="floor">Every client gets at least '
        f'<output id="floor-shown">{percent(floor)}</output> of its fair share</label></p>'
        f'<p><input id="floor" type="range" min="0" max="100" value="{round(100 * floor)}" '
        'style="width: min(100%, 40rem)"></p><div aria-live="polite">'
        '<p id="advice-saving"></p><p id="advice-sentence"></p>'  # the verdict says it already
        '<p id="advice-unmet" class="warn"></p></div>'
        f'<pre id="advice-code">{text(best.setting.code())}</pre>{data("advice", content)}'
    )
    return Section(
        question="How fair must it be, and what does that cost?",
        html=html,
        plots=[plot],
        script=SCRIPT,
    )


SCRIPT = """"use strict";
/* The recommendation follows the floor; which setting is the best for each was computed before. */
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
    const unmet = "No setting keeps that floor; this comes closest.";
    say("advice-unmet", best.keeps < slider.value ? unmet : "");
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
