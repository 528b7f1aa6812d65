"""Tables as text, whoever prints them: the terminal, a page or a Markdown file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bsfl.analysis.metrics import METRICS
from bsfl.analysis.statistics import Interval
from bsfl.analysis.summary import Summary

TERMINAL = ("selection", "training", "podium")
RANKED = ("leaderboard", "podium")
"""Which views of a summary are narrow, and which begin with the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of text: the first column holds names, the others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> str:
        """Return the table as Markdown, under its title."""
        rule = ["---", *["---:"] * (len(self.columns) - 1)]
        lines = ["| " + " | ".join(line) + " |" for line in (self.columns, rule, *self.rows)]
        parts = (f"### {self.title}", "\n".join(lines), self.note)
        return "\n\n".join(filter(None, parts))


def table_of(title: str, rows: Sequence[Mapping[str, str | Interval | None]]) -> Table:
    """Return rows of names and intervals as a table.

    >>> table_of("t", [{"policy": "a", "time": Interval(1234.5, 1230.0, 1239.0)}]).rows
    [['a', '1,234 ± 4']]
    """

    def text(value: str | Interval | None) -> str:
        return value if isinstance(value, str) else (value.text() if value else "") or "–"

    cells = [[text(value) for value in row.values()] for row in rows]
    return Table(title=title, columns=list(rows[0]), rows=cells)


def summary_table(summary: Summary, view: str, note: str = "") -> Table:
    """Return one row per policy and one column per metric that this view shows; see Metric."""
    known = {key for found in summary.policies.values() for key in found}
    shown = [m for m in METRICS.values() if m.key in known and view in f"{m.wide} {m.short}"]
    about = [f"{metric.title}: {metric.about}" for metric in shown]
    if view in TERMINAL:
        about = ["times are virtual; report.html says what the columns are"]
    about += ["*: is told the true speeds"] * bool(summary.told)
    rows = []
    for label in summary.ranked() if view in RANKED else summary.policies:
        cells = [summary.text(label, m.key, wide=view in m.wide) for m in shown]
        rows.append([f"{label} *" if label in summary.told else label, *cells])
    return Table(
        title=summary.title,
        columns=["policy", *(metric.title for metric in shown)],
        rows=rows,
        note="\n".join(filter(None, ("; ".join(about), note))),
    )
