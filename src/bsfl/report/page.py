"""The one frame of every page: a title, a verdict, tables, figures; it opens offline."""

import json
from collections.abc import Iterable
from html import escape
from typing import Any

from bsfl.analysis.tables import Table

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


def page(title: str, parts: Iterable[str], *, script: str = "") -> str:
    """Return a whole page; parts are pieces of HTML."""
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style><script>{script}</script></head>"
        f"<body><h1>{escape(title)}</h1>{''.join(parts)}</body></html>\n"
    )


def paragraph(text: str) -> str:
    """Return text as a paragraph."""
    return f"<p>{escape(text)}</p>"


def table(content: Table) -> str:
    """Return a table with its title and its note."""
    rows = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in content.rows]
    head = "".join(f"<th>{escape(column)}</th>" for column in content.columns)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f"<div class='wide'><table><caption>{escape(content.title)}</caption>"
        f"<thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div><p class='note'>{escape(content.note)}</p>"
    )


def figure(drawn: str, caption: str) -> str:
    """Return a drawn figure with its caption."""
    return f"<figure>{drawn}<figcaption>{escape(caption)}</figcaption></figure>"


def details(title: str, content: Any) -> str:
    """Return plain data for whoever wants to look closer."""
    text = escape(json.dumps(content, indent=2))
    return f"<details><summary>{escape(title)}</summary><pre>{text}</pre></details>"
