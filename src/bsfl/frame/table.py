"""Tables that sort: by a click or a key on the head of a column, the better end first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bsfl.frame.page import Markup, text

Better = Literal["less", "more"]
SHOWN = 100
"""Rows that are drawn at first; sorting and searching know the others, too."""


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column: its title, which way is better, and what it is in a few words."""

    title: str
    better: Better | None = None
    about: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: what is shown, what it is sorted by (None: it comes last), and whether it is best."""

    shown: str
    key: float | str | None = None
    is_best: bool = False


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    *,
    caption: str = "",
    note: str = "",
    name: str = "",
) -> Markup:
    """Return a table as HTML; the first column holds names.

    Only the first rows are part of the document at once, so 100,000 are no burden: the others wait
    in a template, and a search field and a button bring them.

    Args:
        columns: The heads.
        rows: Cells by row.
        caption: What the table shows.
        note: What else to know, below; lines stay lines.
        name: Keeps how it is sorted when a live page is drawn again; unique on its page.
    """
    head = "".join(_head(column) for column in columns)
    lines = ["<tr>" + "".join(map(_cell, row, range(len(row)))) + "</tr>" for row in rows]
    kept = f' data-name="{text(name)}"' if name else ""
    parts = [
        f'<div class="table"{kept}>',
        f'<p class="caption">{text(caption)}</p>' if caption else "",
        f'<div class="wide" tabindex="0" role="region" aria-label="{text(caption or "table")}">',
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines[:SHOWN])}</tbody></table></div>",
        f"<template><table><tbody>{''.join(lines[SHOWN:])}</tbody></table></template>"
        if len(lines) > SHOWN
        else "",
        _about(columns, note),
        "</div>",
    ]
    return Markup("".join(parts))


def _head(column: Column) -> str:
    way = {"less": "lower is better", "more": "higher is better", None: ""}[column.better]
    first = "descending" if column.better == "more" else "ascending"
    small = f"<small>{way}</small>" if way else ""
    title = text(column.title).replace("_", "_<wbr>")  # a long name may take two lines
    button = f'<button type="button">{title}</button>'
    return f'<th scope="col" data-first="{first}">{button}{small}</th>'


def _cell(cell: Cell, place: int) -> str:
    key = "" if cell.key is None else f"{cell.key}"
    key = "" if key == cell.shown else f' data-key="{text(key)}"'
    shown = text(cell.shown) if place else f'<span class="name">{text(cell.shown)}</span>'
    return f"<td{key}{' class=best' if cell.is_best else ''}>{shown}</td>"


def _about(columns: Sequence[Column], note: str) -> str:
    """Return what the columns are, folded away, and the note."""
    known = [(c.title, c.about) for c in columns if c.about]
    listed = "".join(f"<dt>{text(title)}</dt><dd>{text(words)}</dd>" for title, words in known)
    summary = "<summary>What the columns mean</summary>"
    parts = f'<details class="about">{summary}<dl>{listed}</dl></details>'
    noted = "".join(f"<p>{text(line)}</p>" for line in note.splitlines())
    return (parts if known else "") + (f'<div class="note">{noted}</div>' if noted else "")
