"""A server of the live page of a journal, for this machine alone; it only reads."""

import ipaddress
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bsfl.dashboard.follow import Follower
from bsfl.dashboard.live import journal_page

HOST, PORT = "127.0.0.1", 8571
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def server(path: Path, port: int = PORT, host: str = HOST) -> ThreadingHTTPServer:
    """Return a server of the page; port 0: any that is free.

    With another host than 127.0.0.1 the page is shown to anyone who can reach it.
    """
    follower, alone = Follower(path), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Send the page; a foreign host name means that another site points here."""
            address = urlsplit(self.path)
            if not is_ours(self.headers.get("Host") or "", host):
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
            """Do not log requests."""

    return ThreadingHTTPServer((host, port), Handler)


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
