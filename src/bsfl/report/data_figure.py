"""How the data is dealt: what every client holds, drawn on paper and on the page."""

import matplotlib as mpl
import numpy as np
import plotly.graph_objects as go
from matplotlib.figure import Figure

from bsfl.fleet.split import Split
from bsfl.records import IntArray
from bsfl.report.style import house_style
from bsfl.runs.results import Results

MAX_BARS = 100
"""Clients that are drawn; of larger fleets every n-th in the order of size."""


def dealt(results: Results) -> Split:
    """Return the split of the first world."""
    learning = results.scenario.learning
    assert learning
    return learning.deal(results.scenario.fleet.n_clients, seed=results.scenario.first_seed)


def in_words(split: Split) -> str:
    """Return what a split amounts to: sizes, label skew, and what is wrong with the data."""
    low, middle, high = np.percentile(split.sizes, [0, 50, 100])
    words = (
        f"{split.n_clients:,} clients hold {low:,.0f} to {high:,.0f} samples (median {middle:,.0f})"
    )
    if split.n_labels > 1:
        words += f"; label skew {split.label_skew:.2f} (0: all alike, 1: one label each)"
    if np.any(split.quality < 1):
        words += f"; quality {split.quality.min():.2f} to {split.quality.max():.2f}"
    if np.any(split.label_noise > 0):
        words += f"; {split.label_noise.mean():.0%} of the labels are wrong"
    return words + "."


def shown_counts(split: Split) -> tuple[IntArray, IntArray]:
    """Return some clients from the smallest to the largest, and their labels, [client, label]."""
    order = np.argsort(split.sizes, kind="stable")
    shown = np.unique(np.linspace(0, len(order) - 1, MAX_BARS).astype(np.int64))
    who: IntArray = order[shown]
    return who, split.histogram[who]


def data_figure(results: Results) -> Figure:
    """Return a bar for every client: its samples, stacked by label."""
    split = dealt(results)
    _, counts = shown_counts(split)
    with house_style():
        figure = Figure(figsize=(11, 4.2))
        axes = figure.subplots()
        below = np.cumsum(counts, axis=1) - counts
        for label, colour in enumerate(label_colours(split.n_labels)):
            axes.bar(
                np.arange(len(counts)),
                counts[:, label],
                bottom=below[:, label],
                width=1.0,
                color=colour,
                label=f"label {label}",
            )
        axes.set(xlabel="clients, small to large", ylabel="samples", title=in_words(split))
        axes.set_xticks([])
        axes.grid(False)
        if split.n_labels > 1:
            axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small", reverse=True)
    return figure


def data_bars(results: Results) -> tuple[str, go.Figure]:
    """Return the same for the page, with its caption."""
    split = dealt(results)
    who, counts = shown_counts(split)
    figure = go.Figure()
    for label, colour in enumerate(label_colours(split.n_labels)):
        figure.add_bar(
            x=[str(k) for k in who],
            y=counts[:, label],
            name=f"label {label}",
            marker_color=colour,
            hovertemplate="client %{x}: %{y}",
        )
    figure.update_layout(
        template="simple_white",
        barmode="stack",
        bargap=0,
        height=420,
        margin={"l": 70, "r": 20, "t": 20, "b": 55},
        xaxis={"title": "clients, small to large", "showticklabels": False, "type": "category"},
        yaxis_title="samples",
        showlegend=split.n_labels > 1,
    )
    return f"The data of the clients (seed 0): {in_words(split)}", figure


def label_colours(n: int) -> list[str]:
    """Return colours that can be told apart side by side, as #rrggbb."""
    palette = mpl.colormaps["tab10" if n <= 10 else "viridis"]
    places = np.arange(n) if n <= 10 else np.linspace(0, 1, n)
    colours: list[list[float]] = np.asarray(palette(places)).tolist()
    return [mpl.colors.to_hex((r, g, b)) for r, g, b, _ in colours]
