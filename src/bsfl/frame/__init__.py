"""One frame for every page: it needs no other file and no network, and shows values as text."""

from bsfl.frame.charts import Bar, bars, facts, part, spread
from bsfl.frame.page import Markup, asset, data, page, text
from bsfl.frame.table import SHOWN, Better, Cell, Column, table

__all__ = [
    "SHOWN",
    "Bar",
    "Better",
    "Cell",
    "Column",
    "Markup",
    "asset",
    "bars",
    "data",
    "facts",
    "page",
    "part",
    "spread",
    "table",
    "text",
]
