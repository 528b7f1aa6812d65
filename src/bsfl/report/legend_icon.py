"""Legend icons: the line and marker of a name in a legend, drawn as SVG by figure.html."""

from math import cos, pi, sin
from typing import NamedTuple

from bsfl.report.plots import PLOTLY, Bars, Line, Look, Mark, Points

DASHES = {"solid": "", "dash": "6 3", "dashdot": "6 2 1 2", "dot": "1.5 2.5"}
# corners, angle of the first in quarter turns from the right, radius of inner corners
SHAPES = {
    "square": (4, 0.5, 1.0),
    "diamond": (4, 0.0, 1.0),
    "triangle-up": (3, -1.0, 1.0),
    "triangle-down": (3, 1.0, 1.0),
    "triangle-left": (3, 2.0, 1.0),
    "triangle-right": (3, 0.0, 1.0),
    "pentagon": (5, -1.0, 1.0),
    "hexagon": (6, -1.0, 1.0),
    "star": (5, -1.0, 0.4),
    "cross": (4, 0.0, 0.4),
}


class Icon(NamedTuple):
    """A line, and a marker: a polygon, or a circle where it has no corners; empty: none."""

    colour: str
    line_width: float = 0.0
    dash: str = ""
    corners: str = ""
    radius: float = 0.0


def legend_icon(mark: Mark, look: Look) -> Icon:
    """Return the icon of a mark."""
    if isinstance(mark, Bars):
        return Icon(look.colour, corners="9,2 21,2 21,14 9,14")
    if isinstance(mark, Points) and mark.is_star:
        return Icon(look.colour, corners=_corners("star", 7))
    icon = Icon(look.colour)
    if isinstance(mark, Line):
        width, dash = 3.0 if look.is_ours else 1.8, DASHES[look.dash[PLOTLY]]
        icon = icon._replace(line_width=width, dash=dash)
        if mark.is_grey and not mark.has_markers:
            return icon
    shape = look.marker[PLOTLY]
    return icon._replace(corners=_corners(shape, 5)) if shape in SHAPES else icon._replace(radius=4)


def _corners(name: str, radius: float) -> str:
    """Return the corners of a marker in the middle of a legend icon."""
    n, first, inner = SHAPES[name]
    steps = range(n) if inner == 1.0 else range(2 * n)
    corners = []
    for i in steps:
        angle = first * pi / 2 + 2 * pi * i / len(steps)
        r = radius * (inner if inner != 1.0 and i % 2 else 1.0)
        corners.append(f"{16 + r * cos(angle):.1f},{8 + r * sin(angle):.1f}")
    return " ".join(corners)
