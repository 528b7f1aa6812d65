"""Opening files that others name: regular files of a limited size, nothing else."""

import errno
import io
import os
import stat
from pathlib import Path

MAX_BYTES = 1 << 36
"""Bytes of a file; more is a mistake."""


def open_regular(path: Path, *, max_bytes: int = MAX_BYTES) -> io.BufferedReader:
    """Open a regular file to read its bytes.

    Raises OSError if the file is a device, a pipe or a socket, which may never end, or too large.
    A file without a size is read as empty, also if it is one of /proc.
    """
    file = io.FileIO(path, opener=_opener)
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_size > max_bytes:
        file.close()
        is_large = stat.S_ISREG(status.st_mode)
        fault = f"it has more than {max_bytes:,} bytes" if is_large else "it is not a regular file"
        raise OSError(errno.EINVAL, fault, str(path))
    if status.st_size == 0:
        file.close()
        return io.BufferedReader(io.BytesIO())
    return io.BufferedReader(file)


def open_csv(path: Path, *, errors: str = "strict", max_bytes: int = MAX_BYTES) -> io.TextIOWrapper:
    """Open a regular file to read its lines for the csv module."""
    file = open_regular(path, max_bytes=max_bytes)
    return io.TextIOWrapper(file, "utf-8-sig", errors, newline="")


def _opener(path: str, flags: int) -> int:
    """Open a file without waiting for a writer, which a pipe may never have."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # Windows has no such pipes
