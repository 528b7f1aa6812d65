"""A journal: one line of JSON for every event, in the order in which events happened.

Killing the program loses nothing that was written. A line that a full disk or a dead machine has
cut short is removed when the file is opened again, and readers ignore it. A journal that cannot be
written never stops a round. See journal_file.py for the files.
"""

import errno
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO
from weakref import WeakSet

from bsfl.errors import FileInUse, InvalidInput
from bsfl.monitoring.journal_file import (
    START,
    Entry,
    JournalFile,
    close_in_child,
    entry_of,
    is_journal,
    line_of,
    numbered,
    shared_file,
)
from bsfl.validation import in_short, natural

__all__ = [
    "START",
    "Entry",
    "Journal",
    "check_journal",
    "entry_of",
    "journal_files",
    "read_journal",
]

MAX_BYTES = 64 * 2**20
MAX_KEPT = 1000
OPEN_WAIT_S = 1.0
"""Wait for a file to be closed, such as by a process that is just ending."""
FAULTS = OSError, FileInUse, TypeError, ValueError, LookupError, RecursionError
"""What writing entries may raise; of InvalidInput, ValueError is a base."""

_LOG = logging.getLogger("bsfl")


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
        self._reset()
        try:
            self._opened().full_files(self.n_kept)  # rejects files of other programs
            self._opened().open(wait_s=OPEN_WAIT_S)
        except BaseException:
            self.close()
            raise
        _JOURNALS.add(self)

    def _reset(self) -> None:
        self._lock = threading.RLock()  # a signal handler may interrupt its holder
        self._file: JournalFile | None = None
        self._n_lost = 0

    def write(self, entries: Sequence[Entry]) -> None:
        """Append entries with one write; if that fails, log it once and continue.

        When it works again, a line before says how many entries were lost.
        """
        entries = [e for e in entries if self.availability or e.get("kind") != "availability"]
        if not entries:
            return
        with self._lock:
            try:
                lines = b"".join(map(line_of, entries))
                lost = line_of({"kind": "lost", "n": self._n_lost}) if self._n_lost else b""
                self._opened().append(lost + lines, max_bytes=self.max_bytes, n_kept=self.n_kept)
                self._n_lost = 0
            except FAULTS as error:
                if not self._n_lost:
                    fault = self.path, in_short(error)
                    _LOG.error("%s cannot be written; rounds continue without it: %s", *fault)
                self._n_lost += len(entries)

    def close(self) -> None:
        """Close the file; the next entry opens it again."""
        with self._lock:
            if self._file:
                self._file.close(self)
            self._file = None

    def _opened(self) -> JournalFile:
        if not self._file:
            self._file = shared_file(self.path, self)
        return self._file


_JOURNALS: WeakSet[Journal] = WeakSet()


def _reset_all() -> None:
    """Let a forked process begin anew: the open files are its parent's."""
    close_in_child()
    for journal in list(_JOURNALS):
        journal._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)


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
    if is_journal(path) is False:
        raise InvalidInput(f"{path} is not a journal, as of Scheduler(journal=...)")


def journal_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a journal, the oldest first; the file itself if there is none."""
    return [*_newest_first(path)][::-1] or [Path(path)]


def _newest_first(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the files of a journal that exist; each is looked for when it is asked for."""
    real = Path(os.path.realpath(path))
    return filter(is_journal, (numbered(real, number) for number in range(MAX_KEPT + 1)))
