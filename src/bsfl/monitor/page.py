"""Pages that need nothing but themselves: no other file, no network; ids are text, never markup."""

from collections.abc import Sequence
from html import escape
from typing import Any

from bsfl.monitor.inspect import COLUMNS
from bsfl.monitor.words import figure

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem;
       color: #1b1b1b; background: #fff }
h1 { font-size: 1.3rem } h2 { font-size: 1.05rem; margin: 1.6rem 0 .3rem }
pre { background: #f4f4f2; padding: .8rem; overflow-x: auto }
table { border-collapse: collapse; width: 100% } .wide { overflow-x: auto }
th, td { text-align: right; padding: .15rem .6rem; border-bottom: 1px solid #e4e4e0 }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere }
th { font-weight: 600 } p.note { color: #555; margin: .2rem 0 }
svg { width: 100%; height: 9rem; background: #f8f8f6 }
"""


def page(title: str, body: str) -> str:
    """Return a whole page."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{shown(title)}</title><style>{STYLE}</style></head>"
        f"<body><h1>{shown(title)}</h1>{body}</body></html>"
    )


def shown(value: Any) -> str:
    """Return a value as text of a page.

    >>> shown("<b>"), shown(None), shown(41.26), shown(True)
    ('&lt;b&gt;', '', '41.3', 'yes')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return figure(value)
    text = f"{value}".encode("utf-8", "backslashreplace").decode("utf-8")
    return escape(text)


def html_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table; every cell is text."""
    head = "".join(f"<th>{shown(name)}</th>" for name in columns)
    lines = ("".join(f"<td>{shown(cell)}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def inspected_page(title: str, summary: str, table: Sequence[dict[str, Any]]) -> str:
    """Return what a scheduler knows, as a page."""
    about = "".join(f"<p class=note>{shown(n)}: {shown(text)}</p>" for n, text in COLUMNS.items())
    rows = [list(row.values()) for row in table]
    return page(title, f"<pre>{shown(summary)}</pre>{html_table(list(COLUMNS), rows)}{about}")
