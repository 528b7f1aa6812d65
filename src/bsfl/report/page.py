"""report.html: one page that holds everything and opens offline."""

import json
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from bsfl.analysis.statistics import THREE_DIGITS, band, seeds_in_words, shown
from bsfl.analysis.summary import find_target, length, selections
from bsfl.fairness import lorenz
from bsfl.files import replace_file
from bsfl.records import FloatArray, IntArray
from bsfl.report.data_figure import data_bars
from bsfl.report.learned import learned_speeds
from bsfl.report.scenario_figures import learning_curves, shown_rounds
from bsfl.report.style import COLOURS
from bsfl.runs.results import Results, read_manifest

N_BLOCKS = 40
"""Rows of a participation heat map: blocks of rounds."""
MAX_CLIENTS = 200
"""Columns of a heat map and points of a scatter; larger fleets show every n-th client."""

PAGE_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a;
       margin: 2rem auto; max-width: 88rem; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 }
th, td { padding: .3rem .6rem; text-align: right; white-space: nowrap;
         border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left }
.wide { overflow-x: auto }
pre { background: #f5f5f5; padding: 1rem; overflow: auto; font-size: 13px }
figure { margin: 1.5rem 0 } figcaption { color: #555 }
"""

Figure = tuple[str, go.Figure]


def write_page(results: Results, summary: dict[str, Any]) -> Path:
    """Write report.html beside the results and return its path."""
    parts = [
        f"<h1>{escape(summary['title'])}</h1>",
        f"<p>{_headline(summary)}</p>",
        _table(summary),
        *(_figure(caption, figure) for caption, figure in _figures(results)),
        "<h2>Scenario and versions</h2>",
        f"<pre>{escape(json.dumps(read_manifest(results.folder), indent=2))}</pre>",
    ]
    page = (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f"<title>{escape(summary['title'])}</title><style>{PAGE_STYLE}</style>"
        f"<script>{get_plotlyjs()}</script></head><body>{''.join(parts)}</body></html>\n"
    )
    path = results.folder / "report.html"
    replace_file(path, page.encode())
    return path


def _figures(results: Results) -> list[Figure]:
    figures = [*_learning(results), data_bars(results)] if results.scenario.learning else []
    figures += [
        (
            "Virtual time against rounds. Bands are 95 % intervals over seeds.",
            _curves(results, "clock_s", "virtual time (s)"),
        )
    ]
    if results.scenario.objective:
        figures.append(
            (
                "Cumulative regret against the genie. Bands are 95 % intervals over seeds.",
                _curves(results, "regret", "cumulative regret", cumulative=True),
            )
        )
    figures.append(("Lorenz curve: how evenly the selections are spread.", _lorenz(results)))
    figures += [
        (
            f"Who took part when under {label} (seed 0): selections of a client within a block of "
            "rounds, in multiples of an equal share; clients from slow to fast.",
            _heat_map(results, label),
        )
        for label in results.scenario.policies
    ]
    figures.append(
        (
            "Speeds as observed, with 95 % intervals, against the truth (seed 0). Click a policy "
            "in the legend to hide it.",
            _learned(results),
        )
    )
    return figures


def _curves(results: Results, column: str, title: str, *, cumulative: bool = False) -> go.Figure:
    figure = _empty("round", title)
    for i, label in enumerate(results.scenario.policies):
        values = (results.cumulative if cumulative else results.column)(label, column)
        rounds = shown_rounds(values.shape[1])
        mean, half = band(values[:, rounds - 1])
        _line_with_band(figure, rounds, mean, half, label, i)
    return figure


def _line_with_band(
    figure: go.Figure,
    x: IntArray | FloatArray,
    mean: FloatArray,
    half: FloatArray,
    label: str,
    i: int,
) -> None:
    colour = COLOURS[i % len(COLOURS)]
    name = escape(label)
    if np.isfinite(half).all():
        figure.add_scatter(
            x=np.concatenate([x, x[::-1]]),
            y=np.concatenate([mean + half, (mean - half)[::-1]]),
            fill="toself",
            fillcolor=colour,
            opacity=0.2,
            line={"width": 0},
            hoverinfo="skip",
            legendgroup=name,
            showlegend=False,
        )
    figure.add_scatter(x=x, y=mean, name=name, legendgroup=name, line={"color": colour})


def _learning(results: Results) -> list[Figure]:
    figures = []
    for column, title in (("test_accuracy", "test accuracy"), ("test_loss", "test loss")):
        if column == "test_accuracy" and find_target(results).column != column:
            continue
        figure = _empty("virtual time (s)", title)
        for i, label in enumerate(results.scenario.policies):
            times, curves = learning_curves(results, label, column)
            _line_with_band(figure, times, *band(curves), label, i)
        figures.append((f"{title.capitalize()} against virtual time, 95 % bands.", figure))
    return figures


def _lorenz(results: Results) -> go.Figure:
    figure = _empty("clients, least chosen first (%)", "share of all selections (%)")
    figure.add_scatter(x=[0, 100], y=[0, 100], name="all equal", line={"color": "#999"})
    for i, label in enumerate(results.scenario.policies):
        share = 100 * lorenz(selections(results, label).mean(axis=0))
        x = np.linspace(0, 100, len(share))
        figure.add_scatter(
            x=x, y=share, name=escape(label), line={"color": COLOURS[i % len(COLOURS)]}
        )
    return figure


def _heat_map(results: Results, label: str) -> go.Figure:
    cohorts = results.run_file(label, 0).read()["cohort"]
    n_clients, rounds = results.scenario.fleet.n_clients, len(cohorts)
    edges = np.unique(np.linspace(0, rounds, min(N_BLOCKS, rounds) + 1).astype(int))
    counts = np.array(
        [
            np.bincount(block[block >= 0].ravel(), minlength=n_clients) / len(block)
            for block in np.split(cohorts, edges[1:-1])
        ]
    )
    order = _shown_clients(results.scenario.world(0).mean_speed(1))
    share = counts[:, order] * n_clients / results.scenario.cohort_size
    figure = _empty("clients, slow to fast", "round")
    figure.add_heatmap(
        z=share,
        x=[str(k) for k in order],
        y=(edges[1:] + edges[:-1]) / 2,
        colorscale="Viridis",
        zmin=0,
        zmax=3,
        colorbar={"title": "share"},
        hovertemplate="client %{x}, around round %{y:.0f}: %{z:.2f}<extra></extra>",
    )
    figure.update_xaxes(showticklabels=False, type="category")
    return figure


def _learned(results: Results) -> go.Figure:
    figure = _empty("true mean speed", "observed mean speed")
    for i, label in enumerate(results.scenario.policies):
        speeds = learned_speeds(results, label, 0)
        who = _shown_clients(speeds.truth)
        figure.add_scatter(
            x=speeds.truth[who],
            y=speeds.mean[who],
            error_y={"array": np.nan_to_num(speeds.half[who]), "thickness": 1, "width": 0},
            mode="markers",
            name=escape(label),
            marker={"color": COLOURS[i % len(COLOURS)], "size": 5},
            customdata=np.column_stack([who, speeds.count[who]]),
            hovertemplate="client %{customdata[0]}: %{y:.3f} from %{customdata[1]} answers",
        )
        top = float(speeds.truth.max())
    line = {"color": "#999", "width": 1}
    figure.add_scatter(x=[0, top], y=[0, top], mode="lines", name="truth", line=line)
    return figure


def _shown_clients(speed: FloatArray) -> IntArray:
    """Return clients from slow to fast, thinned evenly to what a screen can show."""
    order: IntArray = np.argsort(speed, kind="stable")
    shown = np.unique(np.linspace(0, len(order) - 1, MAX_CLIENTS).astype(np.int64))
    return order[shown]


def _empty(x: str, y: str) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        template="simple_white",
        height=420,
        margin={"l": 70, "r": 20, "t": 20, "b": 55},
        xaxis_title=x,
        yaxis_title=y,
    )
    return figure


def _figure(caption: str, figure: go.Figure) -> str:
    drawn = figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
    return f"<figure>{drawn}<figcaption>{escape(caption)}</figcaption></figure>"


def _headline(summary: dict[str, Any]) -> str:
    target = summary.get("target")
    return (
        f"K = {summary['n_clients']:,} clients, m = {summary['cohort_size']:,} a round, "
        f"{length(summary)}, {seeds_in_words(summary['seeds'])}. "
        "Means over seeds, ± half of the 95 % interval."
        + (f" The target is {target['name']}." if target else "")
    )


def _table(summary: dict[str, Any]) -> str:
    columns = {
        "time to target (s)": ("time_to_target_s", ",.0f"),
        "speed-up to target": ("target_speed_up", ".2f"),
        "test accuracy": ("test_accuracy", ".3f"),
        "test loss": ("test_loss", ".4f"),
        "rounds": ("rounds", ",.0f"),
        "virtual time (s)": ("total_time_s", ",.0f"),
        "mean round (s)": ("mean_round_s", THREE_DIGITS),
        "speed-up": ("speed_up", ".2f"),
        "Gini": ("gini", ".3f"),
        "least share": ("min_share", ".2f"),
        "most share": ("max_share", ".2f"),
        "regret": ("regret", ",.0f"),
        "growth of regret": ("growth_exponent_last_decade", ".2f"),
    }
    rows = summary["policies"].values()
    filled = {
        name: key
        for name, key in columns.items()
        if any((row.get(key[0]) or {}).get("mean") is not None for row in rows)
        and key[0] != ("total_time_s" if summary["time_s"] else "rounds")  # the same for all
    }
    head = "".join(f"<th>{escape(name)}</th>" for name in ("policy", *filled))
    body = "".join(
        f"<tr><td>{escape(label)}</td>"
        + "".join(f"<td>{shown(row.get(key), form) or '–'}</td>" for key, form in filled.values())
        + "</tr>"
        for label, row in summary["policies"].items()
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div class='wide'>{table}</div>"
