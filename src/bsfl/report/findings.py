"""What came out, whatever was asked: verdict, tables, figures and numbers, written one way.

DIR/report.html    everything on one page that opens offline
DIR/report.md      verdict and tables
DIR/summary.json   the numbers
DIR/<figure>.png   and .pdf
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bsfl.analysis.tables import Table
from bsfl.extras import optional_imports
from bsfl.files import alone_in, replace_file, write_json
from bsfl.report import page
from bsfl.report.plots import Plot

with optional_imports():
    from plotly.offline import get_plotlyjs

    from bsfl.report import paper, screen


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What came out.

    Attributes:
        title: What was asked.
        verdict: The answer, a sentence each.
        tables: For page, Markdown and terminal.
        brief: Tables for the terminal instead, where these are too wide for it.
        plots: For the page and for files of their own.
        numbers: Everything as plain data.
        details: Plain data that the page shows at its end, by title.
    """

    title: str
    numbers: Mapping[str, Any]
    verdict: Sequence[str] = ()
    tables: Sequence[Table] = ()
    brief: Sequence[Table] | None = None
    plots: Sequence[Plot] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def markdown(self) -> str:
        """Return verdict and tables as Markdown."""
        return "\n\n".join([*self.verdict, *(table.markdown() for table in self.tables)]) + "\n"

    def page(self) -> str:
        """Return everything as one page."""
        parts = [
            *(page.paragraph(sentence) for sentence in self.verdict),
            *(page.table(table) for table in self.tables),
            *(page.figure(screen.html(plot), plot.caption) for plot in self.plots),
            *(page.details(title, content) for title, content in self.details.items()),
        ]
        return page.page(self.title, parts, script=get_plotlyjs() if self.plots else "")

    def write(self, folder: Path) -> None:
        """Write all files into a folder, each in one step."""
        with alone_in(folder):
            write_json(folder / "summary.json", self.numbers)
            replace_file(folder / "report.md", self.markdown().encode())
            for plot in self.plots:
                if plot.on_paper:
                    paper.save(plot, folder)
            replace_file(folder / "report.html", self.page().encode())
