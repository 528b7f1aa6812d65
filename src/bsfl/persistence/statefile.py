"""One file that holds named arrays and a small JSON header; safe to be killed while writing.

Layout: 12 bytes of magic, a format number (4 bytes), the length of the body (8), the SHA-256 of
format number and body (32), then the body: length of the header (8), the header as JSON, and the
arrays' raw little-endian bytes in the order the header lists them. No pickle anywhere.

A file has one writer. Its stamp, the SHA-256, shows a writer whether the file is still the one that
it loaded or saved; the header's `owner` says whether another process that still runs saved it. On
Windows, which processes run is not looked up: there, the stamp alone protects a file.
"""

import hashlib
import json
import logging
import math
import os
import platform
import secrets
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl.errors import CorruptFile, FileInUse, NewerFormat, NotAStateFile, TruncatedFile
from bsfl.persistence.atomic import replace_file
from bsfl.validation import in_short

_LOG = logging.getLogger("bsfl")

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

LARGEST_PID = 2**31 - 1

Arrays = dict[str, npt.NDArray[Any]]


class Owner:
    """The writer of state files that one scheduler is; a copy or a forked one is another writer."""

    def __init__(self) -> None:
        self._entries: dict[int, dict[str, Any]] = {}

    def __reduce__(self) -> tuple[type["Owner"], tuple[()]]:
        return Owner, ()

    def entry(self) -> dict[str, Any]:
        """Return what a file says of its writer: host, process, its start, and a random token."""
        pid = os.getpid()
        if pid not in self._entries:
            entry = {"host": platform.node(), "pid": pid, "start": _process_start(pid)}
            self._entries.setdefault(pid, {**entry, "token": secrets.token_hex(8)})
        return self._entries[pid]


def other_writer(source: Path | Mapping[str, Any]) -> str | None:
    """Return which other process saved a file, such as "process 4711 on host x"; None if it ended.

    A process of another host counts as ended, and so does a process that cannot be looked up.

    Args:
        source: The file, of which the arrays are not read, or its header.
    """
    header = source if isinstance(source, Mapping) else _header_of(source)
    match header.get("owner"):
        case {"host": str(host), "pid": int(pid), "start": int() | None as start}:
            is_here = bool(host) and host == platform.node() and 0 < pid <= LARGEST_PID
            if is_here and pid != os.getpid() and _is_running(pid, start):
                return f"process {int(pid)} on host {host}"
    return None


def warn_of_other_writer(path: Path) -> None:
    """Log which other process saves a file that is being loaded, if it still runs."""
    if other := other_writer(path):
        _LOG.warning(
            "%s was saved by %s, which is still running; only one of the two should save it",
            *(path, other),
        )


def _process_start(pid: int) -> int | None:
    """Return when a process started, in ticks since the boot; None: it ended, or no /proc."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if after_name[0] in (b"Z", b"X") else int(after_name[19])
    except (OSError, LookupError, ValueError):
        return None


def _is_running(pid: int, start: int | None) -> bool:
    if start is not None:
        return _process_start(pid) == start
    if os.name != "posix":  # there, kill would end the process
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to another user
        return True
    return True


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


def write(
    path: Path,
    header: Mapping[str, Any],
    arrays: Arrays,
    *,
    stamp: bytes | None = None,
    owner: Owner | None = None,
) -> bytes:
    """Replace the file at `path` in one step, see replace_file; return its stamp.

    Args:
        path: The file.
        header: Plain data; the keys `arrays` and `owner` are set here.
        arrays: Of the types in DTYPES.
        stamp: Of the file that this writer loaded or saved last: FileInUse if another writer has
            changed the file since. None: FileInUse if another process that still runs saved it.
        owner: Who writes; None: any process may replace what another has written.
    """
    stored = {n: a.astype(a.dtype.newbyteorder("<"), copy=False) for n, a in arrays.items()}
    listing = [{"name": n, "dtype": a.dtype.str, "shape": a.shape} for n, a in stored.items()]
    content = {**header, **({"owner": owner.entry()} if owner else {}), "arrays": listing}
    head = json.dumps(content).encode()
    parts: list[bytes | memoryview] = [_LENGTH.pack(len(head)), head]
    parts += [np.ascontiguousarray(a).reshape(-1).view(np.uint8).data for a in stored.values()]
    digest = hashlib.sha256(_VERSION.pack(FORMAT))
    for part in parts:
        digest.update(part)
    prelude = _PRELUDE.pack(MAGIC, FORMAT, sum(len(p) for p in parts), digest.digest())
    replace_file(path, prelude, *parts, check=lambda: _check_writer(path, stamp, owner))
    return digest.digest()


def _check_writer(path: Path, stamp: bytes | None, owner: Owner | None) -> None:
    """Check that no file of another writer is about to be replaced."""
    if stamp is None:
        if owner and (other := other_writer(path)):
            raise FileInUse(
                f"{path} belongs to {other}, which is still running; nothing was saved. "
                "Save to another file, or load this one to continue from it"
            )
    elif path.exists() and stamp_of(path) != stamp:
        header = _header_of(path)
        saved_by = header.get("owner")
        if owner and isinstance(saved_by, dict) and saved_by.get("token") == owner.entry()["token"]:
            return  # this writer saved the file and was interrupted before it knew the stamp
        other = other_writer(header)
        by = f" ({other})" if other else ""
        raise FileInUse(
            f"{path} was written by another scheduler{by} since this one saved or loaded it; "
            "nothing was saved. Load it again, or save to another file"
        )


def _header_of(path: Path) -> dict[str, Any]:
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
