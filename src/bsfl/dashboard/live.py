"""The live page: what a journal holds so far, the most pressing first."""

import time
from collections.abc import Iterable, Sequence
from heapq import nlargest
from itertools import pairwise
from typing import Any

import numpy as np

from bsfl.dashboard.cohorts import cohorts
from bsfl.dashboard.follow import HOURS, ClientSums, Followed, OpenRound
from bsfl.dashboard.page import cell, client_cell, latency_cell, ratio_cell
from bsfl.frame import (
    Bar,
    Cell,
    Column,
    Markup,
    asset,
    bars,
    facts,
    page,
    part,
    spread,
    table,
    text,
)
from bsfl.monitoring.words import GINI, figure, named, seconds

SHOWN = 15
"""Clients that a table shows."""
RECENT = 50
"""Rounds that count as recent."""
OVERDUE = 3.0
"""A round that takes this many times the mean duration is reported first."""
MIN_OVERDUE_S = 10.0
"""Shorter rounds are never overdue."""
RATIOS = (0.0, 0.25, 0.5, 0.8, 1.25, 2.0, np.inf)
"""Bounds of participation ratios by which clients are counted."""
FEW_HOURS = 4
"""Hours of the day with rounds from which availability is drawn by hour."""
OUTCOMES: dict[Any, str] = {"timeout": "timed out", "failed": "failed"}
NONE_YET = "<p>No round has closed yet.</p>"
Latency = tuple[float, float, float]
"""Median and 80 % interval."""


def journal_page(title: str, sums: Followed, wanted: str = "", now: float | None = None) -> str:
    """Return the page of a journal so far.

    Args:
        title: Its name.
        sums: What it holds.
        wanted: The id of a client to show alone; "": none.
        now: Seconds since 1970; None: by the clock.
    """
    now = time.time() if now is None else now
    latencies = sums.latencies()
    sections = {
        "How long do rounds take?": _times(sums),
        "Which clients do rounds wait for?": _stragglers(sums, latencies),
        "How fast are clients?": _speeds(latencies),
        "Which clients participate?": _participation(sums),
        "When are clients available?": _hours(sums),
        "The last cohorts, and why they were selected": cohorts(sums.cohorts) or NONE_YET,
    }
    body = _search(sums, latencies, wanted) + _facts(sums, now)
    body += "".join(f"<h2>{text(question)}</h2>{part}" for question, part in sections.items())
    headline = [_headline(sums), *_open_rounds(sums, now)]
    if (one := sums.waiting) is not None and _is_long(sums, now - _opened(one, now)):
        headline.reverse()  # the most pressing first
    title = f"The rounds in {title}"
    return page(title, body, headline=headline, scripts=[asset("live.js")], is_live=True)


def _headline(sums: Followed) -> str:
    """Return how long rounds take, and which clients the last one waited for."""
    recent = [r for r in list(sums.rounds)[-RECENT:] if r.duration_s is not None]
    if not recent:
        return "No round has closed yet."
    mean, last = sum(r.duration_s or 0.0 for r in recent) / len(recent), sums.rounds[-1]
    if last.duration_s is None:
        return (
            f"Recent rounds take {seconds(mean)}; the duration of round {last.round:,} is unknown."
        )
    words = f"Recent rounds take {seconds(mean)}; round {last.round:,} took "
    words += seconds(last.duration_s)
    if last.last:
        words += f" and waited for {_names(last.last)}"
        results = dict(zip(sums.cohorts[-1]["invited"], sums.cohorts[-1]["outcome"], strict=True))
        outcomes = {OUTCOMES.get(results.get(client), "") for client in last.last}
        words += f", which {outcomes.pop()}" if len(outcomes) == 1 and outcomes != {""} else ""
    return f"{words}."


def _names(clients: Sequence[Any], most: int = 3) -> str:
    """Return the first clients by name, and how many more there are."""
    known = [f"client {x}" if f"{x}".isdecimal() else named(x) for x in clients[:most]]
    more = len(clients) - len(known)
    return ", ".join(known) + (f" and {more:,} more" if more > 0 else "")


def _opened(one: OpenRound, now: float) -> float:
    """Return when a round was opened, in seconds since 1970."""
    opened = one.entry.get("time")
    return float(opened) if isinstance(opened, int | float) else now


def _open_rounds(sums: Followed, now: float) -> list[str]:
    """Return which clients the open round waits for; if none is open, that nothing is new."""
    if (one := sums.waiting) is not None:
        n, pending = len(one.outcome), one.pending
        n_others = len(sums.open) - 1
        words = (
            f"Round {one.entry['round']:,} has been open for {_ago(now - _opened(one, now))}: "
            f"{one.outcome.count('ok'):,} of {n:,} clients have responded"
        )
        words += f", pending are {_names(pending)}" if pending else ""
        words += f"; {n_others:,} older rounds are open" if n_others else ""
        return [f"{words}."]
    if sums.ended is None or not _is_long(sums, since := now - sums.ended):
        return []
    return [
        f"No new round for {_ago(since)}, although a round takes {seconds(sums.mean_s)} on "
        "average: training may have ended."
    ]


def _is_long(sums: Followed, span_s: float) -> bool:
    """Return whether a span of time is much longer than a round."""
    return sums.mean_s is not None and span_s >= max(OVERDUE * sums.mean_s, MIN_OVERDUE_S)


def _ago(span_s: float) -> str:
    """Return a span of time in one unit.

    >>> _ago(59.6), _ago(600.0), _ago(7300.0), _ago(200000.0)
    ('60 s', '10 min', '2 h', '2 days')
    """
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if span_s >= 2 * size:
            return f"{span_s / size:.0f} {unit}"
    return f"{max(span_s, 0.0):.0f} s"


def _facts(sums: Followed, now: float) -> Markup:
    worst = max(sums.clients.items(), key=lambda item: item[1].lost_s, default=None)
    ended = "" if sums.ended is None else f"the last closed {_ago(now - sums.ended)} ago"
    known = [
        ("rounds", f"{sums.n_rounds:,}", ended),
        ("mean round", seconds(sums.mean_s), "over all rounds"),
        ("clients invited", f"{len(sums.clients):,}", "at least once"),
        ("Gini of responses", f"{sums.gini():.2f}", GINI),
    ]
    if worst and worst[1].lost_s > 0:
        lost = f"{seconds(worst[1].lost_s)} lost, {_percent(worst[1].lost_s, sums.total_s)}"
        known.insert(2, ("waited most for", _names([worst[0]]), lost))
    return facts(known)


def _percent(one: float, all_: float) -> str:
    part = 100 * one / all_ if all_ > 0 else 0.0
    return f"{part:.0f} %" if part >= 10 else f"{part:.1f} %"


def _search(sums: Followed, latencies: dict[Any, Latency], wanted: str) -> str:
    form = (
        '<form role="search"><input type="search" id="client" name="client" '
        f'aria-label="find a client by its id" placeholder="client id" value="{text(wanted)}">'
        "<button>find</button></form>"
    )
    line = f'<div class="status"><span class="note" id="live">live</span>{form}</div>'
    if not wanted:
        return line
    client: Any = wanted
    if client not in sums.clients and wanted.lstrip("-").isdecimal():
        client = int(wanted)
    if client not in sums.clients:
        return f'{line}<p class="warn">{text(wanted)} was never invited.</p>'
    return line + _clients([(client, sums.clients[client])], sums, latencies, "found")


def _clients(
    which: Iterable[tuple[Any, ClientSums]],
    sums: Followed,
    latencies: dict[Any, Latency],
    name: str,
) -> Markup:
    """Return a row for each of some clients."""
    columns = [
        Column("client"),
        Column("seconds lost", about="how much shorter all rounds would have been without it"),
        Column("came last", about="rounds that waited for it to the end"),
        Column("latency (s)", about="the median, and the 80 % interval of the next response"),
        Column("fresh", about="responses that came before their round closed"),
        Column("timeouts", about="deadlines that it missed"),
        Column("failures"),
        Column("late", about="responses that came after their round had closed"),
        Column(
            "participation ratio",
            about="fresh responses over the fair count of a client that is always available",
        ),
        Column("last invited", about="the round"),
    ]
    rows = []
    for client, one in which:
        ratio = one.n_fresh / sums.fair_count if sums.fair_count else None
        counts = (one.n_fresh, one.n_timeouts, one.n_failed, one.n_late)
        rows.append(
            [
                client_cell(client),
                Cell(f"{figure(one.lost_s)} ({_percent(one.lost_s, sums.total_s)})", one.lost_s),
                cell(one.n_last),
                latency_cell(*latencies.get(client, (None, None, None))),
                *map(cell, counts),
                ratio_cell(ratio),
                cell(one.last_round),
            ]
        )
    return table(columns, rows, name=name)


def _times(sums: Followed) -> str:
    """Return the durations of the last rounds, drawn as bars."""
    known = [r for r in sums.rounds if r.duration_s is not None]
    if not known:
        return NONE_YET
    drawn = [
        Bar(
            r.duration_s,
            f"round {r.round:,}: {seconds(r.duration_s)}, {r.n_fresh} of {r.n_invited} responded"
            + (f", waited for {_names(r.last)}" if r.last else ""),
            is_marked=r.n_fresh < r.n_invited,
        )
        for r in known
    ]
    ends = f"round {known[0].round:,}", f"round {known[-1].round:,}"
    key = (
        '<p class="note"><span class="key">all invited clients responded in time</span> &nbsp; '
        '<span class="key marked">some did not</span></p>'
    )
    return bars(drawn, unit=" s", ends=ends) + key


def _stragglers(sums: Followed, latencies: dict[Any, Latency]) -> str:
    worst = nlargest(SHOWN, sums.clients.items(), key=lambda item: item[1].lost_s)
    worst = [(client, one) for client, one in worst if one.lost_s > 0]
    if not worst:
        return NONE_YET
    note = (
        "Seconds lost: the time between a client's response and the one before, in all rounds that "
        "waited for it; clients that come last together share it."
    )
    return _clients(worst, sums, latencies, "stragglers") + f'<p class="note">{note}</p>'


def _speeds(latencies: dict[Any, Latency]) -> str:
    """Return how fast clients are, and the slowest with their intervals."""
    if not latencies:
        return NONE_YET
    medians = [middle for middle, _, _ in latencies.values()]
    half, nine, all_ = (float(np.percentile(medians, q)) for q in (50, 90, 100))
    slowest = nlargest(SHOWN, latencies.items(), key=lambda item: item[1][0])
    least, most = min(low for _, (_, low, _) in slowest), max(high for _, (_, _, high) in slowest)
    columns = [Column("client"), Column("80 % of responses"), Column("latency (s)")]
    rows = []
    for client, (middle, low, high) in slowest:
        drawn = Cell(spread(low, middle, high, least=least, most=most), high - low)
        rows.append([client_cell(client), drawn, latency_cell(middle, low, high)])
    words = (
        f"Of the {len(latencies):,} clients that have responded, 50 % have a median latency of at "
        f"most {seconds(half)}, 90 % of at most {seconds(nine)}; the slowest has {seconds(all_)}."
    )
    scale = (
        f"The slowest {len(rows)}; the upright mark is the median, and the scale is logarithmic, "
        f"{figure(least)} to {seconds(most)}."
    )
    shown = table(columns, rows, name="speeds")
    return f'<p>{text(words)}</p><div class="narrow">{shown}</div><p class="note">{text(scale)}</p>'


def _participation(sums: Followed) -> str:
    if not sums.fair_count:
        return NONE_YET
    ratios = np.array([one.n_fresh / sums.fair_count for one in sums.clients.values()])
    counts, _ = np.histogram(ratios, RATIOS)
    names = [f"{low:g} to {high:g}" for low, high in pairwise(RATIOS[:-1])]
    most = max(counts.max(), 1)
    rows = []
    for i, (name, n) in enumerate(zip([*names, f"above {RATIOS[-2]:g}"], counts, strict=True)):
        fair = " (fair)" if RATIOS[i] <= 1.0 < RATIOS[i + 1] else ""
        rows.append([Cell(name + fair, i), Cell(part(n / most, f"{n:,}"), int(n))])
    note = (
        "Participation ratio: fresh responses over the fair count of a client that was always "
        "available. A client that was unavailable in some rounds has a lower one; clients that "
        "were never invited are not counted."
    )
    shown = table([Column("participation ratio"), Column("clients")], rows, name="ratios")
    return f'<div class="narrow">{shown}</div><p class="note">{text(note)}</p>'


def _hours(sums: Followed) -> str:
    """Return how many clients were available, by hour of the day."""
    n_hours, n_rounds = sum(n > 0 for n in sums.n_by_hour), sum(sums.n_by_hour)
    if not n_hours:
        return "<p>The journal has no times.</p>"
    if n_hours < FEW_HOURS:
        usual = sum(sums.n_available) / n_rounds
        return (
            f"<p>{text(figure(usual))} clients were available in a round, on average. The day is "
            f"drawn here when {FEW_HOURS} of its hours have rounds.</p>"
        )
    drawn = []
    for hour in range(HOURS):
        n = sums.n_by_hour[hour]
        mean = sums.n_available[hour] / n if n else None
        about = f"{hour}:00 to {hour + 1}:00: "
        about += "no round" if mean is None else f"{figure(mean)} available, {n:,} rounds"
        drawn.append(Bar(mean, about))
    note = "Mean number of available clients, by the clock of this machine."
    return bars(drawn, ends=("0:00", "24:00")) + f'<p class="note">{note}</p>'
