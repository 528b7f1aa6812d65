"""The base of every page: templates that escape, one style sheet, tables that sort.

A page needs no other file and no network. It runs the scripts that it was given and no others, even
if its texts hold some: the security policy in its head names each by its hash, and forbids requests
to other servers.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from bsfl.extras import optional_imports
from bsfl.monitoring.words import ago, figure, named, seconds

with optional_imports():
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

__all__ = ["SHOWN", "Cell", "Column", "Markup", "asset", "page", "render", "table"]

SHOWN = 100
"""Rows of a table that are drawn at first; sorting and searching know the others, too."""


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column: its title, which way is better, and what it is in a few words."""

    title: str
    better: Literal["less", "more"] | None = None
    about: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: what is shown, what it is sorted by (None: it comes last), and whether it is best."""

    shown: str
    key: float | str | None = None
    is_best: bool = False


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("bsfl.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {}
    environment.filters |= {"figure": figure, "seconds": seconds, "named": named, "ago": ago}
    return environment


@cache
def asset(name: str) -> Markup:
    """Return a style sheet or script of this package as it is, such as "tables.js"."""
    environment = _environment()
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])


def render(template: str, **values: Any) -> Markup:
    r"""Return a part of a page; a lone surrogate, which no file can hold, is written as \udxxx."""
    text = _environment().get_template(template).render(values)
    return Markup(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def page(
    template: str,
    title: str,
    *,
    headline: Sequence[str] = (),
    scripts: Sequence[str] = (),
    is_live: bool = False,
    **values: Any,
) -> Markup:
    """Return a whole page.

    Args:
        template: Extends base.html.
        title: What the page is about.
        headline: The results, one sentence each; the first is the most important.
        scripts: Sources that run when the page is loaded, after the one that sorts tables.
        is_live: Whether it may send requests to its own server.
        values: For the template.
    """
    sources = [asset("tables.js"), *map(Markup, scripts)]
    hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in sources]
    return render(
        template,
        title=title,
        headline=headline,
        style=asset("style.css"),
        sources=sources,
        hashes=hashes,
        is_live=is_live,
        **values,
    )


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    *,
    caption: str = "",
    note: str = "",
    name: str = "",
) -> Markup:
    """Return a table; the first column holds names.

    Only the first rows are part of the document at once, so 100,000 are no burden: the others are
    in a template, and a search field and a button bring them.

    Args:
        columns: The heads.
        rows: Cells by row.
        caption: What the table shows.
        note: What else to know, below; lines stay lines.
        name: Keeps how it is sorted when a live page is drawn again; unique on its page.
    """
    about = [column for column in columns if column.about]
    return render(
        "table.html",
        columns=columns,
        first=rows[:SHOWN],
        others=rows[SHOWN:],
        about=about,
        caption=caption,
        notes=note.splitlines(),
        name=name,
    )
