"""Files that survive a crash and other writers: replaced in one step, by names nobody can guess.

Every file system gives the promise that matters: a reader finds the old content or the new, and an
exception leaves no temporary file behind. Without `flock` (some network file systems, and Windows,
which has no `fcntl`), two processes that write one file at the same moment may not notice each
other, and the temporary file of a killed process is removed an hour later instead of at the next
call. Without fsync of folders, a power failure may undo the newest replacement. Where mode and
owner cannot be set, a file that is replaced becomes private to the user who writes it.
"""

import errno
import glob
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ModuleNotFoundError:  # Windows has no locks that processes respect of their own accord
    fcntl = None  # type: ignore[assignment]

ABANDONED_S = 3600.0
"""Age from which a temporary file that cannot be locked counts as left by a killed process."""
LOCK_WAIT_S = 2.0
"""Longest wait for the lock of a folder. Writers hold it for milliseconds; another program may hold
it for ever, as `flock FOLDER python train.py` does."""
RETRY_S = 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64
"""Pauses between attempts to replace a file that a reader has open (Windows alone)."""
UNSUPPORTED = {
    *(errno.EACCES, errno.EBADF, errno.EINVAL, errno.EISDIR, errno.EPERM),
    *(errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP),
}
"""What fsync raises where a file system cannot do it; a failing disk raises EIO, ENOSPC, EDQUOT."""


def replace_file(
    path: Path, *parts: bytes | memoryview, check: Callable[[], None] = lambda: None
) -> None:
    """Replace the content of a file in one step: a reader finds the old content or the new.

    The bytes go to a hidden temporary file in the same folder, are flushed to the disk, and take
    the name. Mode and owner stay as they are. A link is followed within its folder; a link that
    leads out of the folder is replaced itself. A killed process leaves the temporary file, which
    the next call removes.

    Args:
        path: The file.
        parts: Its new content.
        check: Called just before the file is replaced, while no other process replaces a file of
            the folder; raises if it must not be.
    """
    path = _within_folder(path)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    _remove_abandoned(path)
    with _temporary_file(path) as (file, temporary):
        for part in parts:
            file.write(part)
        file.flush()
        _sync(file.fileno())
        if not fcntl:  # Windows moves no open file
            file.close()
        with folder_lock(path.parent):
            check()
            _move(temporary, path)
    with _open_folder(path.parent) as handle:
        if handle is not None:
            _sync(handle)  # makes the new name durable


def _within_folder(path: Path) -> Path:
    path = Path(os.path.realpath(path.parent), path.name)
    if path.is_symlink():
        target = Path(os.path.realpath(path))  # unlike resolve, it accepts a circle
        return target if target.parent == path.parent else path
    return path


@contextmanager
def _temporary_file(path: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """Yield a new hidden file in the folder of another, with its mode and owner, and its path.

    The file is locked while it is open, and removed after an exception.
    """
    before = path.lstat() if path.exists() and not path.is_symlink() else None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        try:
            try:
                handle = os.open(temporary, flags, 0o666 if before is None else 0o600)
            except OSError as error:  # the hidden name says nothing to a user
                error.filename = str(path if path.parent.is_dir() else path.parent)
                raise
            with os.fdopen(handle, "wb") as file:
                lock(file)
                if not temporary.exists():  # another process removed it before it was locked
                    continue
                if before is not None:
                    _copy_mode(handle, before)
                yield file, temporary
                return
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


def _copy_mode(handle: int, before: os.stat_result) -> None:
    """Give a new file the mode and the owner of the old one, as far as the file system can."""
    if not hasattr(os, "fchmod"):
        return
    with suppress(OSError):
        os.fchmod(handle, stat.S_IMODE(before.st_mode))
    now = os.fstat(handle)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid) and os.geteuid() == 0:
        with suppress(OSError):
            os.fchown(handle, before.st_uid, before.st_gid)


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files whose writers were killed: no process holds their locks."""
    pattern = f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}.tmp"
    for left in path.parent.glob(pattern):
        with suppress(OSError):  # its writer has just finished, or it belongs to another user
            before = left.lstat()
            if not stat.S_ISREG(before.st_mode):  # no writer makes such a thing
                continue
            with left.open("rb") as file:
                is_free = try_lock(file)
                if is_free:
                    left.unlink()
            if is_free is None and time.time() - before.st_mtime > ABANDONED_S:
                left.unlink()


def _move(temporary: Path, path: Path) -> None:
    for pause_s in () if fcntl else RETRY_S:
        with suppress(PermissionError):
            os.replace(temporary, path)
            return
        time.sleep(pause_s)
    os.replace(temporary, path)


def _sync(handle: int) -> None:
    """Flush a file or a folder to the disk, unless its file system cannot."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise


@contextmanager
def _open_folder(folder: Path) -> Iterator[int | None]:
    """Yield a handle of a folder; None where there is none: on Windows, or without permission."""
    handle = None
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Keep other processes from replacing files of a folder, where the file system can."""
    with _open_folder(folder) as handle:
        end_s = time.monotonic() + LOCK_WAIT_S
        while handle is not None and try_lock(handle) is False and time.monotonic() < end_s:
            time.sleep(0.002)
        yield


def lock(file: IO[Any]) -> None:
    """Wait until no other process holds a file, where the file system can; closing it frees it."""
    if fcntl:
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(file, fcntl.LOCK_EX)


def try_lock(file: IO[Any] | int) -> bool | None:
    """Lock a file until it is closed; False: another process holds it; None: there are no locks."""
    if not fcntl:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
