"""Tables of numbers, which become text where they are shown: a terminal, a page, a paper."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Self

from bsfl._core.registry import nearest
from bsfl.errors import InvalidInput
from bsfl.experiments.metrics import METRICS, Better, Metric
from bsfl.experiments.statistics import Interval, significantly_best
from bsfl.experiments.summary import Summary
from bsfl.extras import data_frame

TERMINAL = ("selection", "training", "top")
RANKED = ("leaderboard", "top")
"""Which views of a summary are narrow, and which begin with the best."""

SIGNIFICANT = "bold: significantly the best, seed by seed"
"""What a bold number in a table of several seeds is."""
LATEX = {
    **{one: f"\\{one}" for one in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "<": "$<$",
    ">": "$>$",
}
"""Characters that LaTeX reads in another way."""

Columns = Sequence[str] | Mapping[str, str]
"""Names of columns, or the heading for each of them."""
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
class Column:
    """The head of a column, and how its numbers are written.

    Attributes:
        title: What is shown above it.
        better: Which way is better; None: neither.
        about: What it is, in a few words.
        form: The format of a number, as for format(); empty: three digits.
        wide: Whether intervals are shown beside their means.
    """

    title: str
    better: Better | None = None
    about: str = ""
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
        significant: (row, title of the column) of every number that is significantly the best.
            None: the numbers are exact, and the best that is shown is bold.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    aside: Collection[int] = ()
    significant: Collection[tuple[int, str]] | None = None

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
        """Return (row, column) of the numbers that are bold.

        They are significantly the best of their column; of exact numbers, they are the best and all
        that look equal to it, but not where all do.
        """
        titles = [column.title for column in self.columns]
        if self.significant is not None:
            return {(i, titles.index(title)) for i, title in self.significant if title in titles}
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

    def notes(self) -> str:
        """Return the note, and what bold numbers are where only significant ones are bold."""
        return "\n".join(filter(None, (self.note, SIGNIFICANT if self.significant else "")))

    def select(self, columns: Columns) -> Self:
        """Return the table with its first column and these ones, in this order.

        Args:
            columns: Their titles, or a dict of title: heading, for a paper.
        """
        titles = [column.title for column in self.columns]
        for title in columns:
            if title not in titles:
                raise InvalidInput(f"unknown column {title!r}{nearest(title, titles)}")
        places = [0, *(titles.index(title) for title in columns if title != titles[0])]
        headings = columns if isinstance(columns, Mapping) else {}
        new = {title: headings.get(title, title) for title in titles}
        marked = self.significant
        return replace(
            self,
            columns=[replace(self.columns[j], title=new[titles[j]]) for j in places],
            rows=[[row[j] for j in places] for row in self.rows],
            significant=None if marked is None else [(i, new[title]) for i, title in marked],
        )

    def to_markdown(self, columns: Columns | None = None) -> str:
        """Return the table as Markdown, under its title."""
        if columns is not None:
            return self.select(columns).to_markdown()
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
        parts = (
            f"### {self.title}",
            "\n".join(lines),
            "\n".join(filter(None, (about, self.notes()))),
        )
        return "\n\n".join(filter(None, parts))

    def to_latex(
        self, columns: Columns | None = None, *, caption: str = "", label: str = ""
    ) -> str:
        """Return the table for a paper; it needs the LaTeX package booktabs.

        Args:
            columns: As in `select`; None: all.
            caption, label: With a caption the tabular stands in a table environment.
        """
        if columns is not None:
            return self.select(columns).to_latex(caption=caption, label=label)
        best = self.best()
        marked = [
            [rf"\textbf{{{latex(x)}}}" if (i, j) in best else latex(x) for j, x in enumerate(row)]
            for i, row in enumerate(self.texts())
        ]
        lines = [" & ".join(row) + r" \\" for row in marked]
        head = " & ".join(latex(column.title) for column in self.columns) + r" \\"
        rules = r"\toprule", r"\midrule", r"\bottomrule"
        tabular = [
            rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
            *(rules[0], head, rules[1], *lines, rules[2]),
            r"\end{tabular}",
        ]
        if caption:
            named = [rf"\label{{{label}}}"] if label else []
            start = [r"\begin{table}", r"\centering", rf"\caption{{{latex(caption)}}}", *named]
            tabular = [*start, *tabular, r"\end{table}"]
        return "\n".join(tabular) + "\n"

    def to_frame(self, columns: Columns | None = None) -> Any:
        """Return a pandas DataFrame of the numbers; an interval has three columns.

        They are `gini`, `gini_low` and `gini_high`.
        """
        if columns is not None:
            return self.select(columns).to_frame()
        rows = []
        for cells in self.rows:
            row: dict[str, Any] = {}
            for column, cell in zip(self.columns, cells, strict=True):
                if isinstance(cell, Interval):
                    row[column.title] = cell.mean
                    row |= {f"{column.title}_{end}": getattr(cell, end) for end in ("low", "high")}
                else:
                    row[column.title] = cell
            rows.append(row)
        return data_frame(rows)

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
        note = escape(self.notes()).replace("\n", "<br>")
        head = f"<thead><tr>{head}</tr></thead>"
        return f"<table>{caption}{head}<tbody>{body}</tbody></table><p class='note'>{note}</p>"


def metric_column(metric: Metric, *, wide: bool = True) -> Column:
    """Return the column of a metric."""
    return Column(metric.name, metric.better, metric.about, form=metric.form, wide=wide)


def latex(text: str) -> str:
    r"""Return a text as LaTeX prints it.

    >>> print(latex("50 % of x_1 ± 2"))
    50 \% of x\_1 $\pm$ 2
    """
    return "".join(LATEX.get(character, character) for character in text)


def summary_table(
    summary: Summary, view: str, note: str = "", *, metrics: Sequence[str] | None = None
) -> Table:
    """Return one row per policy and one column per metric.

    Args:
        summary: The numbers.
        view: Which metrics are shown, and how; see Metric.
        note: What else to know.
        metrics: The metrics instead.
    """
    known = {key for own in summary.policies.values() for key in own}
    chosen = [
        metric_column(metric, wide=view in metric.wide)
        for metric in METRICS.values()
        if metric.name in known and view in f"{metric.wide} {metric.short}"
    ]
    if metrics is not None:
        for name in metrics:
            if name not in known:
                raise InvalidInput(f"there is no metric {name!r} here{nearest(name, known)}")
        chosen = [metric_column(METRICS[name]) for name in metrics]
    labels = summary.ranked() if view in RANKED else list(summary.policies)
    competitors = [i for i, label in enumerate(labels) if label not in summary.oracles]
    significant = set()
    for column in chosen:
        values = {
            i: summary.policies[labels[i]][column.title]
            for i in competitors
            if summary.interval(labels[i], column.title)
        }
        winner = significantly_best(values, better=column.better)
        significant |= {(winner, column.title)} if winner is not None else set()
    notes = ["times are virtual; report.html says what the columns are"] * (view in TERMINAL)
    notes += ["*: knows the true speeds"] * bool(summary.oracles)
    return Table(
        title=summary.title,
        columns=[Column("policy"), *chosen],
        rows=[[k, *(summary.interval(k, column.title) for column in chosen)] for k in labels],
        note="\n".join(filter(None, ("; ".join(notes), note))),
        aside=[labels.index(label) for label in summary.oracles],
        significant=significant,
    )
