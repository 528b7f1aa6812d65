"""Plots on a page: interactive, by plotly."""

from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from bsfl.report.plots import Bars, Heat, Line, Mark, Plot, Points, Rule
from bsfl.report.style import GREY, PAGE, colour, dash, marker

PANEL_PIXELS = 420
CONFIG = {"displayModeBar": False, "responsive": True}


def html(plot: Plot) -> str:
    """Return a plot as a piece of a page that has plotly."""
    drawn: str = draw(plot).to_html(full_html=False, include_plotlyjs=False, config=CONFIG)
    return drawn


def draw(plot: Plot) -> go.Figure:
    """Return a plot as a figure; a label in the legend shows and hides its marks everywhere."""
    columns = min(plot.n_columns, len(plot.panels))
    rows = -(-len(plot.panels) // columns)
    titles = [escape(panel.title) for panel in plot.panels]
    figure = make_subplots(rows, columns, subplot_titles=titles)
    named: set[str] = set()
    for i, panel in enumerate(plot.panels):
        at = {"row": 1 + i // columns, "col": 1 + i % columns}
        for mark in panel.marks:
            for trace in _traces(mark, plot.order(mark)):
                if not isinstance(mark, Heat):
                    trace["showlegend"] = bool(mark.label) and mark.label not in named
                    named.add(mark.label)
                figure.add_trace(trace, **at)
            if isinstance(mark, Rule):
                rule = figure.add_vline if mark.is_upright else figure.add_hline
                rule(mark.at, line={"color": GREY}, annotation_text=escape(mark.label), **at)
        is_category = any(isinstance(mark, Bars | Heat) for mark in panel.marks)
        for name, words, update in (
            ("x", panel.x, figure.update_xaxes),
            ("y", panel.y, figure.update_yaxes),
        ):
            update(
                title=escape(words),
                type="log" if name in panel.log else None,
                rangemode="tozero" if name in panel.starts_at_0 else None,
                visible=panel.has_axes,
                **at,
            )
        if is_category:
            few = max(len(m.names) for m in panel.marks if isinstance(m, Bars | Heat)) <= 10
            figure.update_xaxes(showticklabels=few, type="category", **at)
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


def _traces(mark: Mark, i: int) -> list[Any]:
    name = escape(mark.label)
    common = {"name": name, "legendgroup": name}
    look: dict[str, Any]
    match mark:
        case Line():
            look = {"color": GREY if mark.is_grey else colour(i), "dash": dash(i, PAGE)}
            mode = "lines+markers" if mark.has_markers else "lines"
            line = go.Scatter(x=mark.x, y=mark.y, mode=mode, line=look, **common)
            if mark.half is None:
                return [line]
            x = np.concatenate([mark.x, mark.x[::-1]])
            y = np.concatenate([mark.y + mark.half, (mark.y - mark.half)[::-1]])
            look = {"fill": "toself", "fillcolor": colour(i), "opacity": 0.2, "line": {"width": 0}}
            return [line, go.Scatter(x=x, y=y, hoverinfo="skip", **look, **common)]
        case Points():
            look = {"color": colour(i) if mark.value is None else mark.value, "size": 8}
            look |= {"symbol": "star" if mark.is_star else marker(i, PAGE)}
            spread = None
            if mark.half is not None:
                look["size"] = 5
                spread = {"array": np.nan_to_num(mark.half), "thickness": 1, "width": 0}
            text = [escape(word) for word in mark.names] or None
            dots = {"x": mark.x, "y": mark.y, "error_y": spread, "text": text, "marker": look}
            return [go.Scatter(mode="markers", **dots, **common)]
        case Bars():
            return [go.Bar(x=list(mark.names), y=mark.height, marker_color=colour(i), **common)]
        case Heat():
            look = {"colorscale": "Viridis", "zmin": 0, "zmax": 3, "colorbar": {"title": name}}
            return [go.Heatmap(x=list(mark.names), y=mark.y, z=mark.value, **look)]
        case Rule():
            return []
