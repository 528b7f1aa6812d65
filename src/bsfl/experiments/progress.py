"""How far many runs are: a line that says what is finished, what runs now, and the time left."""

import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

from bsfl.extras import optional_imports

N_LINES = 10
"""Lines, beside the last, where there is no terminal."""


class Meter:
    """Counts finished runs and estimates the time that the rest takes.

    Attributes:
        left: The runs that are not finished, in the order in which they are started.
    """

    def __init__(self, title: str, left: Sequence[str], n_before: int, n_workers: int) -> None:
        """Start the clock; `n_before` runs were finished before."""
        self.title, self.left, self.n_before, self.n_workers = title, [*left], n_before, n_workers
        self.n_new, self.begun_s, self.prints_lines = 0, time.monotonic(), False
        self.last_s = self.begun_s

    def finished(self, run: str) -> None:
        """Count a run as finished."""
        self.left.remove(run)
        self.n_new, self.last_s = self.n_new + 1, time.monotonic()
        n_runs = self.n_new + len(self.left)
        before, now = (N_LINES * n // n_runs for n in (self.n_new - 1, self.n_new))
        if self.prints_lines and before < now < N_LINES:
            print(self, file=sys.stderr, flush=True)

    def so_far(self) -> str:
        """Return how many of all runs are finished, in words."""
        n_done = self.n_before + self.n_new
        return f"{n_done} of {n_done + len(self.left)} runs"

    def left_s(self) -> float:
        """Return the seconds that the rest takes if runs are alike and one was finished."""
        turns_left = math.ceil(len(self.left) / self.n_workers)
        turn_s = (self.last_s - self.begun_s) / math.ceil(self.n_new / self.n_workers)
        return max(0.0, turns_left * turn_s - (time.monotonic() - self.last_s))

    def __str__(self) -> str:
        n_now = min(self.n_workers, len(self.left))
        more = f" and {n_now - 1} more" if n_now > 1 else ""
        left = [f"{duration(self.left_s())} left"] if self.n_new and self.left else []
        return " · ".join(
            [self.title, self.so_far(), *(one + more for one in self.left[:1]), *left]
        )


def duration(seconds: float) -> str:
    """Return seconds in words, roughly.

    >>> duration(4.2), duration(75), duration(3725)
    ('5 s', '1 min 15 s', '1 h 2 min')
    """
    whole = max(1, math.ceil(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def shown(meter: Meter) -> Iterator[None]:
    """Show a meter while the block runs: one line that changes, or lines without a terminal."""
    with optional_imports():
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

    console = Console(stderr=True)
    draws = find_spec("ipywidgets") is not None if console.is_jupyter else console.is_terminal
    if draws:
        with Live(get_renderable=lambda: Text(str(meter)), console=console, transient=True):
            yield
    else:
        meter.prints_lines = True
        yield
    took = duration(time.monotonic() - meter.begun_s)
    print(f"{meter.n_new} run{'s' * (meter.n_new != 1)} in {took}", file=sys.stderr)
