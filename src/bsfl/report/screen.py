"""Plots on a page: interactive, by plotly."""

from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from bsfl.report.plots import PAGE, Bars, Heat, Line, Look, Mark, Plot, Points, Rule

PANEL_PIXELS = 420
FEW_NAMES = 10
"""So many names of bars can be read below them."""
HTML: dict[str, Any] = {"full_html": False, "include_plotlyjs": False}
HTML["config"] = {"displayModeBar": False, "responsive": True}
"""How a figure is written as a piece of a page that has plotly."""


def draw(plot: Plot) -> go.Figure:
    """Return a plot as a figure; a label in the legend shows and hides its marks everywhere."""
    rows, columns = plot.shape
    titles = [escape(panel.title) for panel in plot.panels]
    figure = make_subplots(rows, columns, subplot_titles=titles)
    named = {""}
    for i, panel in enumerate(plot.panels):
        at = {"row": 1 + i // columns, "col": 1 + i % columns}
        for mark in panel.marks:
            for trace in _traces(mark, plot.look(mark)):
                if not isinstance(mark, Heat):
                    trace["showlegend"] = mark.label not in named
                    named.add(mark.label)
                figure.add_trace(trace, **at)
            if isinstance(mark, Rule):
                rule = figure.add_vline if mark.is_upright else figure.add_hline
                look = {"line": {"color": plot.look(mark).colour, "width": 1.5}, "opacity": 1.0}
                text = {"annotation_text": escape(mark.label), "annotation_position": "top left"}
                rule(mark.at, **look, **text, **at)
        axes = ("x", panel.x, figure.update_xaxes), ("y", panel.y, figure.update_yaxes)
        for name, words, update in axes:
            update(
                title=escape(words),
                type="log" if name in panel.log else None,
                rangemode="tozero" if name in panel.starts_at_0 else None,
                visible=panel.has_axes,
                **at,
            )
        if names := [len(m.names) for m in panel.marks if isinstance(m, Bars | Heat)]:
            figure.update_xaxes(showticklabels=max(names) <= FEW_NAMES, type="category", **at)
    is_stacked = any(getattr(m, "is_stacked", False) for p in plot.panels for m in p.marks)
    figure.update_layout(
        template="simple_white",
        barmode="stack" if is_stacked else "group",
        bargap=0 if is_stacked else 0.2,
        height=PANEL_PIXELS * rows,
        legend={"orientation": "h", "y": -0.25 / rows, "yanchor": "top"},
        margin={"l": 60, "r": 20, "t": 40 if any(titles) else 20, "b": 55},
    )
    return figure


def _traces(mark: Mark, look: Look) -> list[Any]:
    name = escape(mark.label)
    common = {"name": name, "legendgroup": name}
    own: dict[str, Any]
    match mark:
        case Line():
            own = {"color": look.colour, "dash": look.dash[PAGE]}
            mode = "lines+markers" if mark.has_markers else "lines"
            line = go.Scatter(x=mark.x, y=mark.y, mode=mode, line=own, **common)
            if mark.half is None:
                return [line]
            x = np.concatenate([mark.x, mark.x[::-1]])
            y = np.concatenate([mark.y + mark.half, (mark.y - mark.half)[::-1]])
            own = {"fill": "toself", "fillcolor": look.colour, "opacity": 0.2, "line_width": 0}
            return [line, go.Scatter(x=x, y=y, hoverinfo="skip", **own, **common)]
        case Points():
            own = {"x": mark.x, "y": mark.y, "text": [escape(word) for word in mark.names] or None}
            own["marker"] = {
                "color": look.colour if mark.value is None else mark.value,
                "size": 8 if mark.half is None else 5,
                "symbol": "star" if mark.is_star else look.marker[PAGE],
            }
            if mark.half is not None:
                own["error_y"] = {"array": np.nan_to_num(mark.half), "thickness": 1, "width": 0}
            return [go.Scatter(mode="markers", **own, **common)]
        case Bars():
            error = None if mark.half is None else {"array": mark.half}
            own = {"x": list(mark.names), "y": mark.height, "marker_color": look.colour}
            return [go.Bar(**own, error_y=error, **common)]
        case Heat():
            own = {"colorscale": "Viridis", "zmin": 0, "zmax": 3, "colorbar": {"title": name}}
            return [go.Heatmap(x=list(mark.names), y=mark.y, z=mark.value, **own)]
        case Rule():
            return []
