"""A journal: one line of JSON for every event, in the order in which events happened.

Lines are appended to NAME. When it is full it becomes NAME.1, which becomes NAME.2, ... Killing the
program loses nothing that was written: a line that a full disk or a dead machine has cut short is
removed when the file is opened again, and readers ignore it. A journal that cannot be written never
stops a round.

A journal has one writer. A process locks the file (`flock`) while it is open, and a second process
gets FileInUse; all journals of one process on one path share the file. Where there are no locks
(Windows, some network file systems) two processes can write one journal: their lines are whole, but
lines get lost when both move a full file away.
"""

import errno
import json
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet, WeakValueDictionary

from bsfl.errors import FileInUse, InvalidInput
from bsfl.persistence.atomic import folder_lock, try_lock
from bsfl.validation import in_short, natural

VERSION = 1
"""Of the stream of events."""
START = b'{"v":1,"kind":'
"""How every line begins, so that no other file is taken for a journal."""
MAX_BYTES = 64 * 2**20
MAX_KEPT = 1000
BLOCK = 2**16
"""Bytes that are read at once to find the end of the last whole line."""
OPEN_WAIT_S = 1.0
"""Wait for a file to be closed, such as by a process that is just ending."""

Entry = dict[str, Any]
_LOG = logging.getLogger("bsfl")
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)


# --- writing -------------------------------------------------------------------------------------


class Journal:
    """Appends entries to a file; when it is full it becomes NAME.1, which becomes NAME.2, ...

    Attributes:
        path: The file. A second process that opens it gets FileInUse.
        max_bytes: Its size at most.
        n_kept: How many full files are kept.
        availability: Whether changes of availability are written; with a large population they are
            most of the file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = MAX_BYTES,
        n_kept: int = 3,
        availability: bool = False,
    ) -> None:
        self.path = Path(path).absolute()
        self.max_bytes = natural("max_bytes", max_bytes)
        self.n_kept = natural("n_kept", n_kept, low=0, high=MAX_KEPT)
        self.availability = availability
        self._file = _shared_file(self.path)
        _full_files(self._file.path, self.n_kept)  # rejects files of other programs
        self._file.open(self, wait_s=OPEN_WAIT_S)

    def write(self, entries: Sequence[Entry]) -> None:
        """Append entries; see `put` and `flush`."""
        self.put(entries)
        self.flush()

    def put(self, entries: Sequence[Entry]) -> None:
        """Add entries to those that wait for `flush`; it takes no lock and never blocks."""
        self._file.waiting.append((self, entries))

    def flush(self) -> None:
        """Append what waits, each call's entries with one write; log a failure once and continue.

        When it works again, a line before says how many entries were lost.
        """
        file = self._file
        with file.lock:
            if file.is_writing:  # a signal handler has interrupted the loop below, which resumes
                return
            file.is_writing = True
            try:
                while file.waiting:  # after an interrupt, also what was being written then
                    journal, batch = file.waiting[0]
                    journal._append(batch)
                    file.waiting.popleft()
            finally:
                file.is_writing = False

    def close(self) -> None:
        """Close the file; the next entry opens it again."""
        with self._file.lock:
            self._file.users.discard(self)
            if not self._file.users:
                self._file.handle.close()

    def _append(self, entries: Sequence[Entry]) -> None:
        file = self._file
        try:
            lines = b"".join(map(_line_of, entries))
            if lines and file.n_lost:
                lines = _line_of({"kind": "lost", "n": file.n_lost}) + lines
            if lines:
                file.append(lines, self)
                file.n_lost = 0
        except Exception as error:  # nothing that a journal does stops a round
            if not file.n_lost:
                why = in_short(error)
                _LOG.error("%s cannot be written; rounds continue without it: %s", self.path, why)
            file.n_lost += len(entries)


class _JournalFile:
    """The open and locked file of a path.

    Attributes:
        path: Where it is, links followed.
        handle: Its handle, closed while no journal uses it.
        users: The journals that use it.
        lock: Lets one thread at a time write.
        waiting: Journals and the entries that they have not written.
        is_writing: Whether what waits is being written.
        n_lost: How many entries could not be written since the last one that could.
        is_stuck: Whether the full file could not be moved away.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.handle = _Handle()
        self.users: WeakSet[Journal] = WeakSet()
        self.reset()

    def reset(self) -> None:
        """Begin anew, as in a forked process: the open file and what waits are its parent's."""
        self.handle.close()
        self.users.clear()
        self.lock = threading.RLock()  # a signal handler may interrupt its holder
        self.waiting: deque[tuple[Journal, Sequence[Entry]]] = deque()
        self.is_writing = self.is_stuck = False
        self.n_lost = 0

    def open(self, user: Journal, *, wait_s: float = 0.0) -> int:
        """Return the number of the open file, locked and whole; of a new one if it was moved away.

        Args:
            user: The journal that uses it.
            wait_s: How long to wait for another process that has the file open.
        """
        with self.lock:
            end_s = time.monotonic() + wait_s
            while not self.handle.is_at(self.path):
                self.handle.close()
                with folder_lock(self.path.parent):  # no other process moves it meanwhile
                    if self._open():
                        break
                if time.monotonic() >= end_s:
                    raise FileInUse(
                        f"{self.path} is open in another process, and a journal has one writer; "
                        "nothing was written. Choose another file"
                    )
                time.sleep(0.01)
            self.users.add(user)
            return self.handle.number

    def append(self, lines: bytes, user: Journal) -> None:
        """Append whole lines with one write; if the file would get too large, to a new file."""
        number = self.open(user)
        size = os.fstat(number).st_size
        if size and size + len(lines) > user.max_bytes:
            self._start_new_file(user.n_kept)
            number = self.open(user)
        n = os.write(number, lines)
        if n < len(lines):
            try:
                os.ftruncate(number, os.fstat(number).st_size - n)
            except OSError:
                self.handle.close()  # the torn line is removed when the file is opened again
                raise
            raise OSError(errno.ENOSPC, f"{n} of {len(lines)} bytes were written")

    def _open(self) -> bool:
        """Open the file and remove a torn last line; False: another process has it open."""
        if self.path.exists() and not self.path.is_file():  # opening a pipe would wait for ever
            raise InvalidInput(f"{self.path} is not a file, so it cannot be a journal")
        handle = _Handle(os.open(self.path, _FLAGS, 0o666))
        try:
            if try_lock(handle.number) is False:
                return False
            _repair(handle.number, self.path)
            self.handle, handle = handle, _Handle()
            return True
        finally:
            handle.close()

    def _start_new_file(self, n_kept: int) -> None:
        """Let NAME become NAME.1, which becomes NAME.2, ...; if that fails, log once and append."""
        try:
            files = [self.path, *_full_files(self.path, n_kept)]
            with folder_lock(self.path.parent):
                self.handle.close()  # Windows moves no open file
                for number in range(min(len(files), n_kept), 0, -1):
                    os.replace(files[number - 1], _numbered(self.path, number))
                if not n_kept:
                    self.path.unlink()
                self._open()
            self.is_stuck = False
        except (OSError, InvalidInput) as error:
            if not self.is_stuck:
                _LOG.warning("%s grows beyond its limit: %s", self.path, in_short(error))
            self.is_stuck = True


class _Handle:
    """The number of an open file, which is closed with the last reference to it; -1: none."""

    def __init__(self, number: int = -1) -> None:
        self.number = number

    def is_at(self, path: Path) -> bool:
        """Return whether the open file is still the one with this name."""
        if self.number < 0:
            return False
        try:
            return os.path.samestat(os.fstat(self.number), os.stat(path))
        except OSError:
            return False

    def close(self) -> None:
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    __del__ = close


_FILES: WeakValueDictionary[str, _JournalFile] = WeakValueDictionary()
_FILES_LOCK = threading.Lock()


def _shared_file(path: Path) -> _JournalFile:
    """Return the file of a path, which all journals of this process on it share."""
    real = os.path.realpath(path)
    with _FILES_LOCK:
        return _FILES.setdefault(real, _JournalFile(Path(real)))


def _reset_all() -> None:
    """Let a forked process begin anew: its parent stays the writer, and keeps the locks."""
    global _FILES_LOCK
    _FILES_LOCK = threading.Lock()
    for file in list(_FILES.values()):
        file.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)


def _repair(number: int, path: Path) -> None:
    """Remove a torn last line, if there is one; a whole line gets the end that it lacks."""
    if not START.startswith(os.read(number, len(START))):
        raise InvalidInput(f"{path} is not a journal of bsfl; nothing was written")
    size, n_read, tail = os.fstat(number).st_size, 0, b""
    while n_read < size and n_read == len(tail):  # until the end of a line is found
        n_read = min(size, 2 * n_read + BLOCK)
        os.lseek(number, -n_read, os.SEEK_END)
        tail = os.read(number, n_read).rpartition(b"\n")[2]
    if tail and entry_of(tail) is not None:
        os.write(number, b"\n")
    elif tail:
        os.ftruncate(number, size - len(tail))


# --- reading -------------------------------------------------------------------------------------


def read_journal(path: str | os.PathLike[str]) -> Iterator[Entry]:
    """Yield the entries of a journal, those of full files first; torn lines are ignored.

    An event that happened again after a restart from an older state file is there twice: the later
    entry counts.
    """
    check_journal(Path(path))
    with ExitStack() as stack:
        opened: dict[tuple[int, int], IO[bytes]] = {}
        for one in _newest_first(path):
            with suppress(FileNotFoundError):
                file: IO[bytes] = stack.enter_context(one.open("rb"))
                status = os.fstat(file.fileno())
                key = status.st_dev, status.st_ino
                opened.pop(key, None)  # it has moved meanwhile, behind files that are newer
                opened[key] = file
        if not opened:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        for file in reversed(opened.values()):
            yield from filter(None, map(entry_of, file))


def check_journal(path: Path) -> None:
    """Reject a file that does not begin like a journal."""
    if _is_journal(path) is False:
        raise InvalidInput(f"{path} is not a journal, as of Scheduler(journal=...)")


def journal_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a journal, the oldest first; the file itself if there is none."""
    return [*_newest_first(path)][::-1] or [Path(path)]


def entry_of(line: bytes) -> Entry | None:
    """Return what a line holds, None if it is torn."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _line_of(entry: Entry) -> bytes:
    ordered = {"v": VERSION, "kind": entry["kind"]} | entry | {"v": VERSION}
    return (_ENCODER.encode(ordered) + "\n").encode("ascii")


def _is_journal(path: Path) -> bool | None:
    """Return whether a file begins like a journal, or is empty; None: there is no file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for ever
            return False
        with path.open("rb") as file:
            return START.startswith(file.read(len(START)))
    except FileNotFoundError:
        return None


def _newest_first(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the files of a journal that exist; each is looked for when it is asked for."""
    real = Path(os.path.realpath(path))
    return filter(_is_journal, (_numbered(real, number) for number in range(MAX_KEPT + 1)))


def _full_files(path: Path, n_kept: int) -> list[Path]:
    """Return NAME.1, NAME.2, ... as far as they exist; reject files of other programs."""
    files: list[Path] = []
    while len(files) < n_kept and os.path.lexists(full := _numbered(path, len(files) + 1)):
        if full.is_symlink() or _is_journal(full) is False:  # None: it has just been moved
            raise InvalidInput(f"{full} is not a journal's file; it is not replaced")
        files.append(full)
    return files


def _numbered(path: Path, number: int) -> Path:
    """Return the name of a full file; 0: of the file that lines are appended to."""
    return path.with_name(f"{path.name}.{number}") if number else path
