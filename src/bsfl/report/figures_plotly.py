"""Plots on a page: every panel is a figure of plotly.js, with one legend for all panels of a plot.

Panels stand beside each other where there is room, else below each other; colours of text, axes
and grid are those of the page (style.css), light and dark.
"""

import math
from typing import Any

import numpy as np

from bsfl.extras import optional_imports
from bsfl.html import Markup, render
from bsfl.report.legend_icon import Icon, legend_icon
from bsfl.report.plots import (
    PLOTLY,
    Bars,
    Heat,
    Line,
    Look,
    Mark,
    Numbers,
    Panel,
    Plot,
    Points,
    Rule,
    some,
)

with optional_imports():
    from markupsafe import escape
    from plotly.offline import get_plotlyjs

FEW_NAMES = 10
"""So many names of bars can be read below them."""
MANY_PANELS = 4
"""From so many on, panels are small."""
DIGITS = 6
CONFIG = {"displayModeBar": False, "responsive": True, "showTips": False}


def library() -> str:
    """Return the source of plotly.js."""
    return str(get_plotlyjs())


def figure(plot: Plot) -> Markup:
    """Return a plot as HTML: places for its panels, their data, the legend and the caption."""
    return render(
        "figure.html",
        plot=plot,
        panels=[draw(plot, panel) | {"config": CONFIG} for panel in plot.panels],
        is_many=len(plot.panels) >= MANY_PANELS,
        legend=_legend(plot),
    )


def _legend(plot: Plot) -> list[tuple[str, Icon]]:
    """Return the labels with their icons: a button shows and hides its marks in all panels."""
    named: dict[str, Mark] = {}
    for mark in (mark for panel in plot.panels for mark in panel.marks):
        coloured = isinstance(mark, Points) and mark.value is not None
        if mark.label and not isinstance(mark, Heat | Rule) and not coloured:
            named.setdefault(mark.label, mark)
    marks = plot.legend(named.values()) if len(named) > 1 else []
    return [(mark.label, legend_icon(mark, plot.look(mark))) for mark in marks]


def draw(plot: Plot, panel: Panel) -> dict[str, Any]:
    """Return a panel as plotly.js takes it: data and layout."""
    bars = [m for m in panel.marks if isinstance(m, Bars)]
    is_stacked = any(m.is_stacked for m in bars)
    names = [len(m.names) for m in panel.marks if isinstance(m, Bars | Heat)]
    layout: dict[str, Any] = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        "barmode": "stack" if is_stacked else "group",
        "bargap": 0 if is_stacked else 0.2,
        "margin": {"l": 8, "r": 12, "t": 12, "b": 8},
        "font": {"size": 12},
        "hoverlabel": {"bgcolor": "#24292f", "font": {"color": "#fff"}, "namelength": -1},
        "dragmode": False,
    }
    for name, words, limits in (("x", panel.x, panel.x_range), ("y", "", panel.y_range)):
        axis: dict[str, Any] = {
            "automargin": True,
            "fixedrange": True,
            "showline": True,
            "zeroline": False,
            "ticks": "outside",
            "ticklen": 4,
            "separatethousands": True,
            "exponentformat": "none",
            "visible": panel.has_axes,
            "title": {"text": escape(words), "standoff": 8},
        }
        is_log = name in panel.log
        if is_log:
            axis |= {"type": "log", "dtick": 1}
        if name in panel.starts_at_0:
            axis["rangemode"] = "tozero"
        if limits:
            axis["range"] = [math.log10(x) for x in limits] if is_log else list(limits)
        if name == "x" and names:
            axis |= {"type": "category", "showticklabels": max(names) <= FEW_NAMES, "ticks": ""}
        layout[f"{name}axis"] = axis
    if not panel.has_axes:
        layout["yaxis"] |= {"scaleanchor": "x"}
    rules = [m for m in panel.marks if isinstance(m, Rule)]
    layout["shapes"] = [_rule(m, plot.look(m)) for m in rules]
    layout["annotations"] = [_rule_label(m, panel) for m in rules if m.label]
    marks = plot.in_order(panel)
    traces = [one for i, mark in enumerate(marks) for one in _traces(mark, plot.look(mark), i)]
    return {"data": traces, "layout": layout}


def _rule(mark: Rule, look: Look) -> dict[str, Any]:
    along, across = ("x", "y") if mark.is_upright else ("y", "x")
    return {
        "type": "line",
        f"{along}0": mark.at,
        f"{along}1": mark.at,
        f"{along}ref": along,
        f"{across}0": 0,
        f"{across}1": 1,
        f"{across}ref": "paper",
        "line": {"color": look.colour, "width": 1.5, "dash": "dash"},
    }


def _rule_label(mark: Rule, panel: Panel) -> dict[str, Any]:
    along = "x" if mark.is_upright else "y"
    at = math.log10(mark.at) if along in panel.log else mark.at
    own: dict[str, Any] = {"text": escape(mark.label), "showarrow": False, "font": {"size": 11}}
    if mark.is_upright:
        return own | {"x": at, "y": 1, "yref": "paper", "xanchor": "left", "yanchor": "top"}
    return own | {"y": at, "x": 0, "xref": "paper", "xanchor": "left", "yanchor": "bottom"}


def _numbers(values: Numbers) -> list[float | None]:
    """Return numbers with as many digits as can be seen; what is not finite is a gap."""
    return [float(f"{x:.{DIGITS}g}") if math.isfinite(x) else None for x in values.tolist()]


def _traces(mark: Mark, look: Look, place: int) -> list[dict[str, Any]]:
    """Return what draws a mark; `place` is its own among the marks of the panel."""
    name = escape(mark.label)
    common: dict[str, Any] = {"type": "scatter", "name": name, "legendgroup": mark.label}
    width = 3.0 if look.is_ours else 1.8
    own: dict[str, Any]
    marker: dict[str, Any] = {"color": look.colour, "symbol": look.marker[PLOTLY]}
    match mark:
        case Line():
            x, y = _numbers(mark.x), _numbers(mark.y)
            line = {"color": look.colour, "width": width, "dash": look.dash[PLOTLY]}
            own = {"x": x, "y": y, "line": line, "mode": "lines"}
            if mark.has_markers:
                own |= {"mode": "lines+markers", "marker": marker | {"size": 8}}
            drawn = [common | own]
            if not (mark.has_markers or mark.is_grey):
                at = some(len(x), place)
                few = {"x": [x[i] for i in at], "y": [y[i] for i in at], "mode": "markers"}
                drawn += [common | few | {"marker": marker | {"size": 8}, "hoverinfo": "skip"}]
            if mark.band is not None:
                drawn.insert(0, common | _band(mark, look))
            return drawn
        case Points():
            size = 20 if mark.is_star else 12 if look.is_ours else 9
            own = {"x": _numbers(mark.x), "y": _numbers(mark.y), "mode": "markers"}
            own["text"] = [escape(word) for word in mark.names] or None
            own["marker"] = marker | {"size": size if mark.half is None else size // 2 + 1}
            if mark.is_star:
                own["marker"] |= {"symbol": "star", "line": {"color": "#fff", "width": 1}}
            if mark.value is not None:
                bar = {"title": {"text": name}, "thickness": 12, "outlinewidth": 0}
                own["marker"] |= {"color": _numbers(mark.value), "colorbar": bar}
                own["marker"] |= {"colorscale": "Viridis", "showscale": True}
            if mark.half is not None:
                half = _numbers(np.nan_to_num(mark.half))
                own["error_y"] = {"type": "data", "array": half, "thickness": 1, "width": 0}
            return [common | own]
        case Bars():
            own = {"type": "bar", "x": list(map(escape, mark.names)), "y": _numbers(mark.height)}
            own["marker"] = {"color": look.colour}
            if not mark.is_stacked:
                own |= {"texttemplate": "%{y:.3s}", "textposition": "auto", "textangle": 0}
            if mark.half is not None:
                own["error_y"] = {"type": "data", "array": _numbers(mark.half)}
            return [common | own]
        case Heat():
            own = {"x": list(map(escape, mark.names)), "y": _numbers(mark.y)}
            own["z"] = [_numbers(row) for row in mark.value]
            scale = {"colorscale": "Viridis", "zmin": 0, "zmax": 3, "showscale": False}
            own["hovertemplate"] = f"%{{x}}, %{{y}}: {name} %{{z:.2f}}<extra></extra>"
            return [{"type": "heatmap", **own, **scale}]
        case Rule():
            return []


def _band(mark: Line, look: Look) -> dict[str, Any]:
    assert mark.band is not None
    x, (low, high) = mark.x, mark.band
    return {
        "x": _numbers(np.concatenate([x, x[::-1]])),
        "y": _numbers(np.concatenate([high, low[::-1]])),
        "mode": "lines",
        "fill": "toself",
        "fillcolor": look.colour,
        "opacity": 0.22 if look.is_ours else 0.12,
        "line": {"width": 0},
        "hoverinfo": "skip",
    }
