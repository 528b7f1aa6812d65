"""The paper's figures that need no scenario: annealing, its graphs, and g."""

from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from bsfl.analysis.statistics import band
from bsfl.generalization import signed_power
from bsfl.records import FloatArray
from bsfl.report.style import COLOURS, LINES, house_style
from bsfl.studies.annealing import NeighbourGraph

NAMES = {
    "swap": "SA (swap)",
    "symmetric": "ALSA as printed (symmetric)",
    "drop-weakest": "ALSA, accelerating half (drop-weakest)",
}


def annealing_figure(
    paths: dict[str, FloatArray], optimum: float, study: dict[str, Any], title: str
) -> Figure:
    """Return energy against steps with the optimum as a line, and the gaps of the tournament."""
    with house_style():
        figure = Figure(figsize=(11.5, 4.4))
        walk, bars = figure.subplots(1, 2, width_ratios=(1.7, 1))
        walk.axhline(optimum, color="black", lw=1.2, label="exact optimum")
        for i, (proposal, energies) in enumerate(paths.items()):
            mean, half = band(energies)
            steps = np.arange(len(mean))
            walk.plot(steps, mean, color=COLOURS[i], lw=0.9, label=NAMES[proposal])
            walk.fill_between(steps, mean - half, mean + half, color=COLOURS[i], alpha=0.2, lw=0)
        walk.set(xlabel="step", ylabel="energy of the current state", title=title)
        walk.set_ylim(top=optimum + 0.45 * abs(optimum - walk.get_ylim()[0]))
        walk.legend(loc="upper left", fontsize="small", ncols=2)
        names = list(study["proposals"])
        for j, (state, shade) in enumerate((("last_state", 1.0), ("best_state", 0.5))):
            gaps = [100 * study["proposals"][p][state]["mean_gap"]["mean"] for p in names]
            at = np.arange(len(names)) + 0.38 * (j - 0.5)
            drawn = bars.bar(at, gaps, 0.36, color=COLOURS[: len(names)], alpha=shade)
            bars.bar_label(drawn, fmt="%.0f", fontsize=9)
            for x in at:
                bars.text(x, 1.5, state.partition("_")[0], ha="center", fontsize=8, color="black")
        bars.set_xticks(range(len(names)), [n.replace("-", "-\n") for n in names])
        bars.set(
            ylabel="distance from the optimum (%, random cohort = 100)",
            title=f"{study['instances']:,} random instances, {study['steps']:,} steps",
        )
    return figure


def graph_figure(swap: NeighbourGraph, alsa: NeighbourGraph) -> Figure:
    """Return both neighbour graphs, the optimum in the middle, rings by distance from it."""
    with house_style():
        figure = Figure(figsize=(11.5, 5.4))
        panels = figure.subplots(1, 2)
        place = _rings(swap)
        for axes, graph, name in (
            (panels[0], swap, "SA: any one client differs"),
            (panels[1], alsa, "ALSA: the one that differs is the weakest of its cohort"),
        ):
            lines = place[graph.edges]
            axes.add_collection(LineCollection(list(lines), colors="0.55", lw=0.35, zorder=1))
            dots = axes.scatter(
                *place.T,
                c=graph.energies,
                cmap="viridis",
                s=70,
                edgecolors="black",
                linewidths=0.4,
                zorder=2,
            )
            degree = 2 * len(graph.edges) / len(graph.cohorts)
            axes.set_title(f"{name}\n{len(graph.edges)} edges, {degree:.1f} neighbours a state")
            axes.set_aspect("equal")
            axes.axis("off")
        figure.colorbar(dots, ax=list(panels), label="energy", shrink=0.8)
        figure.suptitle("Cohorts of 4 out of 8; ring = clients that differ from the optimum")
    return figure


def generalization_figure(target: float = 0.25) -> Figure:
    """Return g against c/t for several beta."""
    rate = np.linspace(0, 1, 401)
    with house_style():
        figure = Figure(figsize=(6.4, 4.2))
        axes = figure.subplots()
        for i, beta in enumerate((1, 2, 3, 5)):
            g = signed_power(target - rate, beta)
            axes.plot(rate, g, color=COLOURS[i], ls=LINES[i], label=rf"$\beta = {beta}$")
        axes.axhline(0, color="black", lw=0.8)
        axes.axvline(target, color="0.5", lw=0.8)
        axes.annotate(
            f"share m/K = {target:g}", (target, 0.2), (target + 0.04, 0.2), color="0.3", fontsize=9
        )
        axes.set(
            xlabel="rate of selection so far, c / t",
            ylabel="generalization value g",
            title="Chosen too rarely: positive; too often: negative",
            xlim=(0, 1),
        )
        axes.legend()
    return figure


def _rings(graph: NeighbourGraph) -> FloatArray:
    """Return a place for every state: distance from the optimum as radius, spread by energy."""
    best = set(graph.cohorts[np.argmax(graph.energies)].tolist())
    distance = np.array([len(best - set(c)) for c in graph.cohorts.tolist()])
    place = np.zeros((len(distance), 2))
    for ring in np.unique(distance):
        members = np.flatnonzero(distance == ring)
        angle = 2 * np.pi * np.arange(len(members)) / len(members) + 0.35 * ring
        place[members] = ring * np.column_stack([np.cos(angle), np.sin(angle)])
    return place
