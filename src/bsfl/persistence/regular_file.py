"""Opening files that others name: regular files of a limited size, nothing else."""

import errno
import io
import math
import os
import stat
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

MAX_BYTES = 1 << 36
"""Bytes of a file; more is a mistake."""
MAX_REASON = 200
"""Characters of the reason why a file cannot be read, which may quote the file."""


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


def read_arrays(
    path: Path, names: Sequence[str], *, max_bytes: int = MAX_BYTES
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an .npz file that have these names; a .npy file is the first of them.

    Raises OSError or ValueError if the file cannot be read, or if the header of an array claims
    more bytes than the limit or than the file holds: such an array gets no memory.

    Args:
        path: The file.
        names: Names of arrays; those that the file does not have are left out.
        max_bytes: Limit of the bytes of the file, and of each array.
    """
    with open_regular(path, max_bytes=max_bytes) as file:
        try:
            if file.peek(1)[:1] == np.lib.format.MAGIC_PREFIX[:1]:
                _check_claim(file, names[0], min(max_bytes, os.fstat(file.fileno()).st_size))
                file.seek(0)
                return {names[0]: np.lib.format.read_array(file, allow_pickle=False)}
            arrays = {}
            with zipfile.ZipFile(file) as archive:
                for info in archive.infolist():
                    name = info.filename.removesuffix(".npy")
                    if name not in names:
                        continue
                    with archive.open(info) as member:
                        _check_claim(member, name, min(max_bytes, info.file_size))
                    with archive.open(info) as member:
                        arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
            return arrays
        except OSError:
            raise
        except Exception as error:  # numpy and zipfile do not list what a damaged file may raise
            reason = " ".join(str(error).split())[:MAX_REASON]
            raise ValueError(f"it is damaged: {reason}") from error


def _check_claim(file: IO[bytes], name: str, max_bytes: int) -> None:
    """Check the size that the header of a .npy file claims."""
    if np.lib.format.read_magic(file) != (1, 0):  # later versions are for records of many fields
        raise ValueError(f"array {name} must be in version 1.0 of numpy's format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError(f"array {name} must hold numbers or texts, got objects")
    n_bytes = dtype.itemsize * math.prod(shape)
    if n_bytes > max_bytes:
        raise ValueError(
            f"array {name} may have {max_bytes:,} bytes, and its header claims {n_bytes:,}"
        )


def _opener(path: str, flags: int) -> int:
    """Open a file without waiting for a writer, which a pipe may never have."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # Windows has no such pipes
