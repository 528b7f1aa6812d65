"""Tables of numbers, which become text where they are shown: a terminal, a page, Markdown."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape

from bsfl import frame
from bsfl.experiments.metrics import METRICS, Metric
from bsfl.experiments.statistics import Interval
from bsfl.experiments.summary import Summary

TERMINAL = ("selection", "training", "top")
RANKED = ("leaderboard", "top")
"""Which views of a summary are narrow, and which begin with the best."""

Cell = str | float | Interval | None
"""What a table holds: a name, a number, or None for a number that does not exist."""


def number(cell: Cell) -> float | None:
    """Return a number, or the mean of an interval, if it is finite.

    >>> number(Interval(3.0, 2.0, 4.0)), number("bsfl"), number(math.inf)
    (3.0, None, None)
    """
    value = cell.mean if isinstance(cell, Interval) else cell
    return None if value is None or isinstance(value, str) or not math.isfinite(value) else value


@dataclass(frozen=True, slots=True)
class Column(frame.Column):
    """The head of a column, and how its numbers are written.

    Attributes:
        form: The format of a number, as for format(); empty: three digits.
        wide: Whether intervals are shown beside their means.
    """

    form: str = ""
    wide: bool = True

    def text(self, cell: Cell) -> str:
        """Return a cell as it is shown.

        >>> Column("gini", form=".2f").text(0.25), Column("time").text(Interval(1234.5, 1230, 1239))
        ('0.25', '1,234 ± 4')
        """
        if isinstance(cell, str):
            return cell
        if isinstance(cell, Interval):
            return cell.text(self.form, wide=self.wide) or "–"
        return "–" if cell is None else self.text(Interval(cell, math.nan, math.nan))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Table:
    """A table: the first column holds names, the others numbers.

    Attributes:
        title: What it shows.
        columns: Their heads and formats.
        rows: Cells by row.
        note: What else to know.
        aside: Rows that do not compete for the best, such as that of an oracle; a star marks them.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    aside: Collection[int] = ()

    def texts(self) -> list[list[str]]:
        """Return the cells as they are shown."""
        texts = [
            [column.text(cell) for column, cell in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]
        for i in self.aside:
            texts[i][0] += " *"
        return texts

    def best(self) -> set[tuple[int, int]]:
        """Return (row, column) of the best number of every column, and of all that look equal.

        No number is best where all look equal.
        """
        best: set[tuple[int, int]] = set()
        rows = [(i, row) for i, row in enumerate(self.rows) if i not in self.aside]
        for j, column in enumerate(self.columns):
            numbers = {i: value for i, row in rows if (value := number(row[j])) is not None}
            shown = {i: column.text(value) for i, value in numbers.items()}
            if column.better is None or len(set(shown.values())) < 2:
                continue
            values = numbers.values()
            first = column.text(min(values) if column.better == "less" else max(values))
            best |= {(i, j) for i, text in shown.items() if text == first}
        return best

    def markdown(self) -> str:
        """Return the table as Markdown, under its title; the best of a column is bold."""
        best = self.best()
        marked = [
            [f"**{text}**" if (i, j) in best else text for j, text in enumerate(row)]
            for i, row in enumerate(self.texts())
        ]
        head = [column.title for column in self.columns]
        rule = ["---", *["---:"] * (len(head) - 1)]
        lines = ["| " + " | ".join(line) + " |" for line in (head, rule, *marked)]
        about = "; ".join(
            f"{column.title}: {column.about}" for column in self.columns if column.about
        )
        parts = (f"### {self.title}", "\n".join(lines), "\n".join(filter(None, (about, self.note))))
        return "\n\n".join(filter(None, parts))

    def __str__(self) -> str:
        """Return the table as plain text, under its title and over its note."""
        lines = [[column.title for column in self.columns], *self.texts()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = []
        for name, *numbers in lines:
            cells = [text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True)]
            shown.append("  ".join([name.ljust(widths[0]), *cells]).rstrip())
        return "\n".join([self.title, "", *shown, *(["", self.note] if self.note else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the table for a notebook; the best of a column is bold."""
        best, body = self.best(), ""
        for i, row in enumerate(self.texts()):
            cells = (
                f"<b>{escape(t)}</b>" if (i, j) in best else escape(t) for j, t in enumerate(row)
            )
            body += f"<tr><td>{'</td><td>'.join(cells)}</td></tr>"
        head = "".join(
            f'<th title="{escape(column.about)}">{escape(column.title)}</th>'
            for column in self.columns
        )
        caption = f"<caption>{escape(self.title)}</caption>"
        note = escape(self.note).replace("\n", "<br>")
        head = f"<thead><tr>{head}</tr></thead>"
        return f"<table>{caption}{head}<tbody>{body}</tbody></table><p class='note'>{note}</p>"


def metric_column(metric: Metric, *, wide: bool = True) -> Column:
    """Return the column of a metric."""
    return Column(metric.name, metric.better, metric.about, form=metric.form, wide=wide)


def summary_table(summary: Summary, view: str, note: str = "") -> Table:
    """Return one row per policy and one column per metric that this view shows; see Metric."""
    known = {key for metrics in summary.policies.values() for key in metrics}
    columns = [
        metric_column(metric, wide=view in metric.wide)
        for metric in METRICS.values()
        if metric.name in known and view in f"{metric.wide} {metric.short}"
    ]
    labels = summary.ranked() if view in RANKED else list(summary.policies)
    notes = ["times are virtual; report.html says what the columns are"] * (view in TERMINAL)
    notes += ["*: knows the true speeds"] * bool(summary.oracles)
    return Table(
        title=summary.title,
        columns=[Column("policy"), *columns],
        rows=[[k, *(summary.interval(k, column.title) for column in columns)] for k in labels],
        note="\n".join(filter(None, ("; ".join(notes), note))),
        aside=[labels.index(label) for label in summary.oracles],
    )
