"""A report: headline, tables, figures and numbers, written the same way for every study.

DIR/report.html    everything on one page that opens offline
DIR/report.md      headline and tables
DIR/summary.json   the numbers
DIR/<figure>.png   and .pdf
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bsfl import validation
from bsfl.experiments.results import alone_in
from bsfl.experiments.tables import Table, number
from bsfl.extras import optional_imports
from bsfl.html import Cell, Column, Markup, asset, page
from bsfl.html import table as sortable
from bsfl.persistence import replace_file
from bsfl.report.plots import Plot

with optional_imports():
    from bsfl.report import figures_matplotlib, figures_plotly


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of a study.

    Attributes:
        title: The question.
        numbers: All numbers as plain data.
        headline: The results, one sentence each; the first is the most important.
        code: Lines to paste.
        tables: For page, Markdown and terminal.
        terminal_tables: Tables for the terminal instead, where `tables` are too wide for it.
        plots: For the page and as files.
        details: Plain data that the page shows at its end, by title.
    """

    title: str
    numbers: Mapping[str, Any]
    headline: Sequence[str] = ()
    code: str = ""
    tables: Sequence[Table] = ()
    terminal_tables: Sequence[Table] | None = None
    plots: Sequence[Plot] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_markdown(self) -> str:
        """Return headline and tables as Markdown."""
        code = [f"```python\n{self.code}\n```"] if self.code else []
        parts = [*self.headline, *code, *(table.to_markdown() for table in self.tables)]
        return "\n\n".join(filter(None, parts)) + "\n"

    def page(self) -> str:
        """Return everything as one page, with the scripts that draw its plots."""
        tables = [
            html_table(replace(one, title="") if one.title == self.title else one, f"table-{i}")
            for i, one in enumerate(self.tables)  # the page shows its own title already
        ]
        scripts = [figures_plotly.library(), asset("figures.js")] if self.plots else []
        return page(
            "report.html",
            self.title,
            headline=self.headline,
            scripts=scripts,
            code=self.code,
            tables=tables,
            plots=self.plots,
            details={name: json.dumps(one, indent=2) for name, one in self.details.items()},
            figure=figures_plotly.figure,
        )

    def write(self, folder: Path) -> None:
        """Write all files into a folder, each in one step."""
        validation.folder(folder)
        with alone_in(folder):
            numbers = json.dumps(self.numbers, indent=2) + "\n"
            replace_file(folder / "summary.json", numbers.encode())
            replace_file(folder / "report.md", self.to_markdown().encode())
            for plot in self.plots:
                if plot.has_file:
                    figures_matplotlib.save(plot, folder)
            replace_file(folder / "report.html", self.page().encode())


def html_table(table: Table, name: str = "") -> Markup:
    """Return a table as HTML that sorts, with the best of each column marked."""
    best = table.best()
    rows = [
        [
            Cell(shown, number(cell) if j else shown, is_best=(i, j) in best)
            for j, (shown, cell) in enumerate(zip(texts, row, strict=True))
        ]
        for i, (texts, row) in enumerate(zip(table.texts(), table.rows, strict=True))
    ]
    columns = [Column(one.title, one.better, one.about) for one in table.columns]
    return sortable(columns, rows, caption=table.title, note=table.notes(), name=name)
