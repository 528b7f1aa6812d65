"""The figures of a scenario: regret, virtual time and participation."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bsfl.analysis.statistics import band, seeds_in_words
from bsfl.analysis.summary import bound, evaluated, find_target, selections
from bsfl.fairness import lorenz
from bsfl.records import FloatArray, IntArray
from bsfl.report.style import COLOURS, LINES, house_style
from bsfl.runs.results import Results

N_POINTS = 300
"""Points of a curve; more cannot be seen."""
FIRST_LOGARITHMIC_ROUND = 10
"""Before it a logarithmic axis shows little but chance."""


def regret_figure(results: Results) -> Figure:
    """Return cumulative regret against rounds, plain and on logarithmic axes with the bound."""
    scenario = results.scenario
    rounds = shown_rounds(scenario.rounds)
    with house_style():
        figure = Figure(figsize=(11, 4.2))
        plain, logarithmic = figure.subplots(1, 2)
        late = rounds[rounds >= min(FIRST_LOGARITHMIC_ROUND, scenario.rounds)]
        for i, label in enumerate(scenario.policies):
            regret = results.cumulative(label, "regret")
            _curve(plain, rounds, regret[:, rounds - 1], label, i)
            if regret[:, late - 1].min() > 0:
                _curve(logarithmic, late, regret[:, late - 1], label, i)
        own = logarithmic.twinx()
        limit = bound(results, late)
        if not np.isfinite(limit).all():
            limit = np.full(len(late), np.nan)
        (line,) = own.plot(late, limit, color="0.45", ls=(0, (4, 2)), lw=1.3)
        own.set_yscale("log")
        own.grid(False)
        own.spines["right"].set_visible(True)
        own.set_ylabel("bound of Theorem 1 (its own axis)", color="0.35")
        own.tick_params(axis="y", colors="0.35")
        line.set_label("Theorem 1 (right axis)")
        logarithmic.set_xscale("log")
        logarithmic.set_yscale("log")
        for axes in (plain, logarithmic):
            axes.set_xlabel("round")
            axes.set_ylabel("cumulative regret (reward units)")
            axes.xaxis.set_major_formatter("{x:,.0f}")
        plain.set_title("Regret against the genie")
        logarithmic.set_title("The same on logarithmic axes: slope 1 is linear growth")
        plain.legend(loc="upper left")
        own.set_ylim(bottom=own.get_ylim()[0] / 30)  # the bound runs above the legend's corner
        logarithmic.legend(
            handles=[*logarithmic.get_lines(), line], loc="lower right", fontsize="small"
        )
        _headline(figure, results)
    return figure


def time_figure(results: Results) -> Figure:
    """Return virtual time against rounds, and who took part how much."""
    scenario = results.scenario
    with house_style():
        figure = Figure(figsize=(11, 4.2))
        time, spread = figure.subplots(1, 2)
        spread.plot([0, 100], [0, 100], color="0.6", lw=1, label="all equal")
        for i, label in enumerate(scenario.policies):
            clock = results.column(label, "clock_s")
            rounds = shown_rounds(clock.shape[1])
            _curve(time, rounds, clock[:, rounds - 1], label, i)
            share = 100 * lorenz(selections(results, label).mean(axis=0))
            people = np.linspace(0, 100, len(share))
            spread.plot(
                people,
                share,
                color=COLOURS[i % len(COLOURS)],
                ls=LINES[i % len(LINES)],
                label=label,
            )
        time.set(xlabel="round", ylabel="virtual time (s)", title="Time spent")
        time.yaxis.set_major_formatter("{x:,.0f}")
        spread.set(
            xlabel="clients, least chosen first (%)",
            ylabel="share of all selections (%)",
            title="Participation (Lorenz curve)",
            xlim=(0, 100),
            ylim=(0, 100),
        )
        time.legend()
        spread.legend()
        _headline(figure, results)
    return figure


def learning_figure(results: Results) -> Figure:
    """Return test accuracy, where there is one, and test loss against virtual time."""
    with house_style():
        figure = Figure(figsize=(11, 4.2))
        has_accuracy = find_target(results).column == "test_accuracy"
        names = {"test_accuracy": "test accuracy", "test_loss": "test loss"}
        shown = names if has_accuracy else {"test_loss": names["test_loss"]}
        for axes, (column, title) in zip(
            figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True
        ):
            for i, label in enumerate(results.scenario.policies):
                _curve(axes, *learning_curves(results, label, column), label, i)
            axes.set(xlabel="virtual time (s)", ylabel=title)
            axes.xaxis.set_major_formatter("{x:,.0f}")
            if column == "test_loss" and not has_accuracy:
                axes.set_yscale("log")
            axes.legend()
        _headline(figure, results)
    return figure


def learning_curves(results: Results, label: str, column: str) -> tuple[FloatArray, FloatArray]:
    """Return times and, at each, the value of the last evaluation before, [seed, time]."""
    runs = [evaluated(records) for records in results.records(label)]
    first = max(run["clock_s"][0] for run in runs)
    last = min(run["clock_s"][-1] for run in runs)
    times = np.linspace(min(first, last), last, N_POINTS)
    at = [np.searchsorted(run["clock_s"], times, side="right").clip(1) - 1 for run in runs]
    return times, np.stack([run[column][i] for run, i in zip(runs, at, strict=True)])


def _curve(axes: Axes, x: IntArray | FloatArray, curves: FloatArray, label: str, i: int) -> None:
    """Draw the mean over seeds and its 95 % band."""
    mean, half = band(curves)
    colour = COLOURS[i % len(COLOURS)]
    axes.plot(x, mean, color=colour, ls=LINES[i % len(LINES)], label=label)
    if np.isfinite(half).all():
        axes.fill_between(x, mean - half, mean + half, color=colour, alpha=0.2, lw=0)


def shown_rounds(last: int) -> IntArray:
    """Return the rounds at which a curve is drawn, dense at the start and even later."""
    spaced = (np.geomspace(1, last, N_POINTS), np.linspace(1, last, N_POINTS))
    return np.unique(np.concatenate(spaced).round().astype(np.int64))


def _headline(figure: Figure, results: Results) -> None:
    scenario = results.scenario
    seeds = seeds_in_words(results.seeds, ", 95 % bands")
    figure.suptitle(
        f"{scenario.title}   (K = {scenario.fleet.n_clients}, m = {scenario.cohort_size}, {seeds})",
        fontsize=11,
    )
