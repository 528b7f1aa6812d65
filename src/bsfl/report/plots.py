"""Figures as data: computed once, drawn by matplotlib for files and by plotly for pages.

A plot is a row or a grid of panels, a panel holds marks. A mark that has a label has the look of
that label in every panel of the plot; a grey one is a reference.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from bsfl.policies import POLICIES
from bsfl.types import FloatArray

Numbers = npt.NDArray[np.float64] | npt.NDArray[np.int64]

# Every colour stands out from white and from near-black (contrast at least 3), so that one figure
# serves files and pages, light and dark; the first two are ours
COLOURS = (
    *("#D55E00", "#0072B2", "#009E73", "#C25F93", "#B07A00", "#2E86D0", "#8E5BC8"),
    *("#9A6324", "#7F8420", "#0F8B8D", "#C2355B", "#5C6BD8", "#3D8F2E"),
)
GREY = "#808080"
# line styles and markers, by their names in matplotlib and in plotly
DASHES = (("-", "solid"), ("--", "dash"), ("-.", "dashdot"), (":", "dot"))
MARKERS = (
    *(("o", "circle"), ("s", "square"), ("D", "diamond"), ("^", "triangle-up")),
    *(("v", "triangle-down"), ("<", "triangle-left"), (">", "triangle-right")),
    *(("p", "pentagon"), ("h", "hexagon"), ("*", "star"), ("P", "cross")),
)
N_MARKERS = 8
"""Points of a curve that have a marker, which distinguishes a policy from others of its colour."""
BAND_SEEDS = 4
"""Seeds from which on curves have bands: fewer have no quartiles."""
OURS = ("pace", "bsfl")
"""The policies of this library, which are drawn in front."""
POLICY_LOOKS = {
    name: i for i, name in enumerate((*OURS, *(name for name in POLICIES if name not in OURS)))
}
"""The look of each policy, in every figure."""
MATPLOTLIB, PLOTLY = 0, 1


class Look(NamedTuple):
    """How a mark is drawn; dash and marker have a name in MATPLOTLIB and one in PLOTLY."""

    colour: str
    dash: tuple[str, str]
    marker: tuple[str, str]
    is_ours: bool = False

    @classmethod
    def of(cls, i: int, *, is_grey: bool = False, is_ours: bool = False) -> "Look":
        """Return the i-th look; those of our own policies are never repeated."""

        def place(n: int) -> int:
            return i if i < len(OURS) else len(OURS) + (i - len(OURS)) % (n - len(OURS))

        colour = GREY if is_grey else COLOURS[place(len(COLOURS))]
        dash = DASHES[0] if is_ours else DASHES[i % len(DASHES)]
        return cls(colour, dash, MARKERS[place(len(MARKERS))], is_ours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Points that are joined; NaN breaks the line. `band` holds its lower and upper ends."""

    label: str
    x: Numbers
    y: Numbers
    band: tuple[FloatArray, FloatArray] | None = None
    has_markers: bool = False
    is_grey: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Points that are not joined, with names; a star marks the point to look at.

    `half` is half the height of error bars, `value` gives every point its own colour, and `like`
    is the label whose look they have, where it is not their own.
    """

    label: str
    x: Numbers
    y: Numbers
    half: FloatArray | None = None
    value: FloatArray | None = None
    names: Sequence[str] = ()
    is_star: bool = False
    like: str = ""


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
    """Marks on common axes; `starts_at_0` says which axes ("x", "y", "xy") do.

    A range cuts an axis to where the difference is.
    """

    x: str = ""
    y: str = ""
    title: str = ""
    marks: Sequence[Mark]
    log: str = ""
    starts_at_0: str = ""
    has_axes: bool = True
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A figure: panels row by row.

    Attributes:
        name: Of its files.
        question: The question that it answers; the heading on the page.
        caption: How to read it.
        panels: Row by row in a file; on a page as many beside each other as there is room for.
        title: In a file.
        n_columns: In a file.
        has_file: Whether it is written as PNG and PDF.
        front: Labels that are drawn in front, with thicker lines.
        order: Labels in the order of the legend; the others follow.
    """

    name: str
    caption: str
    panels: Sequence[Panel]
    question: str = ""
    title: str = ""
    n_columns: int = 2
    has_file: bool = True
    front: Sequence[str] = OURS
    order: Sequence[str] = ()

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the grid of panels."""
        columns = min(self.n_columns, len(self.panels))
        return -(-len(self.panels) // columns), columns

    def look(self, mark: Mark) -> Look:
        """Return how a mark is drawn: a policy the same in every figure, others in their order."""
        is_grey, name = _is_grey(mark), _look_name(mark)
        if not is_grey and name in POLICY_LOOKS:
            return Look.of(POLICY_LOOKS[name], is_ours=name in self.front)
        alike = [m for panel in self.panels for m in panel.marks if _is_grey(m) == is_grey]
        labels = list(dict.fromkeys(filter(None, map(_look_name, alike))))
        taken = [] if is_grey else [POLICY_LOOKS[k] for k in labels if k in POLICY_LOOKS]
        free = (i for i in count() if i not in taken)
        others = [k for k in labels if is_grey or k not in POLICY_LOOKS]
        i = dict(zip(others, free, strict=False)).get(name, 0)
        return Look.of(i, is_grey=is_grey, is_ours=not is_grey and name in self.front)

    def legend(self, labels: Iterable[Mark]) -> list[Mark]:
        """Return marks in the order of a legend: those in front, the others, what is grey."""

        def place(mark: Mark) -> tuple[bool, int, bool]:
            order = list(self.order)
            at = order.index(mark.label) if mark.label in order else len(order)
            return _is_grey(mark), at, not self.look(mark).is_ours

        return sorted(labels, key=place)

    def in_order(self, panel: Panel) -> list[Mark]:
        """Return the marks of a panel from back to front: what is grey, the others, `front`."""

        def depth(mark: Mark) -> int:
            if _is_grey(mark):
                return 0
            is_star = isinstance(mark, Points) and mark.is_star
            return (
                4 if is_star else 1 + self.look(mark).is_ours * (1 + (mark.label in self.front[:1]))
            )

        return sorted(panel.marks, key=depth)


def _look_name(mark: Mark) -> str:
    return getattr(mark, "like", "") or mark.label


def _is_grey(mark: Mark) -> bool:
    return getattr(mark, "is_grey", False)


def curve(label: str, x: Numbers, runs: FloatArray) -> Line:
    """Return the median over seeds, [seed, x], with a band from quartile to quartile."""
    low, middle, high = np.percentile(runs, [25, 50, 75], axis=0)
    has_band = len(runs) >= BAND_SEEDS and np.isfinite(runs).all()
    return Line(label=label, x=x, y=middle, band=(low, high) if has_band else None)


def some(n: int, place: int) -> list[int]:
    """Return the few of n points that get a marker; each place in a panel has others.

    >>> some(16, 0), some(16, 2), some(1, 0), some(0, 0)
    ([0, 2, 4, 6, 8, 10, 12, 14], [1, 3, 5, 7, 9, 11, 13, 15], [0], [])
    """
    start = (place % 4 + 0.5) / 4
    return sorted({int((i + start) * n / N_MARKERS) for i in range(N_MARKERS)}) if n else []
