"""Writes that happen while the caller continues; of those that wait for one path, the newest."""

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from weakref import WeakSet

_LOG = logging.getLogger("bsfl")


class BackgroundWriter:
    """Runs one write after the other, in one thread.

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
        self._executor: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None
        self._error: BaseException | None = None

    def __reduce__(self) -> tuple[type["BackgroundWriter"], tuple[()]]:
        return BackgroundWriter, ()

    def put(self, path: Path, write: Callable[[], None]) -> None:
        """Call `write` soon; drop an older one for the path that has not begun.

        If an earlier write has failed, this one is done all the same, and the exception is raised.
        """
        with self._lock:
            is_submitted = path in self._waiting
            self._waiting[path] = write
            if not is_submitted:
                is_submitted = self._submit(path)
        if not is_submitted:
            self.join()
            self._write(path)
        self._raise()

    def join(self) -> None:
        """Return when everything is written, or has failed."""
        if last := self._last:
            last.result()

    def wait(self) -> None:
        """Return when everything is written, or raise why it was not."""
        self.join()
        self._raise()

    def _submit(self, path: Path) -> bool:
        """Return whether a thread will write; there is none for a program that is ending."""
        try:
            self._executor = self._executor or ThreadPoolExecutor(1, "bsfl-save")
            self._last = self._executor.submit(self._write, path)
        except RuntimeError:
            return False
        return True

    def _write(self, path: Path) -> None:
        with self._lock:
            write = self._waiting.pop(path, None)
        try:
            if write:
                write()
        except BaseException as error:  # the next call raises it, in the caller's thread
            _LOG.error("%s was not saved: %s: %s", path, type(error).__name__, error)
            self._error = error
        with self._lock:
            if not self._waiting and self._executor:  # no thread stays idle
                self._executor.shutdown(wait=False)
                self._executor = None

    def _raise(self) -> None:
        with self._lock:
            error, self._error = self._error, None
        if error:
            raise error


_WRITERS: WeakSet[BackgroundWriter] = WeakSet()


def _reset_all() -> None:
    for writer in _WRITERS:  # their threads, and the holders of their locks, stay in the parent
        writer._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)
