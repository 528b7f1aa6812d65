"""What a figure shows, as data: computed once, drawn on paper and on a page.

A plot is a row or a grid of panels, a panel holds marks. A mark that has a label has the look of
that label in every panel of the plot; a grey one is there for orientation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from bsfl.analysis.statistics import band
from bsfl.records import FloatArray

Numbers = npt.NDArray[np.float64] | npt.NDArray[np.int64]

# Okabe and Ito's palette without yellow, which vanishes on white, and three of Tol's
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
    *("#882255", "#999933", "#44AA99"),
)
GREY = "#808080"
# ways to draw a line and shapes of points, by their names on paper and on the page
DASHES = (("-", "solid"), ("--", "dash"), ("-.", "dashdot"), (":", "dot"))
MARKERS = (
    *(("o", "circle"), ("s", "square"), ("D", "diamond"), ("^", "triangle-up")),
    *(("v", "triangle-down"), ("<", "triangle-left"), (">", "triangle-right"), ("P", "cross")),
    *(("p", "pentagon"), ("h", "hexagon"), ("X", "x"), ("d", "diamond-tall"), ("8", "octagon")),
    ("*", "star"),
)
PAPER, PAGE = 0, 1


class Look(NamedTuple):
    """How a mark is drawn; dash and marker have a name on PAPER and one on the PAGE."""

    colour: str
    dash: tuple[str, str]
    marker: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Points that are joined; NaN breaks the line. `half` is half the height of a band."""

    label: str
    x: Numbers
    y: Numbers
    half: FloatArray | None = None
    has_markers: bool = False
    is_grey: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Points that are not joined, with names; one that is a star is the one to look at.

    `half` is half the height of error bars, `value` gives every point its own colour.
    """

    label: str
    x: Numbers
    y: Numbers
    half: FloatArray | None = None
    value: FloatArray | None = None
    names: Sequence[str] = ()
    is_star: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """One bar at each name; bars of one panel are stacked, or stand beside each other.

    `half` is half the height of error bars; NaN: there is no bar.
    """

    label: str
    names: Sequence[str]
    height: Numbers
    half: FloatArray | None = None
    is_stacked: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """A number for every name (x) and place (y), as a colour."""

    names: Sequence[str]
    y: FloatArray
    value: FloatArray
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A line across the panel: upright at an x, or level at a y."""

    at: float
    label: str = ""
    is_upright: bool = False
    is_grey: ClassVar[bool] = True


Mark = Line | Points | Bars | Heat | Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Marks on common axes; `starts_at_0` says which axes ("x", "y", "xy") do."""

    x: str = ""
    y: str = ""
    title: str = ""
    marks: Sequence[Mark]
    log: str = ""
    starts_at_0: str = ""
    has_axes: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A figure: the name of its file, what it answers (for the page), and panels row by row.

    The title is for paper; a plot that is not `on_paper` is on the page alone.
    """

    name: str
    caption: str
    panels: Sequence[Panel]
    title: str = ""
    n_columns: int = 2
    on_paper: bool = True

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the grid of panels."""
        columns = min(self.n_columns, len(self.panels))
        return -(-len(self.panels) // columns), columns

    def look(self, mark: Mark) -> Look:
        """Return how a mark is drawn: the i-th label has the i-th colour, dash and marker."""

        def is_grey(one: Mark) -> bool:
            return getattr(one, "is_grey", False)

        alike = [m for panel in self.panels for m in panel.marks if is_grey(m) == is_grey(mark)]
        labels = list(dict.fromkeys(m.label for m in alike if m.label))
        i = labels.index(mark.label) if mark.label else 0
        colour = GREY if is_grey(mark) else COLOURS[i % len(COLOURS)]
        return Look(colour, DASHES[i % len(DASHES)], MARKERS[i % len(MARKERS)])


def curve(label: str, x: Numbers, runs: FloatArray) -> Line:
    """Return the mean over seeds, [seed, x], with its 95 % band."""
    mean, half = band(runs)
    return Line(label=label, x=x, y=mean, half=half if np.isfinite(half).all() else None)
