"""A server of the live page of a journal, for this machine alone; it only reads."""

import hashlib
import ipaddress
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bsfl.dashboard.follow import Follower
from bsfl.dashboard.live import View, client_part, draw, headline_part, live_page
from bsfl.dashboard.pictures import Estimate
from bsfl.estimators.random_rounds import random_round_s
from bsfl.html import Markup
from bsfl.monitoring.effect import Effect
from bsfl.validation import in_short

HOST, PORT = "127.0.0.1", 8571
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
MAX_CONNECTIONS, REQUEST_S = 32, 15.0
"""Connections at a time, and how long each may take."""
LOOK_S = 0.5
"""How often the journal is looked at."""
IDLE_PART = 50.0
"""Parts are drawn, and random selection is estimated, at most in one of so many seconds."""


class Watched:
    """A journal that is followed by a thread, and the parts of its page as they were drawn last."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, threading.Lock()
        self.follower = Follower(path)
        self.follower.update()
        self.estimate: Estimate | None = None
        self.effect: Effect | None = None
        self.fault = ""
        self._estimated = 0, 0.0  # with so many rounds, and when next at the earliest
        self._drawn: tuple[Any, float] = None, 0.0  # from what, and when next at the earliest
        self._parts: dict[str, tuple[str, Markup]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        """Follow the journal until `stop` is called."""
        self._estimate()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stop.set()

    def _follow(self) -> None:
        while not self._stop.is_set():
            with self.lock:
                self._read(self.follower.update)
            self._read(self.follower.catch_up)
            self._estimate()
            self._stop.wait(0.01 if self.follower.part_read < 1.0 else LOOK_S)

    def _read(self, step: Callable[[], None]) -> None:
        """Read some of the journal, and keep why it cannot be read for the page."""
        try:
            step()
            self.fault = ""
        except OSError as error:
            self.fault = in_short(error)

    def _estimate(self) -> None:
        """Estimate random selection anew, if rounds have closed and it is time."""
        n, due = self._estimated
        with self.lock:
            sums = self.follower.shown.sums
            given = sums.random_selection() if sums.n_measured != n else None
        if given is not None and time.monotonic() >= due:
            start = time.monotonic()
            self.estimate = random_round_s(*given)
            end = time.monotonic()
            self._estimated = sums.n_measured, end + IDLE_PART * (end - start)

    def parts(self) -> dict[str, tuple[str, Markup]]:
        """Return the parts of the page with their digests."""
        with self.lock:
            self._read(self.follower.update)
            state = self.follower.shown.sums.n_entries, self.estimate
            if self._drawn[0] != state and time.monotonic() >= self._drawn[1]:
                start = time.monotonic()
                sums = self.follower.shown.sums
                self.effect = sums.blocks.effect()
                drawn = draw(sums, self.estimate, self.effect)
                self._parts = {name: _digested(one) for name, one in drawn.items()}
                end = time.monotonic()
                self._drawn = state, end + IDLE_PART * (end - start)
            return self._parts | {"headline": _digested(headline_part(self._view()))}

    def page(self, wanted: str) -> Markup:
        """Return the whole page."""
        parts = self.parts()
        with self.lock:
            return live_page(self._view(), parts, wanted)

    def changed(self, have: str) -> dict[str, Any]:
        """Return the parts whose digests are not among NAME:DIGEST,NAME:DIGEST,..."""
        known = set(have.split(","))
        parts = {k: one for k, one in self.parts().items() if f"{k}:{one[0]}" not in known}
        return {"parts": parts, "has_spans": self._view().has_spans}

    def client(self, row: str) -> dict[str, Any]:
        """Return what is known of the client with this row."""
        with self.lock:
            sums = self.follower.shown.sums
            is_known = row.isdecimal() and len(row) < 10 and int(row) < len(sums.names)
            return {"html": client_part(sums, int(row) if is_known else None)}

    def _view(self) -> View:
        known = self.estimate, self.effect
        return View(self.path.name, self.follower, *known, time.time(), self.fault)


def _digested(part: Markup) -> tuple[str, Markup]:
    return hashlib.sha256(part.encode()).hexdigest()[:16], part


class Server(ThreadingHTTPServer):
    """Serves a few connections at a time, each for a short time."""

    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], watched: Watched) -> None:
        self.watched = watched
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, Handler)
        watched.start()

    def server_close(self) -> None:
        """Stop following, too."""
        self.watched.stop()
        super().server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread, or close the connection if there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, and cut it if it takes too long."""
        timer = threading.Timer(REQUEST_S, _cut, [request])
        timer.daemon = True
        timer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print what went wrong, but not that a reader has gone."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _cut(request: socket.socket) -> None:
    with suppress(OSError):  # it has just ended
        request.shutdown(socket.SHUT_RDWR)


class Handler(BaseHTTPRequestHandler):
    """Answers requests for the page, for its parts and for clients."""

    server: Server

    def do_GET(self) -> None:
        """Send what is asked for; a foreign host name means that another site points here."""
        address, watched = urlsplit(self.path), self.server.watched
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        if not is_ours(self.headers.get("Host") or "", str(self.server.server_address[0])):
            self.send_error(HTTPStatus.FORBIDDEN)
        elif address.path == "/":
            self._send("text/html; charset=utf-8", watched.page(query.get("client", "")))
        elif address.path == "/parts":
            self._send("application/json", json.dumps(watched.changed(query.get("have", ""))))
        elif address.path == "/client":
            self._send("application/json", json.dumps(watched.client(query.get("row", ""))))
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(HTTPStatus.OK)
        headers = {"Content-Type": kind, "Content-Length": str(len(content)), **HEADERS}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Do not log requests."""


def server(path: Path, port: int = PORT, host: str = HOST) -> Server:
    """Return a server of the page; port 0: any that is free.

    With another host than 127.0.0.1 the page is shown to anyone who can reach it.
    """
    return Server((host, port), Watched(path))


def is_ours(named: str, host: str) -> bool:
    """Return whether a request names this server, and not a site that points here.

    >>> is_ours("127.0.0.1:8571", HOST), is_ours("evil.example:8571", HOST)
    (True, False)
    >>> is_ours("10.0.0.7", HOST), is_ours("10.0.0.7", "0.0.0.0")
    (False, True)
    """
    name = (urlsplit(f"//{named}").hostname or "").lower()
    if name in (HOST, "localhost", "::1", host.lower()):
        return True
    if host == HOST:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == socket.gethostname().lower()
    return True
