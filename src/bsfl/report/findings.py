"""What came out, whatever was asked: verdict, tables, figures and numbers, written one way.

DIR/report.html    everything on one page that opens offline
DIR/report.md      verdict and tables
DIR/summary.json   the numbers
DIR/<figure>.png   and .pdf
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from bsfl.analysis.tables import Table
from bsfl.extras import optional_imports
from bsfl.files import alone_in, replace_file, write_json
from bsfl.report.plots import Plot

with optional_imports():
    from plotly.offline import get_plotlyjs

    from bsfl.report import paper, screen

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a;
       margin: 2rem auto; max-width: 88rem; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 }
th, td { padding: .3rem .6rem; text-align: right; white-space: nowrap;
         border-bottom: 1px solid #ddd }
caption { text-align: left; font-weight: 600; padding: .3rem .6rem; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
.wide { overflow-x: auto } .note, figcaption { color: #555 }
pre { background: #f5f5f5; padding: 1rem; overflow: auto; font-size: 13px }
figure { margin: 1.5rem 0 }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What came out.

    Attributes:
        title: What was asked.
        numbers: Everything as plain data.
        verdict: The answer, a sentence each.
        tables: For page, Markdown and terminal.
        brief: Tables for the terminal instead, where these are too wide for it.
        plots: For the page and for files of their own.
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
        """Return everything as one page, with the script that draws its plots."""
        title = escape(self.title)
        parts = [f"<p>{escape(sentence)}</p>" for sentence in self.verdict]
        parts += [_table(table) for table in self.tables]
        for plot in self.plots:
            caption = f"<figcaption>{escape(plot.caption)}</figcaption>"
            drawn = screen.draw(plot).to_html(**screen.HTML)
            parts.append(f"<figure>{drawn}{caption}</figure>")
        for name, content in self.details.items():
            text = f"<pre>{escape(json.dumps(content, indent=2))}</pre>"
            parts.append(f"<details><summary>{escape(name)}</summary>{text}</details>")
        script = get_plotlyjs() if self.plots else ""
        return (
            "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width, initial-scale=1'>"
            f"<title>{title}</title><style>{STYLE}</style><script>{script}</script></head>"
            f"<body><h1>{title}</h1>{''.join(parts)}</body></html>\n"
        )

    def write(self, folder: Path) -> None:
        """Write all files into a folder, each in one step."""
        with alone_in(folder):
            write_json(folder / "summary.json", self.numbers)
            replace_file(folder / "report.md", self.markdown().encode())
            for plot in self.plots:
                if plot.on_paper:
                    paper.save(plot, folder)
            replace_file(folder / "report.html", self.page().encode())


def _table(table: Table) -> str:
    """Return a table with its title and its note as HTML."""
    note = escape(table.note).replace("\n", "<br>")
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in table.rows]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f"<div class='wide'><table><caption>{escape(table.title)}</caption><thead><tr>{head}</tr>"
        f"</thead><tbody>{body}</tbody></table></div><p class='note'>{note}</p>"
    )
