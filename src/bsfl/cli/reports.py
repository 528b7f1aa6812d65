"""Reports on the terminal: tables, headline and code."""

from pathlib import Path
from textwrap import wrap

from rich import box
from rich.table import Table as Drawn
from rich.text import Text

from bsfl.cli.terminal import console, say
from bsfl.errors import InvalidInput
from bsfl.experiments.tables import Table
from bsfl.report import Report

HEAD_WIDTH = 10
"""Characters of a column's title in one line."""


def check_folder(folder: Path, *, has_runs: bool) -> None:
    """Check that a folder holds no results of another command, which would be overwritten."""
    is_of_runs, is_written = (
        (folder / name).exists() for name in ("manifest.json", "summary.json")
    )
    if (is_of_runs or is_written) and is_of_runs != has_runs:
        raise InvalidInput(f"{folder} holds what another command wrote; choose another --out")


def write_and_show(report: Report, folder: Path) -> None:
    """Write a report, and print its tables, its headline and the folder with the rest."""
    report.write(folder)
    for table in report.tables if report.terminal_tables is None else report.terminal_tables:
        console.print(drawn(table))
    code = [f"\n{report.code}\n"] if report.code else []
    last = f"report.html, figures and summary.json are in {folder}"
    for line in (*report.headline, *code, last):
        say(line)


def drawn(table: Table) -> Drawn:
    """Return a table with its title above and its note below; markup in its texts is escaped."""
    shown = Drawn(title=Text(table.title), caption=Text(table.note), box=box.SIMPLE_HEAD)
    shown.title_justify = shown.caption_justify = "left"
    for i, column in enumerate(table.columns):
        shown.add_column(
            Text(_in_lines(column.title)), justify="right" if i else "left", overflow="fold"
        )
    for row in table.texts():
        shown.add_row(*(Text(cell.replace(" ", "\N{NO-BREAK SPACE}")) for cell in row))
    return shown


def _in_lines(title: str) -> str:
    """Return a title in lines that end at spaces and underscores, for narrow columns."""
    lines = wrap(title.replace("_", "_ "), HEAD_WIDTH, break_long_words=False)
    return "\n".join(lines).replace("_ ", "_")
