"""Files from the network and from programs that fetch them, within limits of bytes and seconds.

A server may announce anything, send for ever, or a byte a minute. So another thread receives, and
this one counts, looks at the clock and gives up: nothing that a server does can hold it.
"""

import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from bsfl.errors import DataError
from bsfl.extras import optional_module

CONNECT_TIMEOUT_S = 20.0
MAX_REDIRECTS = 5
CHUNK_BYTES = 1 << 14
LEAST_BYTES = 1 << 14
"""Bytes that must arrive within Limits.stall_s: about 0.5 KB/s."""
POLL_S = 0.05
"""Seconds between two looks at what a program has written."""
N_LAST_BYTES = 1 << 16
"""Bytes of a program's words that are read for the reason of its failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one source may cost.

    Attributes:
        n_bytes: Most bytes on the disk, all files together.
        seconds: Most seconds, all files together.
        stall_s: Seconds within which a server must send LEAST_BYTES.
    """

    n_bytes: int
    seconds: float = 3600.0
    stall_s: float = 30.0

    def after(self, n_bytes: int, seconds: float) -> "Limits":
        """Return what is left when some of it was spent."""
        return replace(self, n_bytes=self.n_bytes - n_bytes, seconds=self.seconds - seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Who wants to know how it goes.

    Attributes:
        say: Gets one line per source: what is tried, and why it failed.
        received: Gets the bytes that have arrived and the total; 0: the server did not tell.
    """

    say: Callable[[str], None] = lambda line: None
    received: Callable[[int, int], None] = lambda n_bytes, n_total: None


def download(url: str, folder: Path, watcher: Watcher, limits: Limits) -> Path:
    """Return the file at a web address, put in a folder under its own name."""
    pooch = optional_module("pooch")
    pooch.get_logger().setLevel("WARNING")

    def fetch(address: str, output: str, _: Any) -> None:
        _write(address, Path(output), watcher, limits)

    # Not checked here: the decoded arrays are, and compressed files may differ.
    name = url.rpartition("/")[2]
    return Path(pooch.retrieve(url, None, fname=name, path=folder, downloader=fetch))


def _write(url: str, path: Path, watcher: Watcher, limits: Limits) -> None:
    """Write what arrives to a file, until it is whole or breaks a limit."""
    stop, pace = threading.Event(), _Pace(url, limits)
    arrived: queue.Queue[int | bytes | Exception] = queue.Queue(maxsize=16)
    threading.Thread(target=_receive, args=(url, limits, arrived, stop), daemon=True).start()
    n_bytes = announced = 0
    try:
        with path.open("wb") as file:
            while (piece := pace.next(arrived)) != b"":
                if isinstance(piece, Exception):
                    raise piece
                if isinstance(piece, int):
                    announced = piece
                    continue
                n_bytes += len(piece)
                if n_bytes > limits.n_bytes:
                    raise DataError(f"{url}: sends more than the {limits.n_bytes:,} bytes expected")
                file.write(piece)
                watcher.received(n_bytes, announced)
    finally:
        stop.set()
    if announced and n_bytes != announced:
        raise DataError(f"{url}: ended after {n_bytes:,} of {announced:,} bytes")


class _Pace:
    """The clock of a download: how long it may take, and how slow it may be."""

    def __init__(self, url: str, limits: Limits) -> None:
        self.url, self.limits = url, limits
        now = time.monotonic()
        self.last = now + limits.seconds
        self.window_ends, self.n_bytes = now + limits.stall_s, 0

    def next(self, arrived: "queue.Queue[int | bytes | Exception]") -> int | bytes | Exception:
        """Return what arrives next, or say which limit is broken."""
        while True:
            left_s = min(self.last, self.window_ends) - time.monotonic()
            try:
                piece = arrived.get(timeout=max(left_s, 0.0))
            except queue.Empty:
                piece = None
            self.n_bytes += len(piece) if isinstance(piece, bytes) else 0
            self._check(time.monotonic())
            if piece is not None:
                return piece

    def _check(self, now: float) -> None:
        if now >= self.last:
            raise DataError(f"{self.url}: not finished within {self.limits.seconds:g} s")
        if now >= self.window_ends:
            if self.n_bytes < LEAST_BYTES:
                raise DataError(
                    f"{self.url}: stalled, {self.n_bytes:,} bytes in {self.limits.stall_s:g} s"
                )
            self.window_ends, self.n_bytes = now + self.limits.stall_s, 0


def _receive(
    url: str,
    limits: Limits,
    arrived: "queue.Queue[int | bytes | Exception]",
    stop: threading.Event,
) -> None:
    """Pass on the announced length, the pieces and b"" at the end, or what went wrong."""

    def pass_on(piece: int | bytes | Exception) -> None:
        while not stop.is_set():
            try:
                return arrived.put(piece, timeout=0.1)
            except queue.Full:
                continue

    requests, urllib3 = optional_module("requests"), optional_module("urllib3")
    try:
        with _answer(url) as response:
            length = response.headers.get("Content-Length", "")
            announced = int(length) if length.isascii() and length.isdigit() else 0
            if announced > limits.n_bytes:
                raise DataError(
                    f"{url}: announces {announced:,} bytes, at most {limits.n_bytes:,} are expected"
                )
            pass_on(announced)
            for piece in response.raw.stream(CHUNK_BYTES, decode_content=False):
                if stop.is_set():
                    return
                if piece:
                    pass_on(piece)
        pass_on(b"")
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        pass_on(_as_data_error(url, error))
    except DataError as error:
        pass_on(error)


def _answer(url: str) -> Any:
    """Return the answer to a request for a file; no body is read, of redirects neither.

    The body will come as it is: a server that compresses must not decide what that unpacks to.
    """
    session = optional_module("requests").Session()
    session.get_redirect_target = lambda response: None  # or it reads the whole body of a redirect
    own: Any = {"headers": {"Accept-Encoding": "identity"}, "timeout": CONNECT_TIMEOUT_S}
    where = url
    for _ in range(1 + MAX_REDIRECTS):
        response = session.get(where, stream=True, **own)
        if not response.is_redirect:
            response.raise_for_status()
            return response
        where = urllib.parse.urljoin(where, response.headers["Location"])
        response.close()
    raise DataError(f"{url}: redirects more than {MAX_REDIRECTS} times")


def _as_data_error(url: str, error: Exception) -> DataError:
    """Return the reason of a failed download in one line."""
    requests, urllib3 = optional_module("requests"), optional_module("urllib3")
    if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError):
        return DataError(f"{url}: no answer within {CONNECT_TIMEOUT_S:g} s")
    if isinstance(error, requests.ConnectionError):
        host = urllib.parse.urlsplit(url).hostname
        return DataError(f"{host} cannot be reached ({_root_cause(error)})")
    if isinstance(error, urllib3.exceptions.HTTPError | OSError) and not isinstance(
        error, requests.RequestException
    ):
        return DataError(f"{url}: the connection broke ({error})")
    return DataError(str(error))


def _root_cause(error: BaseException) -> str:
    """Return the innermost reason of a connection error, without its wrapping."""
    while True:
        inner = getattr(error, "reason", None) or error.__cause__ or error.__context__
        if not isinstance(inner, BaseException):
            inner = next((arg for arg in error.args if isinstance(arg, BaseException)), None)
        if inner is None:
            break
        error = inner
    return getattr(error, "strerror", None) or type(error).__name__


def call(command: list[str], folder: Path, limits: Limits) -> None:
    """Run a registry's client in a folder; its last words are the reason if it fails.

    What it keeps for itself goes to the folder as well, where it is counted and deleted.
    """
    own = {"npm_config_cache": str(folder / ".npm"), "npm_config_update_notifier": "false"}
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=subprocess.STDOUT,
            env=os.environ | own,
            start_new_session=True,
        )
        try:
            code = _watched(process, command[0], folder, words, limits)
        except BaseException:
            _end(process)
            raise
        if code:
            raise DataError(f"{' '.join(command[:2])} failed ({code}): {_last_words(words)}")


def _watched(
    process: "subprocess.Popen[bytes]", name: str, folder: Path, words: IO[bytes], limits: Limits
) -> int:
    """Return how a program ended, unless it takes too long or writes too much."""
    last, code = time.monotonic() + limits.seconds, None
    while code is None:
        try:
            code = process.wait(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() >= last:
                raise DataError(f"{name} did not finish in {limits.seconds:g} s") from None
        if size_of(folder) + os.fstat(words.fileno()).st_size > limits.n_bytes:
            raise DataError(f"{name} writes more than the {limits.n_bytes:,} bytes expected")
    return code


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a program and what it started."""
    if os.name == "posix":
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # it ended by itself
    else:
        process.kill()
    process.wait()


def _last_words(words: IO[bytes]) -> str:
    """Return the last line with content that a program printed."""
    words.seek(-min(os.fstat(words.fileno()).st_size, N_LAST_BYTES), os.SEEK_END)
    lines = [line.strip() for line in words.read().decode(errors="replace").splitlines()]
    faults = [one for one in lines if one not in ("", "npm error") and "A complete log" not in one]
    return faults[-1] if faults else "it gave no reason"


def size_of(folder: Path) -> int:
    """Return how many bytes the files below a folder have; links are not followed."""
    n_bytes = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                n_bytes += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                continue  # it was a temporary file
    return n_bytes
