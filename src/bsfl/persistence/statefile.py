"""One file that holds named arrays and a small JSON header; safe to be killed while writing.

Layout: 12 bytes of magic, a format number (4 bytes), the length of the body (8), the SHA-256 of
format number and body (32), then the body: length of the header (8), the header as JSON, and the
arrays' raw little-endian bytes in the order the header lists them. No pickle anywhere.

The SHA-256 is the stamp of a file: it changes with every change of the content.
"""

import hashlib
import json
import math
import os
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl.errors import CorruptFile, NewerFormat, NotAStateFile, TruncatedFile
from bsfl.persistence.atomic import replace_file
from bsfl.validation import in_short

MAGIC = b"bsfl-state\r\n"
FORMAT = 1
_PRELUDE = struct.Struct("<12sIQ32s")
_VERSION = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")

DTYPES = {name: np.dtype(name) for name in ("<f8", "<f4", "<i8", "<i4", "<u4", "|b1", "|u1")}
"""What arrays may hold: numbers, whole numbers, truths and bytes."""

NO_JSON = RecursionError, struct.error
"""What else can go wrong in bytes that are no header."""

Arrays = dict[str, npt.NDArray[Any]]


def write(
    path: Path,
    header: Mapping[str, Any],
    arrays: Arrays,
    *,
    check: Callable[[bytes], None] = lambda stamp: None,
) -> bytes:
    """Replace the file at `path` in one step, see replace_file; return its stamp.

    Args:
        path: The file.
        header: Plain data; the key `arrays` is set here.
        arrays: Of the types in DTYPES.
        check: Gets the new stamp just before the file is replaced; raises if it must not be.
    """
    stored = {n: a.astype(a.dtype.newbyteorder("<"), copy=False) for n, a in arrays.items()}
    listing = [{"name": n, "dtype": a.dtype.str, "shape": a.shape} for n, a in stored.items()]
    head = json.dumps({**header, "arrays": listing}).encode()
    parts: list[bytes | memoryview] = [_LENGTH.pack(len(head)), head]
    parts += [np.ascontiguousarray(a).reshape(-1).view(np.uint8).data for a in stored.values()]
    stamp = _stamp(FORMAT, *parts)
    prelude = _PRELUDE.pack(MAGIC, FORMAT, sum(len(p) for p in parts), stamp)
    replace_file(path, prelude, *parts, check=lambda: check(stamp))
    return stamp


def _stamp(version: int, *body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(_VERSION.pack(version))
    for part in body:
        digest.update(part)
    return digest.digest()


def header_of(path: Path) -> dict[str, Any]:
    """Return the header of a state file without reading its arrays; of another file, nothing."""
    with suppress(OSError, ValueError, *NO_JSON):
        if path.is_file():  # opening a pipe would wait for ever
            with path.open("rb") as file:
                magic, version, _, _ = _PRELUDE.unpack(file.read(_PRELUDE.size))
                (n_head,) = _LENGTH.unpack(file.read(_LENGTH.size))
                n_left = os.fstat(file.fileno()).st_size - file.tell()
                if magic == MAGIC and version <= FORMAT and n_head <= n_left:
                    header = json.loads(file.read(n_head))
                    return header if isinstance(header, dict) else {}
    return {}


def stamp_of(path: Path) -> bytes:
    """Return the stamp of a file that `write` made; of another, some of its bytes."""
    if not path.is_file():  # opening a pipe would wait for ever
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
    version, n_bytes, checksum, size = 0, 0, b"", _PRELUDE.size
    if len(content) >= size:
        _, version, n_bytes, checksum = _PRELUDE.unpack_from(content)
    if version > FORMAT:
        raise NewerFormat(
            f"{path} has format {version}, this bsfl reads up to {FORMAT}; "
            "upgrade bsfl to open it; nothing was loaded"
        )
    if len(content) < size + n_bytes:
        raise TruncatedFile(
            f"{path} is truncated (expected {size + n_bytes:,} bytes, found {len(content):,}); "
            "nothing was loaded"
        )
    body = memoryview(content)[size:]
    if len(body) != n_bytes or _stamp(version, body) != checksum:
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
        if name in arrays or not all(type(n) is int and n >= 0 for n in shape):
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
