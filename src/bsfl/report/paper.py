"""Plots on paper: PNG and PDF by matplotlib."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bsfl.report.plots import Bars, Heat, Line, Mark, Panel, Plot, Points, Rule
from bsfl.report.style import GREY, PAPER, colour, dash, marker

PANEL_INCHES = 5.5, 4.2
LEGEND_COLUMNS = 6


def draw(plot: Plot) -> Figure:
    """Return a plot as a figure with one legend."""
    columns = min(plot.n_columns, len(plot.panels))
    rows = -(-len(plot.panels) // columns)
    with house_style():
        shrink = 1.0 if columns < 3 else 0.75
        size = (PANEL_INCHES[0] * columns * shrink, PANEL_INCHES[1] * rows * shrink + 0.3)
        figure = Figure(figsize=size)
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, panel in zip(grid, plot.panels, strict=False):
            _draw_panel(axes, panel, plot)
        for axes in grid[len(plot.panels) :]:
            axes.set_visible(False)
        found = [axes.get_legend_handles_labels() for axes in grid]
        handles = {name: h for hs, names in found for h, name in zip(hs, names, strict=True)}
        if len(handles) > 1:
            figure.legend(
                handles.values(),
                handles.keys(),
                loc="outside lower center",
                ncols=min(len(handles), LEGEND_COLUMNS),
            )
        if plot.title:
            figure.suptitle(plot.title, fontsize=11)
    return figure


def save(plot: Plot, folder: Path) -> None:
    """Write a plot as PNG and PDF."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = draw(plot)
    with house_style():
        figure.savefig(folder / f"{plot.name}.png")
        figure.savefig(folder / f"{plot.name}.pdf", metadata={"CreationDate": None})


def _draw_panel(axes: Axes, panel: Panel, plot: Plot) -> None:
    bars = [mark for mark in panel.marks if isinstance(mark, Bars)]
    for mark in panel.marks:
        if not isinstance(mark, Bars):
            _draw_mark(axes, mark, plot.order(mark))
    if bars:
        _draw_bars(axes, bars, plot)
    axes.set(xlabel=panel.x, ylabel=panel.y, title=panel.title)
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        if name in panel.log:
            axes.set(**{f"{name}scale": "log"})
        elif not bars:
            axis.set_major_formatter(_thousands)
        if name in panel.starts_at_0:
            axes.set(**{f"{name}lim": (0, None)})
    if not panel.has_axes:
        axes.set_aspect("equal")
        axes.axis("off")


def _thousands(value: float, _: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def _draw_mark(axes: Axes, mark: Mark, i: int) -> None:
    match mark:
        case Line():
            look: Any = {"color": GREY, "lw": 1.0} if mark.is_grey else {"color": colour(i)}
            style: Any = dash(i, PAPER)
            shape = marker(i, PAPER) if mark.has_markers else None
            axes.plot(mark.x, mark.y, ls=style, marker=shape, ms=4, label=mark.label, **look)
            if mark.half is not None:
                low, high = mark.y - mark.half, mark.y + mark.half
                axes.fill_between(mark.x, low, high, color=colour(i), alpha=0.2, lw=0)
        case Points():
            c: Any = colour(i) if mark.value is None else mark.value
            shape, size = ("*", 200) if mark.is_star else (marker(i, PAPER), 45)
            dots = axes.scatter(mark.x, mark.y, c=c, s=size, marker=shape, zorder=3)
            if mark.value is None:
                dots.set_label(mark.label)
            elif axes.figure:
                axes.figure.colorbar(dots, ax=axes, label=mark.label, shrink=0.8)
            if mark.half is not None:
                axes.errorbar(mark.x, mark.y, mark.half, fmt="none", ecolor=colour(i), lw=0.8)
        case Heat():
            axes.pcolormesh(np.arange(len(mark.names)), mark.y, mark.value)
        case Rule():
            line = axes.axvline if mark.is_upright else axes.axhline
            line(mark.at, color=GREY, lw=1.2, label=mark.label or None)


def _draw_bars(axes: Axes, bars: list[Bars], plot: Plot) -> None:
    """Draw bars on top of each other, or beside each other with their heights written on them."""
    axes.grid(False)
    places = np.arange(len(bars[0].names))
    if bars[0].is_stacked:
        tops = np.cumsum([mark.height for mark in bars], axis=0)
        for mark, top in zip(bars, tops, strict=True):
            look: Any = {"color": colour(plot.order(mark)), "label": mark.label, "width": 1.0}
            axes.bar(places, mark.height, bottom=top - mark.height, **look)
        axes.set_xticks([])
        return
    width = 0.8 / len(bars)
    for i, mark in enumerate(bars):
        at = places + width * (i - (len(bars) - 1) / 2)
        drawn = axes.bar(at, mark.height, width, color=colour(plot.order(mark)), label=mark.label)
        axes.bar_label(drawn, fmt="%.0f", fontsize=9)
    axes.set_xticks(places, [name.replace("-", "-\n") for name in bars[0].names])


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in this style inside the block; nothing global is changed."""
    with mpl.rc_context(
        {
            "axes.grid": True,
            "axes.spines.right": False,
            "axes.spines.top": False,
            "axes.titlesize": 11,
            "figure.constrained_layout.use": True,
            "figure.dpi": 110,
            "font.size": 10,
            "grid.alpha": 0.25,
            "legend.frameon": False,
            "lines.linewidth": 1.8,
            "savefig.dpi": 150,
            "svg.hashsalt": "bsfl",
        }
    ):
        yield
