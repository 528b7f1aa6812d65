"""NAME.now: one line about the round that is under way, written over again and again."""

import os
from pathlib import Path

FLAGS = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_TRUNC
    | getattr(os, "O_NOFOLLOW", 0)  # nobody's link leads us to another file,
    | getattr(os, "O_NONBLOCK", 0)  # and no pipe holds us up
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


class Now:
    """A file that holds one line.

    It stays open and never gets shorter: a short line ends in spaces, for making a file shorter
    takes as long as all the rest.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._size = 0

    def write(self, line: bytes) -> None:
        """Put a line in the place of the one before."""
        if self._file is None or not is_at(self._file, self.path):
            self.close()
            self._file, self._size = os.open(self.path, FLAGS, 0o666), 0
        self._size = max(self._size, len(line))
        os.lseek(self._file, 0, os.SEEK_SET)
        os.write(self._file, line.rstrip(b"\n").ljust(self._size - 1) + b"\n")

    def close(self) -> None:
        """Let go of the file; the next line opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def now_path(journal: Path) -> Path:
    """Return the file that stands beside a journal."""
    return journal.with_name(f"{journal.name}.now")


def is_at(file: int, path: Path) -> bool:
    """Return whether an open file is still the one with this name."""
    try:
        here, there = os.fstat(file), os.stat(path)
    except OSError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
