"""The last cohorts on the live page: what became of each member, and what it was chosen for."""

from collections.abc import Sequence
from typing import Any

from bsfl.frame import Cell, Column, Markup, table, text
from bsfl.monitor.journal import Entry
from bsfl.monitor.page import cell, client_cell
from bsfl.monitor.words import figure, seconds

SHOWN = 20
"""Members of a cohort that are shown."""
PACES = {
    "s": (
        Column("expected (s)", about="how long it was thought to take when it was chosen"),
        Column("worth (s)", about="seconds of waiting that its answer is worth"),
    ),
    "index": (
        Column("speed index", about="how fast it might be, as far as was known"),
        Column("worth", about="points that its answer adds to the objective"),
    ),
}
"""What a member was weighed by, by what that is counted in."""
NEW = "Where nothing stands the client was new, and came first."
REASONS = {
    "s": f"Of all cohorts, what this one is worth less the wait for its slowest is largest. {NEW}",
    "index": f"Of all cohorts, what this one is worth and its lowest index is largest. {NEW}",
}


def cohorts(entries: Sequence[Entry]) -> Markup:
    """Return the last rounds, the latest first and open; each shows its members."""
    parts: list[str] = []
    for entry in reversed(entries):
        n, n_ok = len(entry["invited"]), entry["outcome"].count("ok")
        head = f"Round {int(entry['t']):,}: {n_ok:,} of {n:,} in time"
        head += "" if entry["duration_s"] is None else f", {seconds(entry['duration_s'])}"
        head += f", chosen from {int(entry['available']):,}"
        is_open = "" if parts else " open"
        parts.append(
            f'<details id="round-{int(entry["t"])}"{is_open}><summary>{text(head)}</summary>'
            f"{_members(entry)}</details>"
        )
    return Markup("".join(parts))


def _members(entry: Entry) -> str:
    """Return who was invited, what became of each, and what it was weighed by."""
    unit, expected, worth = _weighed(entry)
    columns = [Column("client"), Column("outcome"), Column("took (s)"), *PACES.get(unit, ())]
    rows = []
    told = zip(entry["invited"], entry["outcome"], entry["latency_s"], expected, worth, strict=True)
    for client, how, *numbers in told:
        words = {"ok": "in time", None: "awaited"}.get(how, str(how))
        cells = [cell(_number(x)) for x in numbers]
        rows.append([client_cell(client), Cell(words, words), *cells[: len(columns) - 2]])
    rows.sort(key=lambda row: -float(row[2].key or 0.0))
    caption = f"The {SHOWN} that took longest" if len(rows) > SHOWN else ""
    found = {k: x for k, v in _dict(entry.get("figures")).items() if (x := _number(v)) is not None}
    words = REASONS.get(unit, "The policy does not tell what it weighed.")
    if found:
        listed = (f"{name.replace('_', ' ')} {figure(x)}" for name, x in found.items())
        words += f" It has found: {', '.join(listed)}."
    shown = table(columns, rows[:SHOWN], caption=caption, name=f"cohort-{entry['t']}")
    return f'{shown}<p class="note">{text(words)}</p>'


def _weighed(entry: Entry) -> tuple[str, list[Any], list[Any]]:
    """Return the unit, and by member what was expected of it and what it was worth."""
    why, n = _dict(entry.get("why")), len(entry["invited"])
    unit, expected, worth = (why.get(name) for name in ("unit", "expected", "worth"))
    for one in (expected, worth):
        if unit not in PACES or not isinstance(one, list) or len(one) != n:
            return "", [None] * n, [None] * n
    return str(unit), list(expected or ()), list(worth or ())


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
