"""What a saved scheduler knows, as a page that needs nothing but itself."""

from collections.abc import Sequence
from typing import Any

from bsfl.dashboard.cells import cell, client_cell, latency_cell, ratio_cell
from bsfl.html import Column, Markup, page, table
from bsfl.monitoring.table import COLUMNS
from bsfl.monitoring.words import GINI, named, seconds

MANY = 3
"""Invitations without a response after which a client that never responded is named."""


def inspected_page(title: str, summary: str, rows: Sequence[dict[str, Any]]) -> str:
    """Return what a scheduler knows, as a page.

    Args:
        title: The file it was saved to.
        summary: `Scheduler.summary()`.
        rows: `Scheduler.table()`.
    """
    policy, *lines = summary.splitlines()
    about = {line[2:13].strip(): line[13:] for line in lines}
    del about["clients"]  # they are among the facts
    about["fairness"] = about["fairness"].replace(";", f" ({GINI});", 1)
    members = [row for row in rows if row["member"]]
    ratios = [x for row in members if (x := row["participation_ratio"]) is not None]
    return page(
        "inspect.html",
        f"What {title} knows of its clients",
        headline=[_headline(members), *_unresponsive(members)],
        about=about | {"policy": policy},
        n_members=len(members),
        n_left=len(rows) - len(members),
        n_known=sum(row["latency_s"] is not None for row in members),
        n_missed=sum(map(_n_missed, rows)),
        n_participations=sum(row["participations"] for row in rows),
        n_invitations=sum(row["invitations"] for row in rows),
        n_pending=sum(row["pending"] > 0 for row in members),
        n_few=sum(x < 0.5 for x in ratios) if ratios else None,
        table=_table(rows),
    )


def _headline(members: Sequence[dict[str, Any]]) -> str:
    """Return how fast clients are, and which is the slowest."""
    known = sorted((r for r in members if r["latency_s"] is not None), key=lambda r: r["latency_s"])
    if not known:
        return "No client has responded yet."
    middle, slowest = known[(len(known) - 1) // 2]["latency_s"], known[-1]
    words = f"50 % of the clients have a median latency of at most {seconds(middle)}"
    if len(known) > 1:
        words += f"; the slowest, {named(slowest['client'])}, has {seconds(slowest['latency_s'])}"
    return f"{words}."


def _unresponsive(members: Sequence[dict[str, Any]]) -> list[str]:
    """Return which clients were invited often and never responded, if there are any."""
    found = [row for row in members if _is_unresponsive(row)]
    if not found:
        return []
    longest = max(found, key=_n_missed)
    invited = f"{named(longest['client'])} never responded to {_n_missed(longest):,} invitations"
    others = f", nor did {len(found) - 1:,} other clients to theirs" if len(found) > 1 else ""
    return [f"{invited}{others}."]


def _n_missed(row: dict[str, Any]) -> int:
    return int(row["timeouts"] + row["failures"])


def _is_unresponsive(row: dict[str, Any]) -> bool:
    return row["latency_s"] is None and _n_missed(row) >= MANY


def _table(rows: Sequence[dict[str, Any]]) -> Markup:
    """Return all clients: the unresponsive ones, and then the slowest first."""
    has_left = not all(row["member"] for row in rows)
    merged = ("client", "latency_s", "low_s", "high_s")
    names = [name for name in COLUMNS if name not in merged and (has_left or name != "member")]
    about = "the median, and the 80 % interval of the next response; empty: it never responded"
    columns = [Column("client", about=COLUMNS["client"]), Column("latency (s)", about=about)]
    columns += [
        Column(name.replace("_", " "), about=COLUMNS[name].replace("None:", "empty:"))
        for name in names
    ]
    ordered = sorted(rows, key=lambda row: (-_is_unresponsive(row), -(row["latency_s"] or -1.0)))
    cells = [
        [
            client_cell(row["client"]),
            latency_cell(row["latency_s"], row["low_s"], row["high_s"]),
            *((ratio_cell if name == "participation_ratio" else cell)(row[name]) for name in names),
        ]
        for row in ordered
    ]
    caption = "All clients that are not forgotten, the slowest first. A head sorts by its column."
    return table(columns, cells, caption=caption, name="clients")
