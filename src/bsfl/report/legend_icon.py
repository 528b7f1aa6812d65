"""Legend icons: the line and marker of a name in a legend, as SVG."""

from math import cos, pi, sin

from bsfl.frame import Markup
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


def legend_icon(mark: Mark, look: Look) -> Markup:
    """Return the icon of a mark."""
    colour = look.colour
    if isinstance(mark, Bars):
        return _svg(f'<rect x="9" y="2" width="12" height="12" fill="{colour}"/>')
    if isinstance(mark, Points) and mark.is_star:
        return _svg(_shape("star", colour, 7))
    parts = ""
    if isinstance(mark, Line):
        width = 3 if look.is_ours else 1.8
        parts = (
            f'<path d="M0 8H32" stroke="{colour}" stroke-width="{width}" '
            f'stroke-dasharray="{DASHES[look.dash[PLOTLY]]}"/>'
        )
    is_plain = isinstance(mark, Line) and mark.is_grey and not mark.has_markers
    return _svg(parts if is_plain else parts + _shape(look.marker[PLOTLY], colour, 5))


def _svg(parts: str) -> Markup:
    return Markup(f'<svg viewBox="0 0 32 16" aria-hidden="true">{parts}</svg>')


def _shape(name: str, colour: str, radius: float) -> str:
    """Return a marker in the middle; a shape that is not known here is a circle."""
    if name not in SHAPES:
        return f'<circle cx="16" cy="8" r="{radius - 1}" fill="{colour}"/>'
    n, first, inner = SHAPES[name]
    steps = range(n) if inner == 1.0 else range(2 * n)
    corners = []
    for i in steps:
        angle = first * pi / 2 + 2 * pi * i / len(steps)
        r = radius * (inner if inner != 1.0 and i % 2 else 1.0)
        corners.append(f"{16 + r * cos(angle):.1f},{8 + r * sin(angle):.1f}")
    return f'<polygon points="{" ".join(corners)}" fill="{colour}"/>'
