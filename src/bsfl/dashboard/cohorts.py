"""The last cohorts on the live page: the result of each client, and what it was weighed by."""

from collections.abc import Sequence
from typing import Any

from bsfl.dashboard.page import cell, client_cell
from bsfl.frame import Cell, Column, Markup, table, text
from bsfl.monitoring.journal import Entry
from bsfl.monitoring.words import figure, seconds

SHOWN = 20
"""Clients of a cohort that are shown."""
WEIGHED = {
    "s": (
        Column("expected (s)", about="its expected latency when it was selected"),
        Column("worth (s)", about="seconds of waiting that its response is worth"),
    ),
    "index": (
        Column("speed index", about="an optimistic estimate of its speed when it was selected"),
        Column("worth", about="points that its response adds to the objective"),
    ),
}
"""What a client was weighed by, by what that is counted in."""
NEW = "These numbers are shown for the slowest clients; unseen clients come first and have none."
REASONS = {
    "s": "Each cohort maximises what its responses are worth, minus the wait for its slowest "
    f"client. {NEW}",
    "index": "Each cohort maximises its lowest speed index plus what its responses are worth. "
    f"{NEW}",
}


def cohorts(entries: Sequence[Entry]) -> Markup:
    """Return how cohorts are selected, and the last ones, the latest first, with their clients."""
    if not entries:
        return Markup("")
    unit = _weighed(entries[-1])[0]
    reason = REASONS.get(unit, "The policy does not report what it weighs.")
    parts = [f"<p>{text(reason)}</p>"]
    for entry in reversed(entries):
        n, n_fresh = len(entry["invited"]), entry["outcome"].count("ok")
        head = f"Round {int(entry['round']):,}: {n_fresh:,} of {n:,} responded in time"
        head += "" if entry["duration_s"] is None else f", {seconds(entry['duration_s'])}"
        head += f", selected from {int(entry['n_available']):,} available clients"
        head += ", discarded" if entry["is_discarded"] else ""
        is_latest = " open data-latest" if entry is entries[-1] else ""
        parts.append(
            f'<details id="round-{int(entry["round"])}"{is_latest}><summary>{text(head)}</summary>'
            f"{_clients(entry)}</details>"
        )
    about = [(one.title, one.about) for one in WEIGHED.get(unit, ())]
    listed = "".join(f"<dt>{text(title)}</dt><dd>{text(words)}</dd>" for title, words in about)
    return Markup("".join([*parts, f'<dl class="about">{listed}</dl>']))


def _clients(entry: Entry) -> str:
    """Return the invited clients, the result of each, and what it was weighed by."""
    unit, weighed = _weighed(entry)
    columns = [Column("client"), Column("outcome"), Column("latency (s)")]
    columns += [Column(one.title) for one in WEIGHED.get(unit, ())]
    rows = []
    for client, outcome, latency_s in zip(
        entry["invited"], entry["outcome"], entry["latency_s"], strict=True
    ):
        words = {"ok": "in time", None: "pending"}.get(outcome, str(outcome))
        numbers = (latency_s, *weighed.get(f"{client}", (None, None)))
        cells = [cell(_number(x)) for x in numbers]
        rows.append([client_cell(client), Cell(words, words), *cells[: len(columns) - 2]])
    rows.sort(key=lambda row: -float(row[2].key or 0.0))
    caption = f"The {SHOWN} that took longest" if len(rows) > SHOWN else ""
    learned = {
        name: x
        for name, value in _dict(entry.get("diagnostics")).items()
        if (x := _number(value)) is not None
    }
    listed = ", ".join(f"{name.replace('_', ' ')} {figure(x)}" for name, x in learned.items())
    note = f"The policy has learned: {listed}" if listed else ""
    name = f"cohort-{entry['round']}"
    return table(columns, rows[:SHOWN], caption=caption, note=note, name=name)


def _weighed(entry: Entry) -> tuple[str, dict[str, list[Any]]]:
    """Return the unit, and by client what was expected of it and what it was worth."""
    why = _dict(entry.get("why"))
    columns = [why.get(name) for name in ("clients", "expected", "worth")]
    lists = [one for one in columns if isinstance(one, list)]
    unit = f"{why.get('unit')}"
    if unit not in WEIGHED or len(lists) < 3 or len({len(one) for one in lists}) > 1:
        return "", {}
    return unit, {f"{k}": pair for k, *pair in zip(*lists, strict=True)}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
