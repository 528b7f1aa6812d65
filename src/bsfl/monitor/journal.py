"""A file with one line of JSON for every round and every late answer.

Lines are appended with one write each and never changed. Killing the program loses nothing that was
written; a line that a full disk or a dead machine has cut short is removed when the file is opened
again, and passed over by the reader. A journal that cannot be written never stops a round.

Beside it NAME.now tells of the round that is under way; it holds one line, which is replaced.
"""

import errno
import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.monitor.now import Now, is_at, now_path

_LOG = logging.getLogger("bsfl")
LARGEST_BYTES = 64 * 2**20
BLOCK = 2**16
"""Bytes that are looked at in one bite for the end of the last whole line."""
START = b'{"kind":'
"""How every line begins, so that no other file is taken for a journal."""

Entry = dict[str, Any]


class Journal:
    """Appends entries to a file; when it is full it becomes NAME.1, which becomes NAME.2, ...

    Attributes:
        path: The file.
        max_bytes: Its size at most.
        n_kept: How many full ones are kept.
        lists_available: Whether an entry lists the ids of all who were available, not their number
            alone; with a large fleet these lists are most of the file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = LARGEST_BYTES,
        n_kept: int = 3,
        lists_available: bool = False,
    ) -> None:
        self.path = Path(path).absolute()
        self.max_bytes = checks.natural("max_bytes", max_bytes)
        self.n_kept = checks.natural("n_kept", n_kept, low=0, high=1000)
        self.lists_available = lists_available
        self._file: int | None = None
        self._n_lost = 0
        self._now = Now(now_path(self.path))
        self._is_shown = True
        self._open()

    def write(self, entry: Entry) -> None:
        """Append an entry; if that fails, say so once in the log and go on.

        When it works again the next line says how many were lost.
        """
        try:
            self._append(entry)
        except (OSError, ValueError, TypeError) as error:
            self._n_lost += 1
            if self._n_lost == 1:
                _LOG.error("%s cannot be written, rounds go on without it: %s", self.path, error)
            self.close()

    def show(self, entry: Entry) -> None:
        """Tell of the round that is under way in NAME.now; if that fails, go on without it."""
        try:
            self._now.write(_line(entry))
        except (OSError, ValueError, TypeError) as error:
            if self._is_shown:
                _LOG.warning("%s cannot be written: %s", self._now.path, error)
            self._is_shown = False

    def close(self) -> None:
        """Let go of the file; the next entry opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._now.close()

    def __del__(self) -> None:
        if hasattr(self, "_now"):
            self.close()

    def _append(self, entry: Entry) -> None:
        line = _line(entry)
        if self._n_lost:
            lost = {"kind": "lost", "time": entry.get("time"), "n": self._n_lost}
            line = _line(lost) + line
        file = self._open()
        size = os.fstat(file).st_size
        if size and size + len(line) > self.max_bytes:
            self.close()
            self._rotate()
            file = self._open()
            size = os.fstat(file).st_size
        n = os.write(file, line)
        if n < len(line):
            os.ftruncate(file, size)
            raise OSError(errno.ENOSPC, f"{n} of {len(line)} bytes were written")
        self._n_lost = 0

    def _open(self) -> int:
        """Return the file, open and whole; another one if it was moved away."""
        if self._file is not None and is_at(self._file, self.path):
            return self._file
        self.close()
        if self.path.exists() and not stat.S_ISREG(self.path.stat().st_mode):
            raise InvalidInput(f"{self.path} is not a file, so it cannot be a journal")
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        file = os.open(self.path, flags | getattr(os, "O_BINARY", 0), 0o666)
        try:
            _repair(file, self.path)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        return file

    def _rotate(self) -> None:
        for i in range(self.n_kept, 0, -1):
            before = _rotated(self.path, i - 1)
            if before.exists():
                os.replace(before, _rotated(self.path, i))
        self.path.unlink(missing_ok=True)  # there still if none are kept


def read_journal(path: str | os.PathLike[str]) -> Iterator[Entry]:
    """Yield the entries of a journal, those of full files first; a torn line is passed over.

    A round that was played again after a restart from an older file is there twice: the later line
    counts.
    """
    for one in journal_files(path):
        check_journal(one)
        with one.open("rb") as file:
            for line in file:
                if (entry := entry_of(line)) is not None:
                    yield entry


def check_journal(path: Path) -> None:
    """Check that the first line of a file is one of a journal."""
    with path.open("rb") as file:
        first = file.readline()
    if first.endswith(b"\n") and entry_of(first) is None:
        raise InvalidInput(f"{path} is not a journal, as of Scheduler(journal=...)")


def journal_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a journal, the oldest first."""
    path = Path(path)
    numbers = [p.name.removeprefix(f"{path.name}.") for p in path.parent.glob("*.*")]
    older = sorted((int(n) for n in numbers if n.isascii() and n.isdigit()), reverse=True)
    files = [one for i in older if i and (one := _rotated(path, i)).is_file()]
    if path.exists() or not files:  # a program may die when the full file has just been moved
        files.append(path)
    return files


def under_way(path: str | os.PathLike[str]) -> Entry | None:
    """Return what is told of the round that is under way; None: nothing, or it is being written."""
    now = now_path(Path(path))
    try:
        line = now.read_bytes() if now.is_file() else b""
    except OSError:
        return None
    return entry_of(line)


def _rotated(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}") if number else path


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def _line(entry: Entry) -> bytes:
    return (_ENCODER.encode(entry) + "\n").encode("ascii")


def entry_of(line: bytes) -> Entry | None:
    """Return what a line holds, None if it is torn."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _repair(file: int, path: Path) -> None:
    """Remove a torn last line, if there is one; a whole one gets the end that it lacks."""
    size = os.fstat(file).st_size
    if size == 0:
        return
    os.lseek(file, 0, os.SEEK_SET)
    start = os.read(file, len(START))
    if not START.startswith(start):
        raise InvalidInput(f"{path} is not a journal of bsfl; nothing was written")
    end, tail = size, b""
    while end > 0 and b"\n" not in tail:
        begin = max(0, end - BLOCK)
        os.lseek(file, begin, os.SEEK_SET)
        tail = os.read(file, end - begin) + tail
        end = begin
    torn = tail.rpartition(b"\n")[2]
    if not torn:
        return
    if entry_of(torn) is not None:
        os.write(file, b"\n")
    else:
        os.ftruncate(file, size - len(torn))
