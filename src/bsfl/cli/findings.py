"""Findings on the terminal: tables and verdict."""

from pathlib import Path

from rich import box
from rich.table import Table as Drawn
from rich.text import Text

from bsfl.analysis.tables import Table
from bsfl.cli.terminal import console, say
from bsfl.report import Findings


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
