"""What a scheduler knows, as a page that needs nothing but itself."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bsfl.frame import Cell, Column, Markup, facts, page, table, text
from bsfl.monitoring.table import COLUMNS
from bsfl.monitoring.words import GINI, figure, named, seconds

HEADS = {name: name.replace("_", " ") for name in COLUMNS} | {"latency_s": "latency (s)"}
"""Titles of columns."""
MANY = 3
"""Invitations without a response after which a client that never responded is named."""


def cell(value: Any) -> Cell:
    """Return a value as a cell.

    >>> cell(None), cell(41.26).shown, cell(True).shown
    (Cell(shown='', key=None, is_best=False), '41.3', 'yes')
    """
    if value is None:
        return Cell("")
    if isinstance(value, bool):
        return Cell("yes" if value else "no", int(value))
    if isinstance(value, float):
        return Cell(figure(value), value)
    if isinstance(value, int):
        return Cell(figure(value) if value < 10**6 else f"{value:,}", value)
    return Cell(str(value), str(value))


def ratio_cell(ratio: float | None) -> Cell:
    """Return a participation ratio as a cell.

    >>> ratio_cell(0.0962).shown, ratio_cell(None).shown
    ('0.10', '')
    """
    return Cell("") if ratio is None else Cell(f"{ratio:.2f}", ratio)


def client_cell(client: Any) -> Cell:
    """Return an id as the name of a row."""
    return Cell(str(client), client if isinstance(client, int) else str(client))


def latency_cell(latency_s: float | None, low_s: float | None, high_s: float | None) -> Cell:
    """Return the median latency of a client and the 80 % interval of its next response."""
    if latency_s is None or low_s is None or high_s is None:
        return Cell("")
    return Cell(f"{figure(latency_s)} ({figure(low_s)} – {figure(high_s)})", latency_s)


def inspected_page(title: str, summary: str, rows: Sequence[dict[str, Any]]) -> str:
    """Return what a scheduler knows, as a page.

    Args:
        title: The file it was saved to.
        summary: `Scheduler.summary()`.
        rows: `Scheduler.table()`.
    """
    policy, *lines = summary.splitlines()
    listed = ""
    for name, words in ((line[2:13].strip(), line[13:]) for line in lines):
        if name != "clients":  # they are among the facts
            explained = words.replace(";", f" ({GINI});", 1) if name == "fairness" else words
            listed += f"<dt>{text(name)}</dt><dd>{text(explained)}</dd>"
    body = f'{_facts(rows)}<dl class="about">{listed}<dt>policy</dt><dd>{text(policy)}</dd></dl>'
    title = f"What {title} knows of its clients"
    return page(title, body + _table(rows), headline=[_headline(rows), *_unresponsive(rows)])


def _headline(rows: Sequence[dict[str, Any]]) -> str:
    """Return how fast clients are, and which is the slowest."""
    known = [row for row in rows if row["latency_s"] is not None and row["member"]]
    if not known:
        return "No client has responded yet."
    times = sorted(row["latency_s"] for row in known)
    slowest = max(known, key=lambda row: row["latency_s"])
    middle = seconds(times[(len(times) - 1) // 2])
    words = f"50 % of the clients have a median latency of at most {middle}"
    if len(known) > 1:
        took = seconds(slowest["latency_s"])
        words += f"; the slowest, {named(slowest['client'])}, has {took}"
    return f"{words}."


def _unresponsive(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return which clients were invited often and never responded, if there are any."""
    found = [row for row in rows if row["member"] and _is_unresponsive(row)]
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


def _facts(rows: Sequence[dict[str, Any]]) -> Markup:
    members = [row for row in rows if row["member"]]
    n_left = len(rows) - len(members)
    ratios = [x for row in members if (x := row["participation_ratio"]) is not None]
    n_known = sum(row["latency_s"] is not None for row in members)
    n_missed = sum(_n_missed(row) for row in rows)
    n_participations = sum(row["participations"] for row in rows)
    n_invitations = sum(row["invitations"] for row in rows)
    n_pending = sum(row["pending"] > 0 for row in members)
    found = [
        ("clients", f"{len(members):,}", f"{n_left:,} left" if n_left else "members"),
        ("have responded", f"{n_known:,}", f"{n_participations:,} participations"),
        ("timed out or failed", f"{n_missed:,}", f"of {n_invitations:,} invitations"),
        ("in flight", f"{n_pending:,}", "clients with a pending response"),
    ]
    if ratios:
        n_few = int(np.count_nonzero(np.array(ratios) < 0.5))
        found.append(("underserved", f"{n_few:,}", "have a participation ratio below 0.5"))
    return facts(found)


def _table(rows: Sequence[dict[str, Any]]) -> Markup:
    """Return all clients: the unresponsive ones, and then the slowest first."""
    has_left = not all(row["member"] for row in rows)
    merged = ("client", "latency_s", "low_s", "high_s")
    names = [name for name in COLUMNS if name not in merged and (has_left or name != "member")]
    columns = [Column("client", about=COLUMNS["client"])]
    about = "the median, and the 80 % interval of the next response; empty: it never responded"
    columns.append(Column(HEADS["latency_s"], about=about))
    columns += [Column(HEADS[name], about=_words(name)) for name in names]
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


def _words(name: str) -> str:
    return COLUMNS[name].replace("None:", "empty:")
