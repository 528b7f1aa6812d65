"""Files that survive a crash: replaced in one step, written by one process at a time."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ModuleNotFoundError:  # no such thing on Windows, where two runs must not share a folder
    fcntl = None  # type: ignore[assignment]


def replace_file(path: Path, *parts: bytes | memoryview) -> None:
    """Give the file at `path` new content in one step: a reader sees the old or the new.

    The bytes go to a hidden temporary file beside it, are flushed to the disk, and take the name.
    One process at a time may write a path; a crash leaves at most the one temporary file, which
    the next call overwrites.
    """
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name itself durable, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_json(path: Path, content: Any) -> None:
    """Write plain data as indented JSON, in one step; the folder is made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, (json.dumps(content, indent=2) + "\n").encode())


def lock(file: IO[Any]) -> None:
    """Wait until no other process holds this file; closing it lets the next one in."""
    if fcntl:
        fcntl.flock(file, fcntl.LOCK_EX)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Let one process at a time write into a folder; others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        lock(file)
        yield
