"""Arrays in .npy and .npz files that others made: a claim is checked before room is made for it.

numpy.load believes the header, decodes it as Python and makes room for whatever it says. Here the
caller sees type and shape first, and no more is read than they say.
"""

import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import IO, Any

import numpy as np
import numpy.typing as npt

Accept = Callable[["np.dtype[Any]", tuple[int, ...]], None]
"""Gets the type and the shape that a header claims, and raises if they are not to be read."""

FAULTS = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError),
    *(ValueError, NotImplementedError, RuntimeError),  # of zipfile: unknown method, encrypted
)
"""What reading a damaged or hostile file may raise here."""

MAX_HEADER = 10_000
MAX_DIRECTORY = 1 << 16
"""Bytes of the table of contents of an .npz; that of four arrays has about 250."""
_MAGIC = b"\x93NUMPY"
_HEADER = re.compile(
    r"\{'descr': '([<>|=]?(?:b1|[iu][1248]|f[248]|U[0-9]{1,4}))', 'fortran_order': (True|False), "
    r"'shape': \(([0-9, ]*)\), *\}\s*"
)
_ZIP_END = struct.Struct("<4s4H2LH")
_ZIP64_END = b"PK\x06\x07"


def read_npy(file: IO[bytes], accept: Accept, *, has_text: bool = False) -> npt.NDArray[Any]:
    """Return the array of numbers, or of texts if they are allowed, in a .npy file; see FAULTS."""
    start = file.read(8)
    if len(start) < 8 or not start.startswith(_MAGIC):
        raise ValueError("it is not in numpy's format")
    n_header = int.from_bytes(file.read(2 if start[6] == 1 else 4), "little")
    if n_header > MAX_HEADER:
        raise ValueError(f"its header may have {MAX_HEADER:,} bytes, got {n_header:,}")
    found = _HEADER.fullmatch(file.read(n_header).decode("latin-1"))
    if not found:
        raise ValueError("its header is not that of an array of numbers")
    dtype: np.dtype[Any] = np.dtype(found[1])
    if dtype.kind == "U" and not has_text:
        raise ValueError("its header is not that of an array of numbers")
    shape = tuple(int(n) for n in found[3].split(",") if n.strip())
    accept(dtype, shape)
    n_bytes = dtype.itemsize * math.prod(shape)
    content = file.read(n_bytes + 1)
    if len(content) != n_bytes:
        much = "more" if len(content) > n_bytes else f"{len(content):,}"
        raise ValueError(f"an array of {n_bytes:,} bytes is expected, got {much}")
    array = np.frombuffer(content, dtype)
    return array.reshape(shape, order="F" if found[2] == "True" else "C")


def open_npz(file: IO[bytes]) -> zipfile.ZipFile:
    """Return the archive in an open file, unless its table of contents is too long to be read."""
    file.seek(0, os.SEEK_END)
    file.seek(-min(file.tell(), _ZIP_END.size + 20), os.SEEK_CUR)
    tail = file.read()
    end = tail[-_ZIP_END.size :]
    if len(end) < _ZIP_END.size or not end.startswith(b"PK\x05\x06"):
        raise ValueError("its end is missing")
    n_directory = _ZIP_END.unpack(end)[5]
    if tail.startswith(_ZIP64_END) or n_directory > MAX_DIRECTORY:
        raise ValueError(f"its table of contents has more than {MAX_DIRECTORY:,} bytes")
    return zipfile.ZipFile(file)


def read_member(
    archive: zipfile.ZipFile, name: str, accept: Accept, *, has_text: bool = False
) -> npt.NDArray[Any] | None:
    """Return an array of an .npz by its name; None: there is no such one."""
    if f"{name}.npy" not in archive.namelist():
        return None
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} is compressed in a way that numpy does not use")
    with archive.open(info) as member:
        return read_npy(member, accept, has_text=has_text)
