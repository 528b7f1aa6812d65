"""A live page of a journal, for this machine alone: it reads, and takes no orders."""

import threading
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from bsfl.monitor.follow import ClientSums, Followed, Follower
from bsfl.monitor.page import html_table, page, shown
from bsfl.monitor.words import seconds

HOST, PORT, REFRESH_S = "127.0.0.1", 8571, 5
SHOWN = 15
"""Clients that a table shows."""
SHARES = (0.0, 0.25, 0.5, 0.8, 1.25, 2.0, np.inf)
"""Bounds of shares by which clients are counted."""
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def server(path: Path, port: int = PORT) -> ThreadingHTTPServer:
    """Return a server of the page, on 127.0.0.1; port 0: any that is free."""
    follower, alone = Follower(path), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Send the page; another host name than ours is another site's trick."""
            address = urlsplit(self.path)
            host = (self.headers.get("Host") or "").rpartition(":")[0] or self.headers.get("Host")
            if host not in (HOST, "localhost"):
                self.send_error(HTTPStatus.FORBIDDEN)
                return
            if address.path != "/":
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            wanted = parse_qs(address.query).get("client", [""])[0]
            with alone:
                content = journal_page(path.name, follower.update(), wanted).encode()
            self.send_response(HTTPStatus.OK)
            for name, value in HEADERS.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing of every request."""

    return ThreadingHTTPServer((HOST, port), Handler)


def journal_page(title: str, sums: Followed, wanted: str = "") -> str:
    """Return the page of a journal so far.

    Args:
        title: Its name.
        sums: What it holds.
        wanted: The id of a client to show alone; "": none.
    """
    parts = [f'<meta http-equiv="refresh" content="{REFRESH_S}">', _search(sums, wanted)]
    mean = sums.total_s / sums.n_rounds if sums.n_rounds else None
    parts.append(
        f"<p>{sums.n_rounds:,} rounds of {shown(seconds(mean))} on average, "
        f"{len(sums.clients):,} clients invited, Gini of their answers {sums.evenness():.2f}</p>"
    )
    parts.append(f"<h2>How long did rounds take?</h2>{_times(sums)}")
    parts.append(f"<h2>Whom did they wait for?</h2>{_stragglers(sums)}")
    parts.append(f"<h2>Who takes part?</h2>{_participation(sums)}")
    parts.append(f"<h2>The last cohorts</h2>{_cohorts(sums)}")
    return page(title, "".join(parts))


def _search(sums: Followed, wanted: str) -> str:
    value = escape(wanted.encode("utf-8", "backslashreplace").decode(), quote=True)
    form = f'<form>client <input name="client" value="{value}"> <button>show</button></form>'
    if not wanted:
        return form
    found = sums.clients.get(wanted)
    if found is None and wanted.lstrip("-").isdecimal():
        found = sums.clients.get(int(wanted))
    if found is None:
        return f"{form}<p>{shown(wanted)} was never invited</p>"
    return form + html_table(COLUMNS, [_row(wanted, found, sums)])


COLUMNS = (
    "client",
    "invited",
    "ok",
    "timeout",
    "failed",
    "late",
    "mean s",
    "lost s",
    "share",
    "last",
)


def _row(client: Any, one: ClientSums, sums: Followed) -> list[Any]:
    mean = one.sum_s / one.n_ok if one.n_ok else None
    share = one.n_ok / sums.fair if sums.fair else None
    counts = [one.n_invited, one.n_ok, one.n_timeouts, one.n_failed, one.n_late]
    return [client, *counts, mean, one.lost_s, share, one.last_t]


def _times(sums: Followed) -> str:
    """Return the durations of the last rounds, drawn as bars."""
    known = [(t, s) for t, s, _ in sums.rounds if s is not None]
    if not known:
        return "<p>no round is over yet</p>"
    highest = max(s for _, s in known) or 1.0
    width = 100.0 / len(known)
    bars = "".join(
        f'<rect x="{i * width:.3f}" y="{100 - 100 * s / highest:.2f}" width="{width * 0.8:.3f}" '
        f'height="{100 * s / highest:.2f}" fill="#3d6b9e">'
        f"<title>round {t}: {shown(seconds(s))}</title></rect>"
        for i, (t, s) in enumerate(known)
    )
    scale = f"<p class=note>the last {len(known):,} rounds, up to {shown(seconds(highest))}</p>"
    return f'<svg viewBox="0 0 100 100" preserveAspectRatio="none">{bars}</svg>{scale}'


def _stragglers(sums: Followed) -> str:
    worst = sorted(sums.clients.items(), key=lambda item: -item[1].lost_s)[:SHOWN]
    rows = [_row(client, one, sums) for client, one in worst if one.lost_s > 0]
    note = "lost s: how much shorter rounds had been without it, waiting for the next slowest"
    return html_table(COLUMNS, rows) + f"<p class=note>{note}</p>"


def _participation(sums: Followed) -> str:
    if not sums.fair:
        return "<p>no round is over yet</p>"
    shares = np.array([one.n_ok / sums.fair for one in sums.clients.values()])
    counts, _ = np.histogram(shares, SHARES)
    names = [f"{low:g} to {high:g}" for low, high in pairwise(SHARES[:-1])]
    rows = list(zip([*names, f"above {SHARES[-2]:g}"], counts.tolist(), strict=True))
    note = (
        "share: answers in the model over the fair number of a client that was always available; "
        "who was away has less through no fault of its own, who was never invited is not counted"
    )
    return html_table(("share", "clients"), rows) + f"<p class=note>{note}</p>"


def _cohorts(sums: Followed) -> str:
    rows = []
    for entry in reversed(sums.cohorts):
        pairs = zip(entry["invited"], entry["outcome"], strict=True)
        who = [f"{client} ({how or 'awaited'})" for client, how in pairs]
        more = f" and {len(who) - SHOWN:,} more" if len(who) > SHOWN else ""
        row = entry["t"], entry["duration_s"], entry["available"], ", ".join(who[:SHOWN]) + more
        rows.append(row)
    return html_table(("round", "seconds", "available", "invited"), rows)
