"""One thread that writes the newest of what it is given, while the caller goes on."""

import atexit
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

_FAILED: "list[BackgroundWriter]" = []
"""Those whose last error may not have been seen; kept alive until the program ends."""


class BackgroundWriter:
    """Runs one write after the other; of those that wait for one path the newest is kept.

    A write that fails is reported by the next call, which does its own work all the same; if there
    is none, when the program ends, on stderr and by the exit code 1. A forked process starts with
    nothing to write: what its parent was asked for, its parent writes.
    """

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._next: dict[Path, Callable[[], None]] = {}
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __reduce__(self) -> tuple[type["BackgroundWriter"], tuple[()]]:
        """Let a copy start with nothing to write."""
        return BackgroundWriter, ()

    def put(self, path: Path, write: Callable[[], None]) -> None:
        """Have `write` called soon; an older one for the path that has not begun is dropped."""
        self._leave_to_parent()
        with self._lock:
            self._next[path] = write
            if self._thread is None or not self._thread.is_alive():
                # not a daemon: a program that ends waits for what it asked to be written
                self._thread = threading.Thread(target=self._run, name="bsfl-save")
                self._thread.start()
            self._raise()

    def join(self) -> None:
        """Return when nothing is being written."""
        self._leave_to_parent()
        thread = self._thread
        if thread:
            thread.join()

    def wait(self) -> None:
        """Return when everything is written, or raise why it was not."""
        self.join()
        with self._lock:
            self._raise()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._next:
                    self._thread = None
                    return
                write = self._next.pop(next(iter(self._next)))
            try:
                write()
            except BaseException as error:  # passed on to the caller, in its own thread
                self._error = error
                if self not in _FAILED:
                    _FAILED.append(self)

    def _leave_to_parent(self) -> None:
        if self._pid != os.getpid():  # the lock may be held by a thread that has stayed there
            self._start()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error:
            raise error


@atexit.register
def _complain() -> None:
    """Say at the end of a program what was not written and nobody has heard of."""
    errors = [one._error for one in _FAILED if one._error and one._pid == os.getpid()]
    for error in errors:
        print("bsfl: what was to be saved in the background is not written:", file=sys.stderr)
        traceback.print_exception(error, file=sys.stderr)
    if errors:
        atexit.unregister(_complain)
        atexit._run_exitfuncs()  # all others, as this one does not return
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
