"""What a figure shows, as data: computed once, drawn on paper and on a page.

A plot is a row or a grid of panels, a panel holds marks. A mark that has a label has the colour of
that label in every panel of the plot; a grey one is there for orientation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt

from bsfl.analysis.statistics import band
from bsfl.records import FloatArray

Numbers = npt.NDArray[np.float64] | npt.NDArray[np.int64]


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
    """Points that are not joined.

    Attributes:
        half: Half the height of error bars.
        value: What gives every point its own colour.
        names: What the points are called.
        is_star: Whether this is the one to look at.
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
    """One bar at each name; bars of one panel are stacked, or stand beside each other."""

    label: str
    names: Sequence[str]
    height: Numbers
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
    """A figure.

    Attributes:
        name: Of its file.
        caption: What it answers, for the page.
        panels: Row by row.
        title: For paper.
        n_columns: Panels in a row.
        on_paper: Whether it is written as a file of its own, too.
    """

    name: str
    caption: str
    panels: Sequence[Panel]
    title: str = ""
    n_columns: int = 2
    on_paper: bool = True
    _order: dict[str, int] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for mark in chain.from_iterable(panel.marks for panel in self.panels):
            if mark.label and not isinstance(mark, Rule) and not getattr(mark, "is_grey", False):
                self._order.setdefault(mark.label, len(self._order))

    def order(self, mark: Mark) -> int:
        """Return the number of a mark's label, by which colours are given."""
        return self._order.get(mark.label, 0)


def curve(label: str, x: Numbers, runs: FloatArray) -> Line:
    """Return the mean over seeds, [seed, x], with its 95 % band."""
    mean, half = band(runs)
    return Line(label=label, x=x, y=mean, half=half if np.isfinite(half).all() else None)
