"""Cells of tables: numbers, ids, latencies with their intervals."""

from typing import Any

from bsfl.html import Cell
from bsfl.monitoring.words import figure


def cell(value: Any) -> Cell:
    """Return a value as a cell.

    >>> cell(None), cell(41.26).shown, cell(True).shown
    (Cell(shown='', key=None, is_best=False), '41.3', 'yes')
    """
    if value is None:
        return Cell("")
    if isinstance(value, bool):
        return Cell("yes" if value else "no", int(value))
    if isinstance(value, float):
        return Cell(figure(value), value)
    if isinstance(value, int):
        return Cell(figure(value) if value < 10**6 else f"{value:,}", value)
    return Cell(str(value), str(value))


def ratio_cell(ratio: float | None) -> Cell:
    """Return a participation ratio as a cell.

    >>> ratio_cell(0.0962).shown, ratio_cell(None).shown
    ('0.10', '')
    """
    return Cell("") if ratio is None else Cell(f"{ratio:.2f}", ratio)


def client_cell(client: Any) -> Cell:
    """Return an id as the name of a row."""
    return Cell(str(client), client if isinstance(client, int) else str(client))


def latency_cell(latency_s: float | None, low_s: float | None, high_s: float | None) -> Cell:
    """Return the median latency of a client and the 80 % interval of its next response."""
    if latency_s is None or low_s is None or high_s is None:
        return Cell("")
    return Cell(f"{figure(latency_s)} ({figure(low_s)} – {figure(high_s)})", latency_s)
