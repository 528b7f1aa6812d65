"""Plots as files: PNG and PDF by matplotlib."""

import textwrap
import warnings
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bsfl.report.plots import (
    GREY,
    MATPLOTLIB,
    Bars,
    Heat,
    Line,
    Look,
    Mark,
    Panel,
    Plot,
    Points,
    Rule,
    some,
)

PANEL_INCHES = 5.5, 4.2
LEGEND_COLUMNS = 6
ICON_INCHES, LETTER_INCHES, LINE_INCHES = 0.65, 0.085, 0.22
"""Widths of a legend icon with its gaps and of a letter, and the height of a line."""
LOW_BAR = 0.15
"""A bar that is less high, of the highest, has its number above it and not inside."""
STYLE: Any = {
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
    "pdf.fonttype": 42,  # TrueType: many venues reject Type 3
    "ps.fonttype": 42,
    "savefig.dpi": 150,
    "svg.hashsalt": "bsfl",
    "text.usetex": False,
}


class Sheet(Figure):
    """A figure that a notebook shows by itself, and whose files hold TrueType fonts."""

    def savefig(self, *args: Any, **kwargs: Any) -> None:
        """Write the figure; see matplotlib.figure.Figure.savefig."""
        with mpl.rc_context(STYLE):
            super().savefig(*args, **kwargs)

    def _repr_png_(self) -> bytes:
        with BytesIO() as file:
            self.savefig(file, format="png")
            return file.getvalue()


def save(plot: Plot, folder: Path) -> None:
    """Write a plot as PNG and PDF."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a box stands for it
        figure = draw(plot)
        figure.savefig(folder / f"{plot.name}.png")
        figure.savefig(folder / f"{plot.name}.pdf", metadata={"CreationDate": None})


@mpl.rc_context(STYLE)
def draw_on(axes: Axes, plot: Plot) -> None:
    """Draw a plot with one panel on axes of the user's own."""
    [panel] = plot.panels
    _draw_panel(axes, panel, plot)
    handles = _handles([axes], plot)
    if len(handles) > 1:
        axes.legend(handles.values(), handles.keys(), fontsize="small")


@mpl.rc_context(STYLE)
def draw(plot: Plot, *, size: tuple[float, float] | None = None) -> Figure:
    """Return a plot as a figure with one legend; nothing global is changed.

    Args:
        plot: What to draw.
        size: Width and height in inches; None: by the number of panels.
    """
    rows, columns = plot.shape
    shrink = 1.0 if columns < 3 else 0.75
    width, height = (shrink * inches for inches in PANEL_INCHES)
    figure = Sheet(figsize=size or (width * columns, height * rows + 0.3))
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, panel in zip(grid, plot.panels, strict=False):
        _draw_panel(axes, panel, plot)
    for axes in grid[len(plot.panels) :]:
        axes.set_visible(False)
    handles = _handles(grid, plot)
    if len(handles) > 1:
        widest = ICON_INCHES + LETTER_INCHES * max(map(len, handles))
        n_fitting = max(1, int(figure.get_figwidth() / widest))
        n_columns = min(len(handles), LEGEND_COLUMNS, n_fitting)
        more_rows = -(-len(handles) // n_columns) - 1
        if size is None:
            figure.set_figheight(figure.get_figheight() + LINE_INCHES * more_rows)
        where: Any = {"loc": "outside lower center", "ncols": n_columns}
        figure.legend(handles.values(), handles.keys(), **where)
    if plot.title:
        n_letters = int(figure.get_figwidth() / LETTER_INCHES)
        figure.suptitle(textwrap.fill(plain(plot.title), n_letters), fontsize=11)
    return figure


def _handles(grid: Iterable[Axes], plot: Plot) -> dict[str, Any]:
    """Return what a legend shows, by label, in its order."""
    found = [axes.get_legend_handles_labels() for axes in grid]
    handles = {name: h for hs, names in found for h, name in zip(hs, names, strict=True)}
    marks = [mark for panel in plot.panels for mark in panel.marks]
    named = dict.fromkeys(plain(mark.label) for mark in plot.legend(marks))
    return {name: handles[name] for name in named if name in handles}


def plain(text: str) -> str:
    r"""Return a text that is drawn as it is: between two dollars matplotlib reads mathematics.

    >>> print(plain("$x"))
    \$x
    """
    return text.replace("$", r"\$")


def _draw_panel(axes: Axes, panel: Panel, plot: Plot) -> None:
    bars = [mark for mark in panel.marks if isinstance(mark, Bars)]
    for place, mark in enumerate(plot.in_order(panel)):
        _draw_mark(axes, mark, plot.look(mark), place)
    if bars:
        _draw_bars(axes, bars, plot)
    n_letters = int(axes.bbox.width / axes.figure.dpi / LETTER_INCHES)
    title = textwrap.fill(plain(panel.title), max(n_letters, 10))
    axes.set(xlabel=plain(panel.x), ylabel=plain(panel.y), title=title)
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        if name in panel.log:
            axes.set(**{f"{name}scale": "log"})
        elif not bars:
            axis.set_major_formatter(_thousands)
        if name in panel.starts_at_0:
            axes.set(**{f"{name}lim": (0, None)})
        if limits := getattr(panel, f"{name}_range"):
            axes.set(**{f"{name}lim": limits})
    if not panel.has_axes:
        axes.set_aspect("equal")
        axes.axis("off")


def _thousands(value: float, _: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def _draw_mark(axes: Axes, mark: Mark, look: Look, place: int) -> None:
    """Draw a mark that stands alone; see _draw_bars for the others."""
    front = 2.0 + 0.01 * place  # what comes later covers what came before
    marker: Any = look.marker[MATPLOTLIB]
    label = plain(mark.label)
    match mark:
        case Line():
            own: Any = {"color": look.colour, "ls": look.dash[MATPLOTLIB], "label": label}
            own |= {"lw": 1.0 if mark.is_grey else 2.4 if look.is_ours else 1.5, "zorder": front}
            own |= {"marker": marker, "ms": 4} if not mark.is_grey or mark.has_markers else {}
            own |= {} if mark.has_markers else {"markevery": some(len(mark.x), place)}
            axes.plot(mark.x, mark.y, **own)
            if mark.band is not None:
                low, high = mark.band
                faint: Any = {"alpha": 0.2 if look.is_ours else 0.1, "lw": 0, "zorder": front - 1}
                axes.fill_between(mark.x, low, high, color=look.colour, **faint)
        case Points():
            c: Any = look.colour if mark.value is None else mark.value
            marker, size = ("*", 200) if mark.is_star else (marker, 70 if look.is_ours else 45)
            dots = axes.scatter(mark.x, mark.y, c=c, s=size, marker=marker, zorder=front + 1)
            if mark.value is None:
                dots.set_label(label)
            elif axes.figure:
                axes.figure.colorbar(dots, ax=axes, label=label, shrink=0.8)
            if mark.half is not None:
                axes.errorbar(mark.x, mark.y, mark.half, fmt="none", ecolor=look.colour, lw=0.8)
        case Heat():
            axes.pcolormesh(np.arange(len(mark.names)), mark.y, mark.value)
        case Rule():
            line = axes.axvline if mark.is_upright else axes.axhline
            line(mark.at, color=look.colour, lw=1.2, ls="--", label=label or None)


def _draw_bars(axes: Axes, bars: list[Bars], plot: Plot) -> None:
    """Draw bars on top of each other, or beside each other with their heights written on them."""
    axes.grid(False)
    places = np.arange(len(bars[0].names))
    is_stacked = bars[0].is_stacked
    width = 1.0 if is_stacked else 0.8 / len(bars)
    top = np.zeros(len(places))
    low = LOW_BAR * max((float(np.nanmax(mark.height, initial=0.0)) for mark in bars), default=0.0)
    for i, mark in enumerate(bars):
        look: Any = {"color": plot.look(mark).colour, "label": plain(mark.label)}
        if is_stacked:
            axes.bar(places, mark.height, width, bottom=top, **look)
            top = top + mark.height
        else:
            at = places + width * (i - (len(bars) - 1) / 2)
            axes.bar(at, mark.height, width, yerr=mark.half, ecolor=GREY, **look)
            for x, height in zip(at.tolist(), mark.height.tolist(), strict=True):
                number = f" {height:,.0f}" if height >= 100 else f" {height:.3g}"
                text, ink = (" missed", GREY) if np.isnan(height) else (number, "white")
                y, ink = (height, GREY) if height < low else (0.0, ink)
                axes.text(x, y, text, color=ink, rotation=90, ha="center", va="bottom", fontsize=9)
    names = [] if is_stacked else [plain(name).replace("-", "-\n") for name in bars[0].names]
    axes.set_xticks(places[: len(names)], names)
    axes.set_xlim(-0.5, len(places) - 0.5)  # also where there is no bar
