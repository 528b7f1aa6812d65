"""The live page: what a journal says so far, the most pressing first."""

import time
from collections.abc import Iterable, Sequence
from heapq import nlargest
from itertools import pairwise
from typing import Any

import numpy as np

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
from bsfl.monitor.cohorts import cohorts
from bsfl.monitor.follow import HOURS, ClientSums, Followed
from bsfl.monitor.page import cell, client_cell, latency_cell, share_cell
from bsfl.monitor.words import GINI, figure, named, seconds

SHOWN = 15
"""Clients that a table shows."""
RECENT = 50
"""Rounds that count as recent."""
OVERDUE = 3.0
"""A round that takes so many times as long as usual is worth a word."""
SHARES = (0.0, 0.25, 0.5, 0.8, 1.25, 2.0, np.inf)
"""Bounds of shares by which clients are counted."""
FEW_HOURS = 4
"""Fewer hours of the day than that are no picture of it."""
FATES: dict[Any, str] = {"timeout": "missed the deadline", "failed": "failed"}
NONE_YET = "<p>No round is over yet.</p>"


def journal_page(title: str, sums: Followed, wanted: str = "", now: float | None = None) -> str:
    """Return the page of a journal so far.

    Args:
        title: Its name.
        sums: What it holds.
        wanted: The id of a client to show alone; "": none.
        now: Seconds since 1970; None: by the clock.
    """
    now = time.time() if now is None else now
    sections = {
        "How long do rounds take?": _times(sums),
        "Whom do they wait for?": _stragglers(sums),
        "How fast are clients?": _speeds(sums),
        "Who takes part?": _participation(sums),
        "When are clients there?": _hours(sums),
        "The last cohorts, and why they were chosen": cohorts(sums.cohorts) or NONE_YET,
    }
    body = _search(sums, wanted) + _facts(sums, now)
    body += "".join(f"<h2>{text(question)}</h2>{part}" for question, part in sections.items())
    verdict = [_verdict(sums), *_under_way(sums, now)]
    if sums.waiting is not None and _is_long(sums, now - sums.waiting.since):
        verdict.reverse()  # the most pressing first
    title = f"The rounds in {title}"
    return page(title, body, verdict=verdict, scripts=[asset("live.js")], is_live=True)


def _verdict(sums: Followed) -> str:
    """Return how long rounds take, and who costs most."""
    recent = [r for r in list(sums.rounds)[-RECENT:] if r.duration_s is not None]
    if not recent:
        return "No round is over yet."
    mean, last = sum(r.duration_s or 0.0 for r in recent) / len(recent), sums.rounds[-1]
    if last.duration_s is None:
        return f"Rounds take {seconds(mean)} of late; of round {last.t:,} no time is known."
    words = f"Rounds take {seconds(mean)} of late; round {last.t:,} took {seconds(last.duration_s)}"
    if last.last:
        words += f" and waited for {_names(last.last)}"
        told = dict(zip(sums.cohorts[-1]["invited"], sums.cohorts[-1]["outcome"], strict=True))
        fates = {FATES.get(told.get(client), "") for client in last.last}
        words += f", which {fates.pop()}" if len(fates) == 1 and fates != {""} else ""
    return f"{words}."


def _names(clients: Sequence[Any], n: int | None = None, most: int = 3) -> str:
    """Return the first of n clients by name; None: of all that are given."""
    known = [f"client {x}" if f"{x}".isdecimal() else named(x) for x in clients[:most]]
    more = (len(clients) if n is None else n) - len(known)
    return ", ".join(known) + (f" and {more:,} more" if more > 0 else "")


def _under_way(sums: Followed, now: float) -> list[str]:
    """Return for whom the round under way waits; that nothing is new, if it is not known of."""
    if (one := sums.waiting) is not None:
        return [
            f"Round {one.t:,} has been under way for {_ago(now - one.since)}: "
            f"{one.n_invited - one.n_waits_for:,} of {one.n_invited:,} have answered, it waits for "
            f"{_names(one.waits_for, one.n_waits_for)}."
        ]
    if sums.ended is None or not _is_long(sums, since := now - sums.ended):
        return []
    return [
        f"Nothing new for {_ago(since)}, where a round takes {seconds(sums.mean_s)}: "
        "one takes long, or training is over."
    ]


def _is_long(sums: Followed, span_s: float) -> bool:
    """Return whether a span of time is much longer than a round."""
    return sums.mean_s is not None and span_s >= max(OVERDUE * sums.mean_s, 10.0)


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
    ended = "" if sums.ended is None else f"the last {_ago(now - sums.ended)} ago"
    known = [
        ("rounds", f"{sums.n_rounds:,}", ended),
        ("mean round", seconds(sums.mean_s), "over all rounds"),
        ("clients invited", f"{len(sums.clients):,}", "at least once"),
        ("Gini of answers", f"{sums.evenness():.2f}", GINI),
    ]
    if worst and worst[1].lost_s > 0:
        lost = f"{seconds(worst[1].lost_s)} lost, {_percent(worst[1].lost_s, sums.total_s)}"
        known.insert(2, ("waited most for", _names([worst[0]]), lost))
    return facts(known)


def _percent(one: float, all_: float) -> str:
    part = 100 * one / all_ if all_ > 0 else 0.0
    return f"{part:.0f} %" if part >= 10 else f"{part:.1f} %"


def _search(sums: Followed, wanted: str) -> str:
    form = (
        '<form role="search"><input type="search" id="client" name="client" '
        f'aria-label="find a client by its id" placeholder="a client\'s id" value="{text(wanted)}">'
        "<button>find</button></form>"
    )
    line = f'<div class="status"><span class="note" id="live">live</span>{form}</div>'
    if not wanted:
        return line
    found = sums.clients.get(wanted)
    if found is None and wanted.lstrip("-").isdecimal():
        found = sums.clients.get(int(wanted))
    if found is None:
        return f'{line}<p class="warn">{text(wanted)} was never invited.</p>'
    return line + _clients([(wanted, found)], sums, "found")


def _clients(which: Iterable[tuple[Any, ClientSums]], sums: Followed, name: str) -> Markup:
    """Return a row for each of some clients."""
    columns = [
        Column("client"),
        Column("seconds lost", about="how much shorter rounds had been without it, of all time"),
        Column("came last", about="rounds that waited for it to the end"),
        Column("usually takes (s)", about="the median; 8 of 10 answers come between the others"),
        Column("in time", about="answers in the model"),
        Column("missed", about="deadlines that it missed"),
        Column("failed"),
        Column("late", about="answers that came when the round was over"),
        Column("share", about="answers over the fair number of a client that is always there"),
        Column("last invited", about="the round"),
    ]
    rows = []
    for client, one in which:
        share = one.n_ok / sums.fair if sums.fair else None
        counts = (one.n_ok, one.n_timeouts, one.n_failed, one.n_late)
        rows.append(
            [
                client_cell(client),
                Cell(f"{figure(one.lost_s)} ({_percent(one.lost_s, sums.total_s)})", one.lost_s),
                cell(one.n_last),
                latency_cell(*(one.latency_s or (None, None, None))),
                *map(cell, counts),
                share_cell(share),
                cell(one.last_t),
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
            f"round {r.t:,}: {seconds(r.duration_s)}, {r.n_ok} of {r.n_invited} in time"
            + (f", waited for {_names(r.last)}" if r.last else ""),
            is_marked=r.n_ok < r.n_invited,
        )
        for r in known
    ]
    ends = f"round {known[0].t:,}", f"round {known[-1].t:,}"
    key = (
        '<p class="note"><span class="key">all who were invited answered in time</span> &nbsp; '
        '<span class="key marked">somebody did not</span></p>'
    )
    return bars(drawn, unit=" s", ends=ends) + key


def _stragglers(sums: Followed) -> str:
    worst = nlargest(SHOWN, sums.clients.items(), key=lambda item: item[1].lost_s)
    worst = [(client, one) for client, one in worst if one.lost_s > 0]
    if not worst:
        return NONE_YET
    note = (
        "Seconds lost: the time between the next slowest answer and its own, in all rounds that it "
        "held up; those that come last together share it."
    )
    return _clients(worst, sums, "stragglers") + f'<p class="note">{note}</p>'


def _speeds(sums: Followed) -> str:
    """Return how fast the fleet is, and the slowest with their intervals."""
    timed = [(*one.latency_s, client) for client, one in sums.clients.items() if one.latency_s]
    if not timed:
        return NONE_YET
    half, nine, all_ = (float(np.percentile([x[0] for x in timed], q)) for q in (50, 90, 100))
    slowest = nlargest(SHOWN, timed, key=lambda x: x[0])
    least, most = (f([x[i] for x in slowest]) for f, i in ((min, 1), (max, 2)))
    columns = [Column("client"), Column("8 of 10 answers"), Column("usually takes (s)")]
    rows = []
    for middle, low, high, client in slowest:
        drawn = Cell(spread(low, middle, high, least=least, most=most), high - low)
        rows.append([client_cell(client), drawn, latency_cell(middle, low, high)])
    words = (
        f"Half of the {len(timed):,} clients that have answered usually take {seconds(half)} or "
        f"less, nine of ten {seconds(nine)}, the slowest {seconds(all_)}."
    )
    scale = (
        f"The slowest {len(rows)}; the upright mark is the median, and the scale is logarithmic, "
        f"{figure(least)} to {seconds(most)}."
    )
    shown = table(columns, rows, name="speeds")
    return f'<p>{text(words)}</p><div class="narrow">{shown}</div><p class="note">{text(scale)}</p>'


def _participation(sums: Followed) -> str:
    if not sums.fair:
        return NONE_YET
    shares = np.array([one.n_ok / sums.fair for one in sums.clients.values()])
    counts, _ = np.histogram(shares, SHARES)
    names = [f"{low:g} to {high:g}" for low, high in pairwise(SHARES[:-1])]
    most = max(counts.max(), 1)
    rows = []
    for i, (name, n) in enumerate(zip([*names, f"above {SHARES[-2]:g}"], counts, strict=True)):
        target = " (the target)" if SHARES[i] <= 1.0 < SHARES[i + 1] else ""
        rows.append([Cell(name + target, i), Cell(part(n / most, f"{n:,}"), int(n))])
    note = (
        "Share: answers in the model over the fair number of a client that was always available. "
        "Who was away has less through no fault of its own; who was never invited is not counted."
    )
    shown = table([Column("share"), Column("clients")], rows, name="shares")
    return f'<div class="narrow">{shown}</div><p class="note">{text(note)}</p>'


def _hours(sums: Followed) -> str:
    """Return how many clients were available, by hour of the day."""
    n_hours, n_rounds = sum(n > 0 for n in sums.n_by_hour), sum(sums.n_by_hour)
    if not n_hours:
        return "<p>The journal has no times.</p>"
    if n_hours < FEW_HOURS:
        usual = sum(sums.n_available) / n_rounds
        return (
            f"<p>{text(figure(usual))} clients could be chosen in a round, on average. The day "
            f"is drawn here when {FEW_HOURS} of its hours have rounds.</p>"
        )
    drawn = []
    for hour in range(HOURS):
        n = sums.n_by_hour[hour]
        mean = sums.n_available[hour] / n if n else None
        about = f"{hour}:00 to {hour + 1}:00: "
        about += "no round" if mean is None else f"{figure(mean)} available, {n:,} rounds"
        drawn.append(Bar(mean, about))
    note = "Mean number of clients that could be chosen, by the clock of this machine."
    return bars(drawn, ends=("0:00", "24:00")) + f'<p class="note">{note}</p>'
