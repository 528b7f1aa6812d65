"""Reads a journal as it grows, its last part first."""

import os
import time
from contextlib import suppress
from pathlib import Path

from bsfl.dashboard.sums import Sums
from bsfl.errors import InvalidInput
from bsfl.monitoring.journal import entry_of, journal_files
from bsfl.validation import in_short

TAIL_BYTES = 16 * 2**20
"""How much of a long journal is read before its page is shown; the rest is read meanwhile."""
MAX_LINE_BYTES = 2**27
"""A longer line is malformed; one with 10^6 invited clients has about 20 MB."""
PASS_S = 0.5
"""How long to read older lines before new ones are looked for."""
READ = tuple(
    b'{"v":1,"kind":"%b"' % kind
    for kind in (b"opened", b"responses", b"closed", b"abandoned", b"forgotten", b"renamed")
)
"""How lines begin that are counted; others, such as changes of availability, are skipped."""


class Reader:
    """Reads the files of a journal once, from a place on, also when they are rotated.

    Attributes:
        sums: What was read so far.
        n_malformed, fault: Lines that were ignored because they are malformed, and what is wrong
            with the last one of them.
        n_bytes: How much was read.
    """

    def __init__(self, path: Path, skip: int = 0) -> None:
        self._path = path
        self._start(skip)

    def _start(self, skip: int = 0) -> None:
        self.sums = Sums()
        self.n_malformed, self.fault = 0, ""
        self.n_bytes, self._skip = 0, skip
        self._inode = self._offset = 0  # of the file that was read last, and how much of it

    def read(self, span_s: float = float("inf")) -> bool:
        """Read what is new, for a time at most; return whether the end was reached.

        If the last file is gone or was cut, everything is read again.
        """
        end_s = time.monotonic() + span_s
        files = _files(self._path, self._inode)
        at = [i for i, (_, now) in enumerate(files) if now.st_ino == self._inode]
        if self._inode and (not at or files[at[0]][1].st_size < self._offset):
            self._start()
            at = []
        for one, now in files[at[0] if at else 0 :]:
            if now.st_ino != self._inode:
                self._inode, self._offset = now.st_ino, 0
            if self._skip >= now.st_size:
                self._skip -= now.st_size
                self._offset = now.st_size
            elif not self._read_file(one, end_s):
                return False
        return True

    def _read_file(self, path: Path, end_s: float) -> bool:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_ino != self._inode:  # it has moved meanwhile
                return False
            file.seek(self._offset + self._skip)
            if self._skip:
                self._offset, self._skip = self._skip + len(file.readline(MAX_LINE_BYTES)), 0
            while line := file.readline(MAX_LINE_BYTES):
                if not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
                    return True  # it is being written
                self._add(line, path)
                self._offset += len(line)
                self.n_bytes += len(line)
                if time.monotonic() > end_s:
                    return False
        return True

    def _add(self, line: bytes, path: Path) -> None:
        if not line.startswith(READ):
            if line.startswith(b'{"v":1,"kind":"'):
                return
            fault = "it does not begin like the line of a journal"
        elif (entry := entry_of(line)) is None:
            fault = "it is not JSON"
        else:
            try:
                self.sums.add(entry)
                return
            except InvalidInput as error:
                fault = in_short(error)
            except RecursionError:  # of a value that cannot be shown
                fault = "it is nested too deeply"
        self.n_malformed += 1
        self.fault = f"byte {self._offset:,} of {path.name}: {fault}"


class Follower:
    """What a journal holds so far: of a long one its last part, until all of it was read.

    Attributes:
        shown: What a page shows.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        size = self._size()
        self._whole = Reader(self.path)
        self.shown = Reader(self.path, size - TAIL_BYTES) if size > TAIL_BYTES else self._whole

    def _size(self) -> int:
        return sum(status.st_size for _, status in _files(self.path))

    @property
    def part_read(self) -> float:
        """Which part of the journal was read."""
        return 1.0 if self.shown is self._whole else self._whole.n_bytes / max(self._size(), 1)

    def update(self) -> None:
        """Read what is new."""
        self.shown.read()

    def catch_up(self) -> None:
        """Read older lines for some time, if there are any."""
        if self.shown is not self._whole and self._whole.read(PASS_S):
            self.shown = self._whole


def _files(path: Path, inode: int = 0) -> list[tuple[Path, os.stat_result]]:
    """Return the files of a journal that exist, the oldest first.

    If the file that is written has this inode, only that one: looking for older ones takes some ms.
    """
    found: list[tuple[Path, os.stat_result]] = []
    with suppress(FileNotFoundError):
        if (status := path.stat()).st_ino == inode:
            return [(path, status)]
    for one in journal_files(path):
        with suppress(FileNotFoundError):  # it has just moved
            found.append((one, one.stat()))
    return found
