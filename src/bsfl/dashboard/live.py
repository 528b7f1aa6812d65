"""The live page: what a journal holds so far, in parts that are drawn again when they change."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bsfl.dashboard import pictures
from bsfl.dashboard.cells import cell, client_cell, latency_cell, ratio_cell
from bsfl.dashboard.follow import Follower
from bsfl.dashboard.pictures import Estimate
from bsfl.dashboard.sums import ABANDONED, PENDING, Round, Sums, largest, last_clients
from bsfl.html import Cell, Column, Markup, asset, page, render, table
from bsfl.monitoring.effect import Effect
from bsfl.monitoring.words import figure, named, optional
from bsfl.types import OK, OUTCOMES, IntArray

SHOWN = 10
"""Rows of a table."""
OVERDUE, MIN_OVERDUE_S = 3.0, 10.0
"""A journal without news for this many mean rounds, and at least these seconds, is reported."""
LEARNED = {
    "fairness_exponent": "The fairness exponent is {}: with 0 only speed counts, with larger "
    "values clients that participate rarely count more.",
    "value_per_second": "A second of waiting is worth {} responses of a client with its fair "
    "number of participations.",
    "alpha": "The weight of participation against speed (alpha) is {}.",
}
"""What a policy has learned, in words."""
UNITS = {"s": ("expected (s)", "worth (s)"), "index": ("speed index", "worth")}
"""What clients are weighed by, by what that is counted in."""


@dataclass(frozen=True, slots=True)
class View:
    """What the page is made of.

    Attributes:
        title: The name of the journal.
        follower: What was read of it.
        estimate: Of random selection; None: too little is known.
        effect: Of two policies that alternate; None: none do.
        now: Seconds since 1970.
        fault: Why the journal cannot be read; empty if it can.
    """

    title: str
    follower: Follower
    estimate: Estimate | None
    effect: Effect | None
    now: float
    fault: str = ""

    @property
    def has_spans(self) -> bool:
        """Whether there are so many rounds that charts show the last ones or all."""
        return self.follower.shown.sums.rounds.n > pictures.N_BARS


def live_page(view: View, parts: dict[str, tuple[str, Markup]], wanted: str = "") -> Markup:
    """Return the whole page.

    Args:
        view: What it is made of.
        parts: Digest and content of each part.
        wanted: The id of a client to show; empty: none.
    """
    sums = view.follower.shown.sums
    found = client_part(sums, find(sums, wanted), wanted) if wanted else Markup("")
    title, scripts = f"The rounds in {view.title}", [asset("live.js")]
    values: dict[str, Any] = {"parts": parts, "wanted": wanted, "found": found}
    return page(
        "live.html", title, scripts=scripts, is_live=True, has_spans=view.has_spans, **values
    )


def draw(sums: Sums, estimate: Estimate | None, effect: Effect | None) -> dict[str, Markup]:
    """Return the parts that change with the journal alone, by name."""
    return {
        "durations": pictures.durations(sums, estimate),
        "clients": pictures.clients(sums),
        "outcomes": pictures.outcomes(sums),
        "policy": policy_part(sums, effect),
        "stragglers": stragglers_part(sums),
        "cohorts": cohorts_part(sums),
        "hours": pictures.hours(sums),
    }


def headline_part(view: View) -> Markup:
    """Return what matters most in words: what is wrong first, then how long rounds take."""
    reader = view.follower.shown
    sums, usual_s = reader.sums, reader.sums.recent_s
    silent_s = view.now - sums.time
    is_stopped = usual_s is not None and silent_s >= max(OVERDUE * usual_s, MIN_OVERDUE_S)
    last, waiting = sums.cohorts[-1] if sums.cohorts else None, sums.waiting
    blamed, outcome = np.zeros(0, dtype=np.int64), None
    if last is not None:
        places, _ = last_clients(last)
        blamed, outcomes = last.rows[places], set(last.outcome[places].tolist())
        outcome = OUTCOMES[outcomes.pop()] if len(outcomes) == 1 else None
    return render(
        "headline.html",
        silent_s=silent_s if is_stopped else None,
        usual_s=usual_s,
        estimate=view.estimate,
        effect=view.effect,
        last=last,
        blamed=names_of(sums, blamed),
        outcome=outcome,
        waiting=waiting,
        pending=waiting and names_of(sums, waiting.rows[waiting.outcome == PENDING]),
        n_older=len(sums.open) - 1,
        reader=reader,
        part_read=view.follower.part_read,
        now=view.now,
        fault=view.fault,
    )


def names_of(sums: Sums, rows: IntArray, most: int = 3) -> str:
    """Return the first clients by name, and how many more there are."""
    first = [sums.names[row] for row in rows[:most].tolist()]
    known = [f"client {x}" if f"{x}".isdecimal() else named(x) for x in first]
    more = len(rows) - len(known)
    return ", ".join(known) + (f" and {more:,} more" if more else "")


def find(sums: Sums, wanted: str) -> int | None:
    """Return the row of a client by its id as text."""
    if wanted in sums.index:
        return sums.index[wanted]
    is_number = wanted.removeprefix("-").isdecimal() and len(wanted) < 100
    return sums.index.get(int(wanted)) if is_number else None


def client_part(sums: Sums, row: int | None, wanted: str = "") -> Markup:
    """Return all that is known of one client."""
    if row is None or not sums.clients.table["n_invited"][row]:
        return render("client.html", name=wanted, one=None)
    at = np.array([row])
    middle, low, high = (float(x[0]) for x in sums.latencies(at))
    return render(
        "client.html",
        name=sums.names[row],
        row=row,
        one=sums.clients.table[row],
        unit=sums.unit,
        latency=None if math.isnan(middle) else (middle, low, high),
        ratio=float(sums.ratios(at)[0]),
        rate=float(sums.response_rates(at)[0]),
    )


def policy_part(sums: Sums, effect: Effect | None) -> Markup:
    """Return what the policy has learned in words, and what it changes where two alternate."""
    sentences = []
    for name, value in sums.learned.items():
        which, _, rest = name.partition("_") if effect else ("", "", name)
        words = LEARNED.get(rest, f"{rest.replace('_', ' ')} is {{}}.").format(figure(value))
        sentences.append(f"The {which} policy: {words}" if which else words)
    return render("policy.html", sentences=sentences, effect=effect)


def stragglers_part(sums: Sums) -> Markup:
    """Return the clients that rounds wait for, the most costly first."""
    rows = largest(sums.clients.table["lost_s"], SHOWN)
    columns = [
        Column("client"),
        Column("seconds lost", about="by which its rounds would have been shorter without it"),
        Column("rounds", about="that it was the last of"),
        Column("latency (s)", about="the median, and the 80 % interval of the next response"),
        Column("in time", about="responses before their round closed"),
        Column("timeouts"),
        Column("failures"),
        Column("late", about="responses after their round had closed"),
        Column("participation ratio", about="responses that entered the model over the fair count"),
    ]
    cells = []
    latencies = zip(*map(optional, sums.latencies(rows)), strict=True)
    ratios = sums.ratios(rows).tolist()
    for row, latency, ratio in zip(rows.tolist(), latencies, ratios, strict=True):
        one = sums.clients.table[row]
        lost_s = float(one["lost_s"])
        part = f"{figure(lost_s)} ({100 * lost_s / max(sums.total_s, lost_s):.2g} %)"
        counts = (one[name] for name in ("n_fresh", "n_timeouts", "n_failed", "n_late"))
        middle = [Cell(part, lost_s), cell(int(one["n_last"])), latency_cell(*latency)]
        ends = [*(cell(int(n)) for n in counts), ratio_cell(ratio)]
        cells.append([client_cell(sums.names[row]), *middle, *ends])
    return table(columns, cells, name="stragglers")


def cohorts_part(sums: Sums) -> Markup:
    """Return the open rounds and the last cohorts, the latest first."""
    shown = [*reversed(sums.open.values())][:SHOWN]
    rounds = [(one, _members(sums, one), True) for one in shown]
    rounds += [(one, _members(sums, one), False) for one in reversed(sums.cohorts)]
    weighed = {one.unit for one, *_ in rounds} & UNITS.keys()
    return render("cohorts.html", rounds=rounds, weighed=weighed)


def _members(sums: Sums, one: Round) -> Markup:
    """Return the clients of a cohort that took longest, and what they were weighed by."""
    heads = UNITS.get(one.unit, ())
    columns = [Column("client"), Column("outcome"), Column("latency (s)"), *map(Column, heads)]
    slowest = np.argsort(-np.nan_to_num(one.latency_s, nan=math.inf), kind="stable")[:SHOWN]
    rows = []
    for place in slowest.tolist():
        row = int(one.rows[place])
        known = sums.clients.table[row]
        words = _outcome(int(one.outcome[place]), is_late=bool(one.is_late[place]))
        numbers: list[Any] = [float(one.latency_s[place])]
        if heads:
            is_known = known["why_round"] == one.number
            numbers += [float(known[x]) if is_known else math.nan for x in ("expected", "worth")]
        cells = [cell(None if math.isnan(x) else x) for x in numbers]
        rows.append([client_cell(sums.names[row]), Cell(words, words), *cells])
    more = len(one.rows) - len(rows)
    note = f"{more:,} more clients responded faster." if more else ""
    return table(columns, rows, note=note, name=f"cohort-{one.number}")


def _outcome(outcome: int, *, is_late: bool) -> str:
    if outcome == OK:
        return "late" if is_late else "in time"
    return {PENDING: "pending", ABANDONED: "abandoned"}.get(outcome) or OUTCOMES[outcome]
