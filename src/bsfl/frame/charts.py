"""Small charts without a library: bars over time, parts of a whole, ranges."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bsfl.frame.page import Markup, text

FAR = 4.0
"""A bar that is so many times as high as nine of ten others is cut, so that those can be seen."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar: its height (None: there is none), what a pointer on it shows, and if it is marked."""

    height: float | None
    about: str
    is_marked: bool = False


def bars(values: Sequence[Bar], *, unit: str = "", ends: tuple[str, str] = ("", "")) -> Markup:
    """Return upright bars with a scale, and what the first and the last one are."""
    known = sorted(bar.height for bar in values if bar.height is not None)
    typical = known[int(0.9 * (len(known) - 1))] if known else 0.0
    highest = known[-1] if known else 0.0
    top = min(highest, FAR * typical) if typical > 0 else highest
    top = _round_up(top or 1.0)
    width = 100.0 / max(len(values), 1)
    drawn = []
    for i, bar in enumerate(values):
        if bar.height is None:
            continue
        height = 100.0 * min(bar.height, top) / top
        mark = ' class="marked"' if bar.is_marked else ""
        place = f'x="{(i + 0.1) * width:.3f}" y="{100 - height:.2f}"'
        size = f'width="{0.8 * width:.3f}" height="{height:.2f}"'
        drawn.append(f"<rect{mark} {place} {size}><title>{text(bar.about)}</title></rect>")
    ticks = "".join(f"<span>{text(f'{top * part:g}{unit}')}</span>" for part in (1.0, 0.5, 0.0))
    first, last = (f"<span>{text(end)}</span>" for end in ends)
    over = f"The highest is {highest:,.3g}{unit}, cut here." if highest > top else ""
    noted = f'<p class="note">{text(over)}</p>' if over else ""
    return Markup(
        f'<div class="chart"><div class="ticks">{ticks}</div>'
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img">{"".join(drawn)}</svg>'
        f'<div class="ends">{first}{last}</div></div>{noted}'
    )


def _round_up(value: float) -> float:
    """Return the next number of the kind 1, 2, 3, 4, 5, 6, 8 times a power of ten.

    >>> [_round_up(x) for x in (0.93, 1.0, 17.0, 61.0)]
    [1.0, 1.0, 20.0, 80.0]
    """
    power = 10.0 ** math.floor(math.log10(value))
    return next(n * power for n in (1, 2, 3, 4, 5, 6, 8, 10) if n * power >= value * (1 - 1e-9))


def part(share: float, shown: str) -> Markup:
    """Return a level bar that fills a share of its place, and a text beside it."""
    full = f"{100 * min(max(share, 0.0), 1.0):.1f}"
    return Markup(
        f'<span class="part"><span style="width:{full}%"></span></span> <span>{text(shown)}</span>'
    )


def spread(low: float, middle: float, high: float, *, least: float, most: float) -> Markup:
    """Return a range with its middle, on a logarithmic scale from least to most, all positive."""

    def at(value: float) -> float:
        wide = math.log(most / least)
        return 100.0 * min(max(math.log(value / least) / wide, 0.0), 1.0) if wide > 0 else 50.0

    a, b, c = at(low), at(middle), at(high)
    return Markup(
        f'<span class="spread"><span style="left:{a:.1f}%;width:{max(c - a, 0.5):.1f}%"></span>'
        f'<i style="left:{b:.1f}%"></i></span>'
    )


def facts(values: Sequence[tuple[str, str, str]]) -> Markup:
    """Return the numbers that a reader looks for first: name, value, and a word more."""
    cells = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}"
        f"{f'<small>{text(more)}</small>' if more else ''}</dd></div>"
        for name, value, more in values
    )
    return Markup(f'<dl class="facts">{cells}</dl>')
