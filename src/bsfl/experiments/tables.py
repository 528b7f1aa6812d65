"""Tables of text, for the terminal, a page or a Markdown file."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from bsfl.experiments.metrics import METRICS
from bsfl.experiments.statistics import Interval
from bsfl.experiments.summary import Summary
from bsfl.experiments.verdict import ONE_SEED_RATIO, baseline, winner
from bsfl.frame import Better, best_rows

TERMINAL = ("selection", "training", "top")
RANKED = ("leaderboard", "top")
"""Which views of a summary are narrow, and which begin with the best."""


GLOSSARY = {
    "Gini": "Gini is the inequality of participation: 0 when all clients took part equally often, "
    "near 1 when a few did nearly all. With participation spread evenly from nothing to twice the "
    "fair number it is a third.",
}
"""Columns that need more than a few words, which a page and a file say once."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Table:
    """A table of text: the first column holds names, the others numbers.

    Attributes:
        title: What it shows.
        columns: Their titles.
        rows: Cells by row.
        note: What else to know.
        better: Which way is better, by title of a column; the best of such a column is marked.
        about: What a column is in everyday words, by its title.
        aside: Rows that do not compete for the best, such as that of an oracle.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    better: Mapping[str, Better] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)
    aside: Collection[int] = ()

    def best(self) -> list[set[int]]:
        """Return for every column the rows with its best number."""
        return [
            best_rows([row[i] for row in self.rows], self.better.get(column), self.aside)
            for i, column in enumerate(self.columns)
        ]

    def markdown(self) -> str:
        """Return the table as Markdown, under its title; the best of a column is bold."""
        best = self.best()
        marked = [
            [f"**{cell}**" if i in best[j] else cell for j, cell in enumerate(row)]
            for i, row in enumerate(self.rows)
        ]
        rule = ["---", *["---:"] * (len(self.columns) - 1)]
        lines = ["| " + " | ".join(line) + " |" for line in (self.columns, rule, *marked)]
        about = "; ".join(f"{column}: {words}" for column, words in self.about.items())
        note = "\n".join(filter(None, (about, self.note)))
        return "\n\n".join(filter(None, (f"### {self.title}", "\n".join(lines), note)))

    def __str__(self) -> str:
        """Return the table as plain text, under its title and over its note."""
        lines = [self.columns, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = []
        for line in lines:
            first, *numbers = line
            cells = [n.rjust(w) for n, w in zip(numbers, widths[1:], strict=True)]
            texts.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
        return "\n".join([self.title, "", *texts, *(["", self.note] if self.note else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the table for a notebook; the best of a column is bold."""
        names = ((column, escape(self.about.get(column, ""))) for column in self.columns)
        head = "".join(f'<th title="{about}">{escape(column)}</th>' for column, about in names)
        best, body = self.best(), ""
        for i, row in enumerate(self.rows):
            cells = ((escape(cell), i in best[j]) for j, cell in enumerate(row))
            marked = (f"<td><b>{cell}</b>" if is_best else f"<td>{cell}" for cell, is_best in cells)
            body += f"<tr>{'</td>'.join(marked)}</td></tr>"
        note = escape(self.note).replace("\n", "<br>")
        caption = f"<caption>{escape(self.title)}</caption>"
        head = f"<thead><tr>{head}</tr></thead>"
        return f"<table>{caption}{head}<tbody>{body}</tbody></table><p class='note'>{note}</p>"


def explained(tables: Sequence[Table]) -> str:
    """Return what the glossary says of the columns of some tables, once each."""
    columns = {column for table in tables for column in table.columns}
    return "\n".join(words for column, words in GLOSSARY.items() if column in columns)


def table_of(
    title: str,
    rows: Sequence[Mapping[str, str | Interval | None]],
    better: Mapping[str, Better] | None = None,
) -> Table:
    """Return rows of names and intervals as a table; `better` as in Table.

    >>> table_of("t", [{"policy": "a", "time": Interval(1234.5, 1230.0, 1239.0)}]).rows
    [['a', '1,234 ± 4']]
    """

    def text(value: str | Interval | None) -> str:
        return value if isinstance(value, str) else (value.text() if value else "") or "–"

    cells = [[text(value) for value in row.values()] for row in rows]
    return Table(title=title, columns=list(rows[0]), rows=cells, better=better or {})


def summary_table(summary: Summary, view: str, note: str = "") -> Table:
    """Return one row per policy and one column per metric that this view shows; see Metric."""
    known = {key for found in summary.policies.values() for key in found}
    shown = [m for m in METRICS.values() if m.key in known and view in f"{m.wide} {m.short}"]
    is_brief = view in TERMINAL
    notes = ["times are virtual; report.html says what the columns are"] * is_brief
    notes += ["*: knows the true speeds"] * bool(summary.oracles)
    rows = []
    for label in summary.ranked() if view in RANKED else summary.policies:
        cells = [summary.text(label, m.key, wide=view in m.wide) for m in shown]
        rows.append([f"{label} *" if label in summary.oracles else label, *cells])
    return Table(
        title=summary.title,
        columns=["policy", *(metric.title for metric in shown)],
        rows=rows,
        note="\n".join(filter(None, ("; ".join(notes), note))),
        better={metric.title: metric.better for metric in shown if metric.better},
        about={} if is_brief else {metric.title: metric.about for metric in shown},
        aside=[i for i, row in enumerate(rows) if row[0].endswith(" *")],
    )


def winners_table(summaries: Sequence[Summary]) -> Table:
    """Return one row per scenario: the policy first to the target, when, and those tied with it."""
    rows = []
    for one in summaries:
        found = winner(one)
        if found is None:
            rows.append([one.scenario.name, "none", "–", "–", "–"])
            continue
        label, base = found.label, baseline(one)
        faster = one.text(label, "target_speed_up", wide=True) if label != base else "–"
        own = one.text(label, found.key, wide=True)
        rows.append([one.scenario.name, label, own, faster, ", ".join(found.tied) or "none"])
    return Table(
        title="The first policy to reach the target, by scenario",
        columns=["scenario", "first", "after (s)", "times as fast as random", "tied with it"],
        rows=rows,
        note=f"Tied: within {ONE_SEED_RATIO:g} times its time, as equals may differ with one seed."
        if all(one.seeds == 1 for one in summaries)
        else "Tied: the 95 % interval of the ratio of times, seed by seed, includes 1.",
    )
