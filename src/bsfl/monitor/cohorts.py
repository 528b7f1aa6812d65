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
NEW = "The slowest have their numbers here; a client that is new comes first and has none."
REASONS = {
    "s": "Every round takes the cohort whose members are worth most, less the wait for the slowest "
    f"of them. {NEW}",
    "index": "Every round takes the cohort for which the lowest speed index and what all members "
    f"are worth are largest together. {NEW}",
}


def cohorts(entries: Sequence[Entry]) -> Markup:
    """Return how cohorts are chosen, and the last ones, the latest first, with their members."""
    if not entries:
        return Markup("")
    unit = _weighed(entries[-1])[0]
    reason = REASONS.get(unit, "The policy does not tell what it weighs.")
    parts = [f"<p>{text(reason)}</p>"]
    for entry in reversed(entries):
        n, n_ok = len(entry["invited"]), entry["outcome"].count("ok")
        head = f"Round {int(entry['t']):,}: {n_ok:,} of {n:,} in time"
        head += "" if entry["duration_s"] is None else f", {seconds(entry['duration_s'])}"
        head += f", chosen from {int(entry['available']):,}"
        is_latest = " open data-latest" if entry is entries[-1] else ""
        parts.append(
            f'<details id="round-{int(entry["t"])}"{is_latest}><summary>{text(head)}</summary>'
            f"{_members(entry)}</details>"
        )
    about = [(one.title, one.about) for one in PACES.get(unit, ())]
    listed = "".join(f"<dt>{text(title)}</dt><dd>{text(words)}</dd>" for title, words in about)
    return Markup("".join([*parts, f'<dl class="about">{listed}</dl>']))


def _members(entry: Entry) -> str:
    """Return who was invited, what became of each, and what it was weighed by."""
    unit, weighed = _weighed(entry)
    paces = [Column(one.title) for one in PACES.get(unit, ())]
    columns = [Column("client"), Column("outcome"), Column("took (s)"), *paces]
    rows = []
    for client, how, took in zip(
        entry["invited"], entry["outcome"], entry["latency_s"], strict=True
    ):
        words = {"ok": "in time", None: "awaited"}.get(how, str(how))
        cells = [cell(_number(x)) for x in (took, *weighed.get(f"{client}", (None, None)))]
        rows.append([client_cell(client), Cell(words, words), *cells[: len(columns) - 2]])
    rows.sort(key=lambda row: -float(row[2].key or 0.0))
    caption = f"The {SHOWN} that took longest" if len(rows) > SHOWN else ""
    found = {k: x for k, v in _dict(entry.get("figures")).items() if (x := _number(v)) is not None}
    listed = ", ".join(f"{name.replace('_', ' ')} {figure(x)}" for name, x in found.items())
    note = f"The policy has found: {listed}" if listed else ""
    name = f"cohort-{entry['t']}"
    return table(columns, rows[:SHOWN], caption=caption, note=note, name=name)


def _weighed(entry: Entry) -> tuple[str, dict[str, list[Any]]]:
    """Return the unit, and by client what was expected of it and what it was worth."""
    why = _dict(entry.get("why"))
    columns = [why.get(name) for name in ("clients", "expected", "worth")]
    lists = [one for one in columns if isinstance(one, list)]
    if why.get("unit") not in PACES or len(lists) < 3 or len({len(one) for one in lists}) > 1:
        return "", {}
    return str(why["unit"]), {f"{k}": pair for k, *pair in zip(*lists, strict=True)}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
