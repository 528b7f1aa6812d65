"""One file that holds named arrays and a small JSON header; safe to be killed while writing.

Layout: 12 bytes of magic, a format number (4 bytes), the length of the body (8), the SHA-256 of
format number and body (32), then the body: length of the header (8), the header as JSON, and the
arrays' raw little-endian bytes in the order the header lists them. No pickle anywhere.
"""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl.errors import CorruptFile, NewerFormat, NotAStateFile, TruncatedFile
from bsfl.files import replace_file

MAGIC = b"bsfl-state\r\n"
FORMAT = 1
_PRELUDE = struct.Struct("<12sIQ32s")
_VERSION = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")

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


def write(path: Path, header: dict[str, Any], arrays: Arrays) -> None:
    """Replace the file at `path` in one step; see replace_file."""
    stored = {n: a.astype(a.dtype.newbyteorder("<"), copy=False) for n, a in arrays.items()}
    listing = [{"name": n, "dtype": a.dtype.str, "shape": a.shape} for n, a in stored.items()]
    head = json.dumps({**header, "arrays": listing}).encode()
    parts: list[bytes | memoryview] = [_LENGTH.pack(len(head)), head]
    parts += [np.ascontiguousarray(a).reshape(-1).view(np.uint8).data for a in stored.values()]
    digest = hashlib.sha256(_VERSION.pack(FORMAT))
    for part in parts:
        digest.update(part)
    prelude = _PRELUDE.pack(MAGIC, FORMAT, sum(len(p) for p in parts), digest.digest())
    replace_file(path, prelude, *parts)


def read(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Return the header and the arrays of a file that `write` made, or say what is wrong."""
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
    (n_head,) = _LENGTH.unpack_from(body)
    position = _LENGTH.size + n_head
    header = json.loads(bytes(body[_LENGTH.size : position]))
    arrays: Arrays = {}
    for entry in header.pop("arrays"):
        dtype = np.dtype(entry["dtype"])
        size = int(np.prod(entry["shape"], dtype=np.int64))
        flat = np.frombuffer(body, dtype, count=size, offset=position)
        arrays[entry["name"]] = flat.astype(dtype.newbyteorder("=")).reshape(entry["shape"])
        position += size * dtype.itemsize
    return header, arrays


def _too_short(path: Path, expected: int, found: int) -> str:
    return f"{path} is truncated (expected {expected:,} bytes, found {found:,}); nothing was loaded"
