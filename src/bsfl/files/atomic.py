"""Files that survive a crash and other writers: replaced in one step, by names nobody guesses."""

import errno
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ModuleNotFoundError:  # no such thing on Windows, where two runs must not share a folder
    fcntl = None  # type: ignore[assignment]


def replace_file(
    path: Path, *parts: bytes | memoryview, check: Callable[[], None] = lambda: None
) -> None:
    """Give the file at `path` new content in one step: a reader sees the old or the new.

    The bytes go to a hidden temporary file beside it, are flushed to the disk, and take the name.
    Mode and owner stay as they are. A link is followed within its folder; one that leads out of it
    is replaced itself. A crash leaves the temporary file, which the next call removes.

    Args:
        path: The file.
        parts: Its new content.
        check: Called just before the file is replaced, while no other process replaces a file of
            the folder; raises if it must not be.
    """
    path = _within_folder(path)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    _remove_left_behind(path)
    file, temporary = _temporary(path)
    try:
        with file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
            with _folder_lock(path.parent):
                check()
                os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _within_folder(path: Path) -> Path:
    path = Path(os.path.realpath(path.parent), path.name)
    if path.is_symlink():
        target = Path(os.path.realpath(path))  # unlike resolve, it does not mind a circle
        return target if target.parent == path.parent else path
    return path


def _temporary(path: Path) -> tuple[IO[bytes], Path]:
    """Return a new file beside another, with its mode and owner, and locked while it is open."""
    before = path.lstat() if path.exists() and not path.is_symlink() else None
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        mode = 0o666 if before is None else 0o600
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except OSError as error:  # nobody knows the hidden name
            error.filename = str(path if path.parent.is_dir() else path.parent)
            raise
        file = os.fdopen(handle, "wb")
        lock(file)
        if temporary.exists():  # else it was taken for one left behind, before it was locked
            break
        file.close()
    if before is not None and hasattr(os, "fchmod"):
        os.fchmod(handle, stat.S_IMODE(before.st_mode))
        now = os.fstat(handle)
        if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid) and os.geteuid() == 0:
            os.fchown(handle, before.st_uid, before.st_gid)
    return file, temporary


def _remove_left_behind(path: Path) -> None:
    """Remove temporary files of writers that were killed: nobody holds them any more."""
    for left in path.parent.glob(f".{_literal(path.name)}.{'[0-9a-f]' * 16}.tmp"):
        try:
            if stat.S_ISREG(left.lstat().st_mode):  # what else is there was not made by a writer
                with left.open("rb") as file:
                    if _try_lock(file):
                        left.unlink(missing_ok=True)
        except OSError:  # its writer has just finished, or it is somebody else's
            continue


def _literal(name: str) -> str:
    """Return a pattern that matches a name alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Keep other processes from replacing files of a folder, where the file system can."""
    if not fcntl:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems lock no folders; the rest still holds
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


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


def _try_lock(file: IO[Any]) -> bool:
    """Return whether no other process held this file; then it is held here until it is closed."""
    if not fcntl:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Let one process at a time write into a folder; others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        lock(file)
        yield
