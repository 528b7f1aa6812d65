"""A progress bar that follows the files of a run, whichever processes write them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from bsfl.runs import Results

PAUSE_S = 0.3


@contextmanager
def watch(results: Results, console: Console) -> Iterator[None]:
    """Show how much of all runs is on disk while the block runs."""
    total = len(results.runs())
    columns = (TextColumn(f"{total} runs"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        progress.update(task, completed=results.progress())
        done = threading.Event()

        def follow() -> None:
            while not done.wait(PAUSE_S):
                progress.update(task, completed=results.progress())

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
