"""Servers that drip, lie, or never end: each is one line of the error, and the next is tried.

What a server does here it does for ever, so that no test depends on how quick the machine is.
"""

import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from fake_data import fake_fashion, write_idx

from bsfl.errors import NoSource
from bsfl.learning.datasets import Limits, Watcher
from bsfl.learning.datasets.load import obtain
from bsfl.learning.datasets.sources import Source, from_addresses

N_BYTES = 200_000
GOOD = b"HTTP/1.1 200 OK\r\nContent-Type: application/gzip\r\n"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def serve():
    """Let a function answer every connection on a port of this machine; return the address."""
    stop, threads, sockets = threading.Event(), [], []

    def start(answer):
        listener = socket.create_server(("127.0.0.1", 0))
        sockets.append(listener)

        def one(connection):
            with connection, suppress(OSError):
                connection.recv(65_536)
                answer(connection, stop)

        def accept():
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    sockets.append(connection)
                    thread = threading.Thread(target=one, args=(connection,), daemon=True)
                    threads.append(thread)
                    thread.start()

        thread = threading.Thread(target=accept, daemon=True)
        threads.append(thread)
        thread.start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/file.gz"

    yield start
    stop.set()
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
    for thread in threads:
        thread.join(timeout=20)


def drip(connection, stop, piece=b"x", pause_s=0.01):
    while not stop.wait(pause_s):
        connection.sendall(piece)


def dripping_body(connection, stop):
    connection.sendall(GOOD + b"Content-Length: 100000\r\n\r\n")
    drip(connection, stop)


def dripping_chunks(connection, stop):
    connection.sendall(GOOD + b"Transfer-Encoding: chunked\r\n\r\n")
    drip(connection, stop, b"1\r\nx\r\n")


def dripping_headers(connection, stop):
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    drip(connection, stop)


def dripping_chunk_length(connection, stop):
    connection.sendall(GOOD + b"Transfer-Encoding: chunked\r\n\r\n")
    drip(connection, stop, b"0")


def silence(connection, stop):
    stop.wait()


def silent_body(connection, stop):
    connection.sendall(GOOD + b"Content-Length: 100000\r\n\r\nabc")
    stop.wait()


def endless(connection, stop):
    connection.sendall(GOOD + b"\r\n")
    drip(connection, stop, bytes(65_536), pause_s=0.0)


def endless_chunks(connection, stop):
    connection.sendall(GOOD + b"Transfer-Encoding: chunked\r\n\r\n")
    drip(connection, stop, b"10000\r\n" + bytes(65_536) + b"\r\n", pause_s=0.0)


def endless_gzip(connection, stop):
    connection.sendall(GOOD + b"Content-Encoding: gzip\r\n\r\n")
    drip(connection, stop, bytes(65_536), pause_s=0.0)


def announces(n_bytes, body=b""):
    def answer(connection, stop):
        connection.sendall(GOOD + b"Content-Length: " + n_bytes + b"\r\n\r\n" + body)

    return answer


def redirects(connection, stop):
    """Redirect to itself, with a body that never ends."""
    connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: /file.gz\r\n\r\n")
    drip(connection, stop, bytes(65_536), pause_s=0.0)


def to_a_file(connection, stop):
    where = b"file:///etc/passwd"
    connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: " + where + b"\r\n\r\n")


def rude(connection, stop):
    connection.sendall(b"HTTP/1.1 500 \x1b[2Jwiped\r\nContent-Length: 0\r\n\r\n")


def nonsense(connection, stop):
    connection.sendall(b"\xff\xfe what is this?\r\n\r\n")


def many_headers(connection, stop):
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    drip(connection, stop, b"X: y\r\n" * 1000, pause_s=0.0)


SLOW = {"seconds": 3600.0, "stall_s": 0.3}
LONG = {"seconds": 0.3, "stall_s": 3600.0}
FREE = {"seconds": 3600.0, "stall_s": 3600.0}
CASES = [
    (dripping_body, SLOW, r"stalled, \d+ bytes in 0\.3 s"),
    (dripping_chunks, SLOW, r"stalled, \d+ bytes in 0\.3 s"),
    (dripping_headers, SLOW, r"stalled, 0 bytes in 0\.3 s"),
    (dripping_chunk_length, SLOW, r"stalled, 0 bytes in 0\.3 s"),
    (silence, SLOW, r"stalled, 0 bytes in 0\.3 s"),
    (silent_body, SLOW, r"stalled, \d+ bytes in 0\.3 s"),
    (dripping_body, LONG, r"not finished within 0\.3 s"),
    (dripping_chunks, LONG, r"not finished within 0\.3 s"),
    (dripping_headers, LONG, r"not finished within 0\.3 s"),
    (endless, FREE, "sends more than the 200,000 bytes expected"),
    (endless_chunks, FREE, "sends more than the 200,000 bytes expected"),
    (endless_gzip, FREE, "sends more than the 200,000 bytes expected"),
    (announces(b"200001"), FREE, "announces 200,001 bytes, at most 200,000 are expected"),
    (announces(b"9" * 5000), FREE, r"official address: \S"),
    (announces(b"1000", b"short"), FREE, r"broke \(.*5 bytes read|ended after 5 of 1,000 bytes"),
    (announces(b"-5", b"short"), FREE, r"official address: \S"),
    (announces(b"many", b"short"), FREE, "is not an IDX file of bytes"),
    (announces(b"3", b"longer than it says"), FREE, "is not an IDX file of bytes"),
    (redirects, FREE, "redirects more than 5 times"),
    (to_a_file, FREE, "No connection adapters"),
    (rude, FREE, r"500 Server Error: \?\[2Jwiped"),
    (nonsense, FREE, r"official address: \S"),
    (many_headers, FREE, r"official address: \S"),
]


@pytest.mark.parametrize(
    ("answer", "limits", "message"),
    CASES,
    ids=[f"{i}-{getattr(case[0], '__name__', '')}" for i, case in enumerate(CASES)],
)
def test_a_server_of_ill_will_costs_a_line(serve, tmp_path, answer, limits, message):
    entry, arrays = fake_fashion()
    write_idx(tmp_path / "good", arrays)
    names = [f"{name}" for name in entry.layouts[0].names if name.endswith(".gz")]
    url = serve(answer).removesuffix("file.gz")
    worked_in, lines = [], []
    download = from_addresses([url + name for name in names], Limits(n_bytes=N_BYTES, **limits))

    def provide(work, watcher):
        worked_in.append(work)
        return download.provide(work, watcher)

    watcher = Watcher(say=lines.append)
    bad = Source("official address", provide)
    with pytest.raises(NoSource, match=message) as caught:
        obtain(entry, [bad], watcher)
    assert len(str(caught.value).splitlines()) == 2
    assert all(c.isprintable() for c in lines[-1])
    assert len(lines[-1]) < 600
    good = Source("the next", lambda work, watcher: tmp_path / "good")
    assert obtain(entry, [bad, good], watcher).source == "the next"
    assert not any(Path(work).exists() for work in worked_in), "nothing is left"
