"""One caller at a time."""

import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class ThreadLock:
    """A lock that one thread may take several times; copies and forked processes have their own."""

    def __init__(self) -> None:
        self._renew()

    def __reduce__(self) -> tuple[type["ThreadLock"], tuple[()]]:
        return ThreadLock, ()

    def __enter__(self) -> None:
        if self._pid != os.getpid():  # whoever held it has stayed in the parent
            self._renew()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        self._lock, self._pid = threading.RLock(), os.getpid()


def locked(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Let one thread at a time into the methods of an object that has a `_lock`."""

    @wraps(method)
    def alone(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            return method(self, *args, **kwargs)

    return alone
