"""The files of a journal: NAME, and the full ones NAME.1, NAME.2, ...

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
from pathlib import Path
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from bsfl.errors import FileInUse, InvalidInput
from bsfl.persistence.atomic import folder_lock, try_lock
from bsfl.validation import in_short

VERSION = 1
"""Of the stream of events."""
START = b'{"v":1,"kind":'
"""How every line begins, so that no other file is taken for a journal."""
BLOCK = 2**16
"""Bytes that are read at once to find the end of the last whole line."""

Entry = dict[str, Any]
_LOG = logging.getLogger("bsfl")
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_OPTIONAL = "O_BINARY", "O_CLOEXEC", "O_NONBLOCK"  # with the last, no pipe is waited for
_FLAGS = os.O_RDWR | os.O_CREAT | sum(getattr(os, name, 0) for name in _OPTIONAL)


class JournalFile:
    """The open and locked file of a journal, to which whole lines are appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.users: WeakSet[object] = WeakSet()
        self._lock = threading.RLock()  # a signal handler may interrupt its holder
        self._handle = _Handle()
        self._is_stuck = False

    def open(self, *, wait_s: float = 0.0) -> int:
        """Return the number of the open file, locked and whole; of a new one if it was moved away.

        Args:
            wait_s: How long to wait for another process that has the file open.
        """
        with self._lock:
            if self._handle.is_at(self.path):
                return self._handle.number
            self._handle.close()
            end_s = time.monotonic() + wait_s
            while True:
                with folder_lock(self.path.parent):  # no other process moves it meanwhile
                    if self._open():
                        return self._handle.number
                if time.monotonic() >= end_s:
                    raise FileInUse(
                        f"{self.path} is open in another process, and a journal has one writer; "
                        "nothing was written. Choose another file"
                    )
                time.sleep(0.01)

    def append(self, lines: bytes, *, max_bytes: int, n_kept: int) -> None:
        """Append whole lines with one write; if the file would get too large, to a new file."""
        with self._lock:
            number = self.open()
            size = os.fstat(number).st_size
            if size and size + len(lines) > max_bytes:
                self._start_new_file(n_kept)
                number = self.open()
            n = os.write(number, lines)
            if n < len(lines):
                try:
                    os.ftruncate(number, os.fstat(number).st_size - n)
                except OSError:
                    self._handle.close()  # the torn line is removed when the file is opened again
                    raise
                raise OSError(errno.ENOSPC, f"{n} of {len(lines)} bytes were written")

    def full_files(self, n_kept: int) -> list[Path]:
        """Return NAME.1, NAME.2, ... as far as they exist; reject files of other programs."""
        files: list[Path] = []
        while len(files) < n_kept and os.path.lexists(path := numbered(self.path, len(files) + 1)):
            if path.is_symlink() or is_journal(path) is False:  # None: it has just been moved
                raise InvalidInput(f"{path} is not a journal's file; it is not replaced")
            files.append(path)
        return files

    def close(self, user: object) -> None:
        """Close the file, unless another journal of this process uses them."""
        with self._lock:
            self.users.discard(user)
            if not self.users:
                self._handle.close()

    def close_in_child(self) -> None:
        """Close the file in a forked process, where a thread of the parent may hold the lock."""
        self._lock = threading.RLock()
        self.users.clear()
        self._handle.close()

    def _open(self) -> bool:
        """Open the file and remove a torn last line; False: another process has it open."""
        handle = _Handle(_open_regular(self.path, os.O_APPEND))
        try:
            if try_lock(handle.number) is not False:
                _repair(handle.number, self.path)
                self._handle, handle = handle, _Handle()
                return True
        finally:
            handle.close()
        return False

    def _start_new_file(self, n_kept: int) -> None:
        """Let NAME become NAME.1, which becomes NAME.2, ...; if that fails, log once and append."""
        try:
            files = [self.path, *self.full_files(n_kept)]
            with folder_lock(self.path.parent):
                self._handle.close()  # Windows moves no open file
                for number in range(min(len(files), n_kept), 0, -1):
                    os.replace(files[number - 1], numbered(self.path, number))
                if not n_kept:
                    self.path.unlink()
                self._open()
            self._is_stuck = False
        except (OSError, InvalidInput) as error:
            if not self._is_stuck:
                _LOG.warning("%s grows beyond its limit: %s", self.path, in_short(error))
            self._is_stuck = True


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


_FILES: WeakValueDictionary[str, JournalFile] = WeakValueDictionary()
_FILES_LOCK = threading.Lock()


def shared_file(path: Path, user: object) -> JournalFile:
    """Return the file of a path, which all journals of this process on it share."""
    real = os.path.realpath(path)
    with _FILES_LOCK:
        file = _FILES.get(real) or JournalFile(Path(real))
        _FILES[real] = file
        file.users.add(user)
        return file


def close_in_child() -> None:
    """Close all files in a forked process, whose parent stays their writer and keeps the locks."""
    global _FILES_LOCK
    _FILES_LOCK = threading.Lock()
    for file in list(_FILES.values()):
        file.close_in_child()


def numbered(path: Path, number: int) -> Path:
    """Return the name of a full file; 0: of the file that lines are appended to."""
    return path.with_name(f"{path.name}.{number}") if number else path


def is_journal(path: Path) -> bool | None:
    """Return whether a file begins like a journal, or is empty; None: there is no file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for ever
            return False
        with path.open("rb") as file:
            return START.startswith(file.read(len(START)))
    except FileNotFoundError:
        return None


def line_of(entry: Entry) -> bytes:
    """Return an entry as a line."""
    ordered = {"v": VERSION, "kind": entry["kind"]} | entry | {"v": VERSION}
    return (_ENCODER.encode(ordered) + "\n").encode("ascii")


def entry_of(line: bytes) -> Entry | None:
    """Return what a line holds, None if it is torn."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _open_regular(path: Path, flags: int) -> int:
    """Open a file, or make it; reject a folder, a pipe and a device."""
    if not path.exists() or path.is_file():
        number = os.open(path, _FLAGS | flags, 0o666)
        if stat.S_ISREG(os.fstat(number).st_mode):
            return number
        os.close(number)
    raise InvalidInput(f"{path} is not a file, so it cannot be a journal")


def _repair(number: int, path: Path) -> None:
    """Remove a torn last line, if there is one; a whole line gets the end that it lacks."""
    if not START.startswith(os.read(number, len(START))):
        raise InvalidInput(f"{path} is not a journal of bsfl; nothing was written")
    end = size = os.fstat(number).st_size
    while end:
        begin = max(0, end - BLOCK)
        os.lseek(number, begin, os.SEEK_SET)
        found = os.read(number, end - begin).rfind(b"\n")
        if found >= 0:
            end = begin + found + 1
            break
        end = begin
    os.lseek(number, end, os.SEEK_SET)
    torn = os.read(number, size - end)
    if torn and entry_of(torn) is not None:
        os.write(number, b"\n")
    elif torn:
        os.ftruncate(number, end)
