"""A whole page: title, headline and parts, readable on a phone, in light and dark mode.

A page runs the scripts that it was given and no others, even if its texts hold some: the security
policy in its head names each by its hash, and forbids requests to other servers.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any


class Markup(str):
    """A text that is HTML already; every other text is escaped."""

    __slots__ = ()


@cache
def asset(name: str) -> str:
    """Return a file that comes with this package, such as "tables.js"."""
    return (files(__package__) / name).read_text("utf-8")


def text(value: object) -> Markup:
    r"""Return any text as HTML; what is HTML already stays.

    >>> text("<b>"), text("\ud800"), text(Markup("<b>"))
    ('&lt;b&gt;', '\\ud800', '<b>')
    """
    if isinstance(value, Markup):
        return value
    return Markup(escape(f"{value}".encode("utf-8", "backslashreplace").decode("utf-8")))


def data(name: str, content: Any) -> Markup:
    r"""Return plain data for the scripts of a page: JSON.parse(document.getElementById(name).text).

    >>> data("x", {"client": "</script>"})
    '<script type="application/json" id="x">{"client": "\\u003c/script>"}</script>'
    """
    safe = json.dumps(content).replace("<", "\\u003c")
    return Markup(f'<script type="application/json" id="{text(name)}">{safe}</script>')


def page(
    title: str,
    body: str,
    *,
    headline: Sequence[str] = (),
    scripts: Sequence[str] = (),
    is_live: bool = False,
) -> str:
    """Return a whole page.

    Args:
        title: What it is about.
        body: Its parts, as HTML.
        headline: The results, one sentence each; the first is the most important.
        scripts: Sources that run when the page is there, after the one that sorts tables.
        is_live: Whether it may ask its own server for news.
    """
    sources = [asset("tables.js"), *scripts]
    hashes = " ".join(f"'sha256-{_sha256(source)}'" for source in sources)
    asking = "; connect-src 'self'" if is_live else ""
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"form-action 'self'; base-uri 'none'{asking}"
    )
    lead = [f'<p class="lead">{text(one)}</p>' for one in headline[:1]]
    lead += [f"<p>{text(one)}</p>" for one in headline[1:]]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<link rel="icon" href="data:,"><title>{text(title)}</title>'
        f"<style>{asset('style.css')}</style></head>"
        f"<body><main><h1>{text(title)}</h1>{''.join(lead)}{body}</main>"
        f"{''.join(f'<script>{source}</script>' for source in sources)}</body></html>\n"
    )


def _sha256(source: str) -> str:
    return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
