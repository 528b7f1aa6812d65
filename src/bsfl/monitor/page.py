"""What a scheduler knows, as a page that needs nothing but itself."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bsfl.frame import Cell, Column, Markup, facts, page, table, text
from bsfl.monitor.inspect import COLUMNS
from bsfl.monitor.words import GINI, figure, named, seconds

HEADS = {
    "latency_s": "usually takes (s)",
    "last_chosen": "last chosen in round",
    "member": "in the fleet",
}
"""Titles of columns that are not their names."""
OFTEN = 3
"""Who was asked so often and never answered is worth a word."""


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


def share_cell(share: float | None) -> Cell:
    """Return a part of a fair share as a cell.

    >>> share_cell(0.0962).shown, share_cell(None).shown
    ('0.10', '')
    """
    return Cell("") if share is None else Cell(f"{share:.2f}", share)


def client_cell(client: Any) -> Cell:
    """Return an id as the name of a row."""
    return Cell(str(client), client if isinstance(client, int) else str(client))


def latency_cell(latency_s: float | None, low_s: float | None, high_s: float | None) -> Cell:
    """Return what a client usually takes, and between what times 8 of 10 answers come."""
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
    said = []
    for name, words in ((line[2:13].strip(), line[13:]) for line in lines):
        if name != "fleet":  # that is in the facts
            explained = words.replace(";", f" ({GINI});", 1) if name == "evenness" else words
            said.append((name, explained))
    listed = "".join(f"<dt>{text(name)}</dt><dd>{text(words)}</dd>" for name, words in said)
    body = f'{_facts(rows)}<dl class="about">{listed}<dt>policy</dt><dd>{text(policy)}</dd></dl>'
    title = f"What {title} knows of its clients"
    return page(title, body + _table(rows), verdict=[_verdict(rows), *_silent(rows)])


def _verdict(rows: Sequence[dict[str, Any]]) -> str:
    """Return how fast the fleet is, and who holds it up."""
    known = [row for row in rows if row["latency_s"] is not None and row["member"]]
    if not known:
        return "Nobody has answered yet."
    times = sorted(row["latency_s"] for row in known)
    slowest = max(known, key=lambda row: row["latency_s"])
    words = f"Half of the clients usually answer within {seconds(times[(len(times) - 1) // 2])}"
    if len(known) > 1:
        took = seconds(slowest["latency_s"])
        words += f"; the slowest, {named(slowest['client'])}, takes {took}"
    return f"{words}."


def _silent(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return who was asked often and never answered, if there is anybody."""
    silent = [row for row in rows if row["member"] and _is_silent(row)]
    if not silent:
        return []
    longest = max(silent, key=_n_unanswered)
    asked = f"{named(longest['client'])} was asked {_n_unanswered(longest):,} times"
    others = f", nor have {len(silent) - 1:,} more" if len(silent) > 1 else ""
    return [f"{asked} and has never answered{others}."]


def _n_unanswered(row: dict[str, Any]) -> int:
    return int(row["timeouts"] + row["failures"])


def _is_silent(row: dict[str, Any]) -> bool:
    return row["latency_s"] is None and _n_unanswered(row) >= OFTEN


def _facts(rows: Sequence[dict[str, Any]]) -> Markup:
    members = [row for row in rows if row["member"]]
    n_left = len(rows) - len(members)
    shares = np.array([row["share"] for row in members if row["share"] is not None])
    n_known = sum(row["latency_s"] is not None for row in members)
    n_bad = sum(row["timeouts"] + row["failures"] for row in rows)
    n_good = sum(row["answers"] for row in rows)
    n_owed = sum(row["awaited"] > 0 for row in members)
    found = [
        ("clients", f"{len(members):,}", f"{n_left:,} left" if n_left else "in the fleet"),
        ("have answered", f"{n_known:,}", f"{n_good:,} answers in the model"),
        ("missed or failed", f"{n_bad:,}", f"of {n_good + n_bad:,} invitations"),
        ("owe an answer", f"{n_owed:,}", "clients"),
    ]
    if len(shares):
        n_few = np.count_nonzero(shares < 0.5)
        found.append(("underserved", f"{n_few:,}", "have less than half their fair share"))
    return facts(found)


def _table(rows: Sequence[dict[str, Any]]) -> Markup:
    """Return all clients: who never answered, and then the slowest first."""
    has_left = not all(row["member"] for row in rows)
    merged = ("client", "latency_s", "low_s", "high_s")
    names = [name for name in COLUMNS if name not in merged and (has_left or name != "member")]
    columns = [Column("client", about=COLUMNS["client"])]
    about = "the median, and between what times 8 of 10 answers come; empty: it never answered"
    columns.append(Column(HEADS["latency_s"], about=about))
    columns += [Column(HEADS.get(name, name), about=_words(name)) for name in names]
    ordered = sorted(rows, key=lambda row: (-_is_silent(row), -(row["latency_s"] or -1.0)))
    cells = [
        [
            client_cell(row["client"]),
            latency_cell(row["latency_s"], row["low_s"], row["high_s"]),
            *((share_cell if name == "share" else cell)(row[name]) for name in names),
        ]
        for row in ordered
    ]
    caption = "Every client ever met, the slowest first. A head sorts by its column."
    return table(columns, cells, caption=caption, name="clients")


def _words(name: str) -> str:
    return COLUMNS[name].replace("None:", "empty:")
