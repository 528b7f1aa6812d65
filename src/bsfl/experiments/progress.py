"""The progress of many runs, and the time that the rest will take, while processes write them."""

import importlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from bsfl.experiments.results import Results
from bsfl.learning.array_task import n_cores

PAUSE_S = 0.3
"""Seconds between two updates."""
N_LINES = 10
"""Lines, beside the last, where there is no terminal."""


@dataclass(slots=True)
class Followed:
    """One run as far as it was seen; times are None for what has not happened."""

    results: Results
    label: str
    index: int
    before: float
    progress: float
    started_s: float | None = None
    moved_s: float | None = None
    moved_from: float = 0.0
    seen_s: float = 0.0

    @property
    def is_active(self) -> bool:
        return self.started_s is not None and self.progress < 1

    @property
    def policy(self) -> tuple[int, str]:
        """The key of runs of the same policy and scenario."""
        return id(self.results), self.label

    def look(self, now_s: float) -> None:
        """See how much of it is on disk; a finished run is not looked at again."""
        if self.progress >= 1:
            return
        file = self.results.run_file(self.label, self.index)
        progress = file.progress()
        if self.started_s is None and (
            progress > self.before or (not self.before and file.path.exists())
        ):
            self.started_s = now_s
        if self.moved_s is None and progress > self.before:
            self.moved_s, self.moved_from = now_s, progress
        self.progress, self.seen_s = progress, now_s


class Meter:
    """Reads the progress of runs from disk and estimates the time that the rest takes.

    A policy costs what its runs have cost per part of a run since their first round was written; a
    policy without runs costs what the others do. Before its first round a run takes as long as the
    others did, without the first one of each process, which compiles and loads. Runs that are too
    short to be observed count by how many are done in a while.

    Args:
        grids: Results that are being written.
        clock: Returns seconds.
        workers: How many runs are made at a time, as far as is known.
    """

    def __init__(
        self,
        grids: Sequence[Results],
        clock: Callable[[], float] = time.monotonic,
        workers: int = 1,
    ) -> None:
        self.clock, self.begun_s, self.n_workers = clock, clock(), workers
        self.runs = [
            Followed(
                results, label, index, before := results.run_file(label, index).progress(), before
            )
            for results in grids
            for label, index in results.runs()
        ]
        self.has_several = len(grids) > 1
        self.before = self.done
        self.look()

    @property
    def done(self) -> float:
        """How many runs are on disk, fractions included."""
        return sum(run.progress for run in self.runs)

    def look(self) -> None:
        """See how far all runs are."""
        now_s = self.clock()
        for run in self.runs:
            run.look(now_s)
        self.n_workers = max(self.n_workers, sum(run.is_active for run in self.runs))

    def left_s(self) -> float | None:
        """Return the seconds that the rest will take; None: nothing is known yet."""
        gained = self.done - self.before
        if gained <= 0:
            return None
        watched = [run for run in self.runs if run.moved_s is not None]
        seen = sum(run.progress - run.moved_from for run in watched)
        if seen < gained / 2:
            return (self.clock() - self.begun_s) * (len(self.runs) - self.done) / gained
        watched.sort(key=lambda run: run.started_s or 0.0)
        later = watched[self.n_workers :]
        begin_s = sum((run.moved_s or 0.0) - (run.started_s or 0.0) for run in later)
        before_first = sum(run.moved_from for run in later)
        alike: dict[tuple[int, str], list[Followed]] = {}
        for run in watched:
            alike.setdefault(run.policy, []).append(run)
        costs, usual = {one: _cost_s(runs) for one, runs in alike.items()}, _cost_s(watched)
        rest = []
        for run in self.runs:
            if run.progress < 1:
                cost_s = costs.get(run.policy) or usual or 0.0
                waits_s = 0.0
                if run.moved_s is None and later:  # until its first rounds are seen
                    waits_s = (begin_s - before_first * cost_s) / len(later)
                rest.append(max(0.0, (1 - run.progress) * cost_s + waits_s))
        return max(sum(rest) / self.n_workers, max(rest, default=0.0))

    def text(self) -> str:
        """Return the active run, how much is done and how long the rest takes, as a line."""
        active = [run for run in self.runs if run.is_active]
        parts = [f"{self.done / len(self.runs):4.0%}"]
        if active:
            one = active[0]
            scenario = one.results.scenario
            parts += [scenario.name] * self.has_several
            others = f" and {len(active) - 1} more" if len(active) > 1 else ""
            which = f"({one.index + 1} of {one.results.seeds})"
            parts += [one.label, f"seed {scenario.first_seed + one.index} {which}{others}"]
        if (left_s := self.left_s()) is not None:
            parts.append(f"{duration(left_s)} left")
        return " · ".join(parts)


def _cost_s(runs: Sequence[Followed]) -> float | None:
    """Return the seconds that a whole run takes after its first round; None: not known."""
    gained = sum(run.progress - run.moved_from for run in runs)
    took_s = sum(run.seen_s - run.moved_s for run in runs if run.moved_s is not None)
    return took_s / gained if gained > 0 else None


def duration(seconds: float) -> str:
    """Return seconds in words, roughly.

    >>> duration(4.2), duration(75), duration(3725)
    ('5 s', '1 min 15 s', '1 h 2 min')
    """
    whole = max(1, -int(-seconds // 1))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def watch(grids: Sequence[Results], *, jobs: int = -1, pause_s: float = PAUSE_S) -> Iterator[None]:
    """Show the progress of all runs while the block runs: one line that changes, or a few lines.

    The line changes on a terminal and in a notebook. Nothing is shown if no run is missing.

    Args:
        grids: Results that the block writes.
        jobs: Processes that write them; -1: one per core.
        pause_s: Seconds between two updates.
    """
    meter = Meter(grids, workers=n_cores() if jobs < 1 else jobs)
    if meter.done == len(meter.runs):
        yield
        return
    screen, over = _screen(), threading.Event()

    def follow() -> None:
        while not over.wait(pause_s):
            meter.look()
            screen.show(meter)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    is_done = False
    try:
        yield
        is_done = True
    finally:
        over.set()
        thread.join()
        n_new = len(meter.runs) - round(meter.before)
        took = duration(meter.clock() - meter.begun_s)
        screen.end(f"{n_new} run{'s' * (n_new != 1)} in {took}" if is_done else "")


class Live:
    """A line that is written over itself."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.width = stream, 0

    def show(self, meter: Meter) -> None:
        """Draw the line anew."""
        self._write(meter.text()[: shutil.get_terminal_size().columns - 1])

    def end(self, last: str) -> None:
        """Leave a last word, or nothing."""
        self._write(last)
        self.stream.write("\n" if last else "\r")
        self.stream.flush()

    def _write(self, line: str) -> None:
        self.stream.write(f"\r{line:<{self.width}}")
        self.stream.flush()
        self.width = len(line)


class Cell:
    """An output of a notebook that is replaced, in a browser and where the notebook is run without.

    Args:
        display: IPython's function of this name.
    """

    def __init__(self, display: Callable[..., Any]) -> None:
        self.output = display({"text/plain": ""}, raw=True, display_id=True)

    def show(self, meter: Meter) -> None:
        """Replace the output."""
        self.end(meter.text().strip())

    def end(self, last: str) -> None:
        """Leave a last word, or nothing."""
        self.output.update({"text/plain": last}, raw=True)


class Lines:
    """A plain line for every tenth of the work, for logs and files."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.tenth = stream, 0

    def show(self, meter: Meter) -> None:
        """Print a line if another tenth is done."""
        tenth = int(N_LINES * meter.done / len(meter.runs))
        if self.tenth < tenth < N_LINES:
            self.tenth = tenth
            self.end(meter.text())

    def end(self, last: str) -> None:
        """Print a line, if there is one."""
        if last:
            self.stream.write(f"{last.strip()}\n")
            self.stream.flush()


def _screen() -> Cell | Live | Lines:
    """Return where progress is drawn: a notebook, a terminal, or plain lines."""
    shell: Any = sys.modules.get("IPython")
    if shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None:
        return Cell(importlib.import_module("IPython.display").display)
    return Live(sys.stderr) if sys.stderr.isatty() else Lines(sys.stderr)
