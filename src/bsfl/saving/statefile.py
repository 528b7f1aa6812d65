"""One file that holds named arrays and a small JSON header; safe to be killed while writing.

Layout: 12 bytes of magic, a format number (4 bytes), the length of the body (8), the SHA-256 of
format number and body (32), then the body: length of the header (8), the header as JSON, and the
arrays' raw little-endian bytes in the order the header lists them. No pickle anywhere.
"""

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl.checks import in_short
from bsfl.errors import CorruptFile, FileInUse, NewerFormat, NotAStateFile, TruncatedFile
from bsfl.files import replace_file

MAGIC = b"bsfl-state\r\n"
FORMAT = 1
_PRELUDE = struct.Struct("<12sIQ32s")
_VERSION = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")

DTYPES = {name: np.dtype(name) for name in ("<f8", "<f4", "<i8", "<i4", "<u4", "|b1", "|u1")}
"""What arrays may hold: numbers, whole numbers, truths and bytes."""

MOST_DIMENSIONS = 32
"""Of an array, in every numpy: a checkpoint holds a network's kernels, with four or more."""

NO_JSON = RecursionError, struct.error
"""What else can go wrong in bytes that are no header."""

Arrays = dict[str, npt.NDArray[Any]]


def copies(arrays: Arrays, spare: Arrays) -> Arrays:
    """Return copies of arrays, in the memory of spare ones that fit: new memory costs twice."""
    copied = {}
    for name, array in arrays.items():
        room = spare.pop(name, None)
        if room is None or room.shape != array.shape or room.dtype != array.dtype:
            room = np.empty_like(array)
        np.copyto(room, array)
        copied[name] = room
    return copied


def write(path: Path, header: dict[str, Any], arrays: Arrays, stamp: bytes | None = None) -> bytes:
    """Replace the file at `path` in one step, see replace_file; return its stamp.

    The stamp is the checksum of a file. If one is given, the file must still have it, or be gone:
    else somebody else has written it in the meantime.
    """
    stored = {n: a.astype(a.dtype.newbyteorder("<"), copy=False) for n, a in arrays.items()}
    listing = [{"name": n, "dtype": a.dtype.str, "shape": a.shape} for n, a in stored.items()]
    head = json.dumps({**header, "arrays": listing}).encode()
    parts: list[bytes | memoryview] = [_LENGTH.pack(len(head)), head]
    parts += [np.ascontiguousarray(a).reshape(-1).view(np.uint8).data for a in stored.values()]
    digest = hashlib.sha256(_VERSION.pack(FORMAT))
    for part in parts:
        digest.update(part)
    prelude = _PRELUDE.pack(MAGIC, FORMAT, sum(len(p) for p in parts), digest.digest())

    def check() -> None:
        if stamp is not None and path.exists() and stamp_of(path) != stamp:
            raise FileInUse(
                f"{path} was written by another scheduler since this one saved or loaded it; "
                "nothing was saved. Load it again, or save to another file"
            )

    replace_file(path, prelude, *parts, check=check)
    return digest.digest()


def stamp_of(path: Path) -> bytes:
    """Return the stamp of a file that `write` made; of another, some of its bytes."""
    if not path.is_file():  # opening a pipe that somebody put there would wait for ever
        return b""
    with path.open("rb") as file:
        return file.read(_PRELUDE.size)[-32:]


def read(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Return the header and the arrays of a file that `write` made, or say what is wrong."""
    if path.exists() and not path.is_file():
        raise NotAStateFile(f"{path} is not a file; nothing was loaded")
    content = path.read_bytes()
    if not content.startswith(MAGIC[: len(content)]) or not content:
        raise NotAStateFile(f"{path} is not a saved scheduler; nothing was loaded")
    if len(content) < _PRELUDE.size:
        raise TruncatedFile(_too_short(path, _PRELUDE.size, len(content)))
    _, version, n_bytes, checksum = _PRELUDE.unpack_from(content)
    if version > FORMAT:
        raise NewerFormat(
            f"{path} has format {version}, this bsfl reads up to {FORMAT}; "
            "upgrade bsfl to open it; nothing was loaded"
        )
    if len(content) < _PRELUDE.size + n_bytes:
        raise TruncatedFile(_too_short(path, _PRELUDE.size + n_bytes, len(content)))
    body = memoryview(content)[_PRELUDE.size :]
    digest = hashlib.sha256(_VERSION.pack(version))
    digest.update(body)
    if len(body) != n_bytes or digest.digest() != checksum:
        raise CorruptFile(
            f"{path} was changed after it was saved (checksum differs); nothing was loaded"
        )
    try:
        return _unpacked(body)
    except (ArithmeticError, LookupError, TypeError, ValueError, *NO_JSON) as error:
        raise CorruptFile(
            f"{path} is no list of arrays, though its checksum is right ({in_short(error)}); "
            "nothing was loaded"
        ) from error


def _unpacked(body: memoryview) -> tuple[dict[str, Any], Arrays]:
    """Return header and arrays; nothing is reserved that does not stand in the file."""
    (n_head,) = _LENGTH.unpack_from(body)
    position = _LENGTH.size + n_head
    if position > len(body):
        raise ValueError(f"a header of {n_head:,} bytes in {len(body):,}")
    header = json.loads(bytes(body[_LENGTH.size : position]))
    if not isinstance(header, dict):
        raise TypeError(f"the header is a {type(header).__name__}")
    arrays: Arrays = {}
    for entry in header.pop("arrays"):
        name, shape, dtype = entry["name"], tuple(entry["shape"]), DTYPES[entry["dtype"]]
        sizes = len(shape) <= MOST_DIMENSIONS and all(type(n) is int and n >= 0 for n in shape)
        if not sizes or name in arrays:
            raise ValueError(f"array {name!r} of shape {shape}")
        size = math.prod(shape)
        if position + size * dtype.itemsize > len(body):
            raise ValueError(f"array {name!r} is cut short")
        flat = np.frombuffer(body, dtype, count=size, offset=position)
        arrays[name] = flat.astype(dtype.newbyteorder("=")).reshape(shape)
        position += size * dtype.itemsize
    if position != len(body):
        raise ValueError(f"{len(body) - position:,} bytes are left")
    return header, arrays


def _too_short(path: Path, expected: int, found: int) -> str:
    return f"{path} is truncated (expected {expected:,} bytes, found {found:,}); nothing was loaded"
