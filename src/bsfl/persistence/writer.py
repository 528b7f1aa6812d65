"""Writes the state files of a scheduler, at once or while the rounds go on.

A file has one writer. Its stamp shows a scheduler whether the file is still the one that it loaded
or saved; the header's `owner` says whether another process that still runs saved it. On Windows,
which processes run is not looked up: there, the stamp alone protects a file.
"""

import logging
import os
import platform
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np

from bsfl._core.clients import id_arrays
from bsfl.errors import FileInUse
from bsfl.persistence import statefile
from bsfl.persistence.statefile import Arrays

LARGEST_PID = 2**31 - 1

_LOG = logging.getLogger("bsfl")


class StateFiles:
    """Writes state files; of each it knows the stamps that it has while it is the scheduler's own.

    A copy (`copy.deepcopy`, `pickle`) or a forked process is another writer.
    """

    def __init__(self) -> None:
        self._writer = BackgroundWriter()
        self._stamps: dict[Path, set[bytes]] = {}
        self._spare: Arrays = {}

    def loaded(self, path: Path, stamp: bytes) -> None:
        """Remember that the scheduler continues from a file."""
        self._stamps[path] = {stamp}

    def save(
        self,
        path: Path,
        header: dict[str, Any],
        arrays: Arrays,
        names: list[Any],
        n_names: int,
        *,
        wait: bool,
    ) -> None:
        """Write a state file, or copy the arrays and write it in the background.

        The first `n_names` of the ids are written; the list only ever grows at its end.
        """
        if not wait:
            arrays, self._spare = _copies(arrays, self._spare), {}

        def write() -> None:
            ids = {f"ids/{name}": a for name, a in id_arrays(names[:n_names]).items()}
            self.write(path, header, arrays | ids)
            if not wait:
                self._spare = arrays  # the next copy takes their place in memory

        if wait:
            self._writer.join()
            write()
            self.wait()
        else:
            self._writer.put(path, write)

    def write(self, path: Path, header: dict[str, Any], arrays: Arrays) -> None:
        """Write a state file; raise FileInUse, and write nothing, if it is another writer's."""

        def check(stamp: bytes) -> None:
            self._check_writer(path)
            # an interrupt may come before the file is replaced, or after
            self._stamps[path] = {stamp, statefile.stamp_of(path)}

        stamp = statefile.write(path, {**header, "owner": _this_process()}, arrays, check=check)
        self._stamps[path] = {stamp}

    def wait(self) -> None:
        """Return when everything is written, or raise why it was not."""
        self._writer.wait()

    def _check_writer(self, path: Path) -> None:
        known, other = self._stamps.get(path), other_writer(path)
        if known is None and other:
            raise FileInUse(
                f"{path} belongs to {other}, which is still running; nothing was saved. "
                "Save to another file, or load this one to continue from it"
            )
        if known is not None and path.exists() and statefile.stamp_of(path) not in known:
            by = f" ({other})" if other else ""
            raise FileInUse(
                f"{path} was written by another scheduler{by} since this one saved or loaded it; "
                "nothing was saved. Load it again, or save to another file"
            )


def _copies(arrays: Arrays, spare: Arrays) -> Arrays:
    """Return copies of arrays, in the memory of spare ones that fit: new memory costs twice."""
    copied = {}
    for name, array in arrays.items():
        room = spare.get(name)
        if room is None or room.shape != array.shape or room.dtype != array.dtype:
            room = np.empty_like(array)
        np.copyto(room, array)
        copied[name] = room
    return copied


# --- other writers -------------------------------------------------------------------------------


def other_writer(source: Path | Mapping[str, Any]) -> str | None:
    """Return which other process saved a file, such as "process 4711 on host x"; None if it ended.

    A process of another host counts as ended, and so does a process that cannot be looked up.

    Args:
        source: The file, of which the arrays are not read, or its header.
    """
    header = source if isinstance(source, Mapping) else statefile.header_of(source)
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


def _this_process() -> dict[str, Any]:
    pid = os.getpid()
    return {"host": platform.node(), "pid": pid, "start": _process_start(pid)}


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


# --- in the background ---------------------------------------------------------------------------


class BackgroundWriter:
    """Writes files one after the other while the caller continues; of one path, the newest.

    A write that fails is logged when it fails, and the next `put` or `wait` raises its exception. A
    program that ends waits for its writes. A copy or a forked process starts with nothing to write:
    the parent writes what was put there.
    """

    def __init__(self) -> None:
        self._reset()
        _WRITERS.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Path, Callable[[], None]] = {}
        self._last: Future[None] | None = None
        self._error: BaseException | None = None

    def __reduce__(self) -> tuple[type["BackgroundWriter"], tuple[()]]:
        return BackgroundWriter, ()

    def put(self, path: Path, write: Callable[[], None]) -> None:
        """Call `write` soon; drop an older one for the path that has not begun.

        If an earlier write has failed, this one is done all the same, and the exception is raised.
        """
        has_thread = True
        with self._lock:
            before = self._last
            if path not in self._waiting:
                try:
                    executor = ThreadPoolExecutor(1, "bsfl-save")
                    self._last = executor.submit(self._write, path, before)
                    executor.shutdown(wait=False)  # no thread stays idle
                except RuntimeError:  # a program that is ending starts no thread
                    has_thread = False
            self._waiting[path] = write
        if not has_thread:
            self._write(path, before)
        self._raise()

    def join(self) -> None:
        """Return when everything is written, or has failed."""
        if last := self._last:
            last.result()

    def wait(self) -> None:
        """Return when everything is written, or raise why it was not."""
        self.join()
        self._raise()

    def _write(self, path: Path, before: "Future[None] | None") -> None:
        if before:
            before.result()
        with self._lock:
            write = self._waiting.pop(path, None)
        try:
            if write:
                write()
        except BaseException as error:  # the next call raises it, in the caller's thread
            _LOG.error("%s was not saved: %s: %s", path, type(error).__name__, error)
            self._error = error

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error:
            raise error


_WRITERS: WeakSet[BackgroundWriter] = WeakSet()


def _reset_all() -> None:
    for writer in _WRITERS:  # their threads, and the holders of their locks, stay in the parent
        writer._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)
