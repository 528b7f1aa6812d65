"""Findings on the terminal: a progress bar while they are computed, then tables and verdict."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from rich import box
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
)
from rich.table import Table as Drawn
from rich.text import Text

from bsfl.analysis.tables import Table
from bsfl.cli.terminal import console, errors, say
from bsfl.report import Findings
from bsfl.runs import Results

PAUSE_S = 0.3


class Remaining(ProgressColumn):
    """Time to go at the pace since the start; what was on disk before tells nothing of it."""

    def render(self, task: Task) -> Text:
        done = task.completed - task.fields["before"]
        if done <= 0 or task.elapsed is None:
            return Text("-:--:--")
        left_s = task.elapsed * ((task.total or 0.0) - task.completed) / done
        return Text(f"{timedelta(seconds=round(max(left_s, 0.0)))} left")


@contextmanager
def watch(grids: Sequence[Results]) -> Iterator[None]:
    """Show how much of all runs is on disk, whichever processes write, while the block runs."""

    def on_disk() -> float:
        return sum(results.progress() for results in grids)

    total, before = sum(len(results.runs()) for results in grids), on_disk()
    columns = (TextColumn(f"{total} runs"), BarColumn(), TaskProgressColumn(), Remaining())
    with Progress(*columns, console=errors, transient=True) as progress:
        task = progress.add_task("", total=total, before=before)
        progress.update(task, completed=before)
        done = threading.Event()

        def follow() -> None:
            while not done.wait(PAUSE_S):
                progress.update(task, completed=on_disk())

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def write_and_show(findings: Findings, folder: Path) -> None:
    """Write everything, print tables and verdict, and say where the rest is."""
    findings.write(folder)
    for table in findings.tables if findings.brief is None else findings.brief:
        console.print(drawn(table))
    for line in (*findings.verdict, f"report.html, figures and summary.json are in {folder}"):
        say(line)


def drawn(table: Table) -> Drawn:
    """Return a table with its title above and its note below; no text in it is markup."""
    shown = Drawn(title=Text(table.title), caption=Text(table.note), box=box.SIMPLE_HEAD)
    shown.title_justify = shown.caption_justify = "left"
    for i, column in enumerate(table.columns):
        shown.add_column(Text(column), justify="right" if i else "left")
    for row in table.rows:
        shown.add_row(*(Text(cell.replace(" ", "\N{NO-BREAK SPACE}")) for cell in row))
    return shown
