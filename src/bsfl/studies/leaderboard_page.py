"""The leaderboard as a page, as Markdown and as a figure of time against participation."""

import base64
import json
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bsfl.analysis.statistics import THREE_DIGITS, seeds_in_words, shown
from bsfl.files import replace_file
from bsfl.report.page import PAGE_STYLE
from bsfl.report.style import COLOURS, LINES, house_style, save
from bsfl.studies.leaderboard import FRONTS

Row = dict[str, Any]

COLUMNS = (
    "policy",
    "time to target (s)",
    "speed-up",
    "accuracy",
    "worst label",
    "mean round (s)",
    "Gini",
    "rounds",
    "select (ms)",
    "round / BSFL's best",
)
NOTES = (
    "Times are virtual. Means over seeds ± half of the 95 % interval. Speed-up: over random, to "
    "the target. Accuracy and the accuracy of the worst label: at equal virtual time. Select: real "
    "time of choosing and learning in a round. Last column: mean round time over the shortest of "
    "BSFL's in these worlds with selections no less even, by 11 weights and three indices (as "
    "printed, and speeds='lognormal', quantile=0.9, optimism=0.5 or 2); below 1 beats all of them, "
    "– is more even than any. A genie (*), if asked to compete, is told the true speeds."
)
MARKERS = "osD^v<>Pp*hXd8"


def write_leaderboard(board: dict[str, Any], folder: Path) -> Path:
    """Write leaderboard.html, leaderboard.md and pareto.png/pdf; return the page."""
    figure = pareto_figure(board)
    save(figure, folder, "pareto")
    replace_file(folder / "leaderboard.md", markdown(board).encode())
    path = folder / "leaderboard.html"
    replace_file(path, _page(board, figure).encode())
    return path


def ranked(rows: dict[str, Row]) -> list[tuple[str, Row]]:
    """Return policies from the quickest to the target on, then those that missed it."""

    def place(item: tuple[str, Row]) -> tuple[float, float]:
        row = item[1]
        time = row["time_to_target_s"]
        return (time["mean"] if time else float("inf"), -row["accuracy"]["mean"])

    return sorted(rows.items(), key=place)


def cells(label: str, row: Row) -> list[str]:
    """Return one line of the table."""
    time = shown(row["time_to_target_s"], ",.0f") or f"reached by {row['reached_target']:.0%}"
    ratio, seconds = row["round_over_bsfl_at_gini"], row["selection_s"]
    return [
        label if row["blind"] else f"{label} *",
        time,
        shown(row["target_speed_up"], ".2f") or "–",
        shown(row["accuracy"], ".3f"),
        shown(row["worst_label_accuracy"], ".3f"),
        shown(row["mean_round_s"], THREE_DIGITS),
        shown(row["gini"], ".3f", with_interval=False),
        shown(row["rounds"], ",.0f", with_interval=False),
        "–" if seconds is None else f"{1000 * seconds:.2f}",
        "–" if ratio is None else f"{ratio:.2f}",
    ]


def markdown(board: dict[str, Any]) -> str:
    """Return the tables as Markdown."""
    parts = [NOTES]
    for name, part in board["scenarios"].items():
        lines = [
            "| " + " | ".join(line) + " |"
            for line in (
                COLUMNS,
                ["---", *["---:"] * (len(COLUMNS) - 1)],
                *(cells(label, row) for label, row in ranked(part["policies"])),
            )
        ]
        head = f"### {name}: {part['title']}\n\n{_frame(part)}"
        parts.append(f"{head}\n\n" + "\n".join(lines) + f"\n\nSettings: {_settings(part)}")
    return "\n\n".join(parts) + "\n"


def pareto_figure(board: dict[str, Any]) -> Figure:
    """Return mean round time against Gini in every scenario, with fronts."""
    parts = board["scenarios"]
    columns = min(4, len(parts))
    n_rows = -(-len(parts) // columns)
    with house_style():
        figure = Figure(figsize=(4.0 * columns + 1.5, 3.6 * n_rows))
        grid = figure.subplots(n_rows, columns, squeeze=False).ravel()
        labels = list(dict.fromkeys(k for part in parts.values() for k in part["policies"]))
        handles: dict[str, Any] = {}
        for axes, (name, part) in zip(grid, parts.items(), strict=False):
            for name_of_front, dashes in zip(FRONTS, LINES, strict=False):
                front = sorted(
                    (p["gini"], p["mean_round_s"])
                    for p in part["fronts"]
                    if p["front"] == name_of_front
                )
                if front:
                    (line,) = axes.plot(
                        *zip(*front, strict=True), color="0.5", ls=dashes, lw=1.2, zorder=1
                    )
                    handles[f"{name_of_front}, other weights"] = line
            for label, row in part["policies"].items():
                i = labels.index(label)
                handles[label] = axes.scatter(
                    row["gini"]["mean"],
                    row["mean_round_s"]["mean"],
                    color=COLOURS[i % len(COLOURS)],
                    marker=MARKERS[i % len(MARKERS)],
                    s=45,
                    zorder=2,
                )
            axes.set(title=name, xlabel="Gini of participation", ylabel="mean round (s)")
            axes.set_ylim(bottom=0)
        for axes in grid[len(parts) :]:
            axes.set_visible(False)
        figure.legend(
            handles.values(), handles.keys(), loc="outside right center", fontsize="small"
        )
    return figure


def _frame(part: dict[str, Any]) -> str:
    return f"Target {part['target']}, {seeds_in_words(part['seeds'])}."


def _settings(part: dict[str, Any]) -> str:
    used = [
        f"{name} ({', '.join(f'{k} = {json.dumps(v)}' for k, v in settings.items())})"
        for name, settings in part["settings"].items()
        if settings
    ]
    return ("; ".join(used) + "; all others" if used else "all") + " with their defaults."


def _page(board: dict[str, Any], figure: Figure) -> str:
    drawn = BytesIO()
    with house_style():
        figure.savefig(drawn, format="png")
    picture = base64.b64encode(drawn.getvalue()).decode()
    tried = (
        f"every policy could try up to {board['tune']} settings in a world of its own"
        if board["tune"] > 1
        else "nothing was tuned"
    )
    parts = [
        f"<h1>Leaderboard</h1><p>{escape(NOTES)} Here {tried}; the settings used are below each "
        "table.</p>",
        "<figure><img alt='mean round time against Gini in every scenario' style='max-width:100%' "
        f"src='data:image/png;base64,{picture}'><figcaption>Lower and further left is better. The "
        "lines are what BSFL, and the genie that is told true speeds, reach with other weights."
        "</figcaption></figure>",
    ]
    for name, part in board["scenarios"].items():
        head = "".join(f"<th>{escape(column)}</th>" for column in COLUMNS)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells(label, row)) + "</tr>"
            for label, row in ranked(part["policies"])
        )
        parts.append(
            f"<h2>{escape(name)}: {escape(part['title'])}</h2>"
            f"<p>{escape(_frame(part))}</p><div class='wide'>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
            f"<p>Settings: {escape(_settings(part))}</p>"
        )
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>Leaderboard</title>"
        f"<style>{PAGE_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )
