"""One frame for every page: it needs no other file and no network, and shows values as text."""

from bsfl.frame.page import Markup, asset, data, page, text
from bsfl.frame.table import Better, Cell, Column, best_rows, number, table

__all__ = [
    "Better",
    "Cell",
    "Column",
    "Markup",
    "asset",
    "best_rows",
    "data",
    "number",
    "page",
    "table",
    "text",
]
