"""CSV files of which every row is about a client: lines that are text, rows of numbers."""

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from bsfl.errors import InvalidInput, reason
from bsfl.persistence.regular_file import open_csv

if TYPE_CHECKING:
    from _csv import Reader

MAX_ROWS = 5_000_000
"""Rows of a file; so many take about 2 GB of memory."""
MAX_LINE = 100_000
"""Characters of a line."""

MAX_SHOWN = 80
"""Characters of a file's text in a message."""

Row = tuple[int, str, list[float]]
"""The line on which a row ends, for messages; its client; its numbers."""


def read_rows(
    path: Path, layouts: tuple[tuple[str, ...], ...], *, limits: tuple[float, float]
) -> tuple[tuple[str, ...], list[Row]]:
    """Return which of the layouts a CSV of clients has, and its rows.

    Args:
        path: The file; its first column is the client.
        layouts: Names of the other columns, all of them numbers.
        limits: Smallest and largest number that is taken.
    """
    try:
        with open_csv(path, errors="surrogateescape") as file:
            reader = csv.reader(text_lines(path, file))
            first, *others = (name.strip() for name in next(reader, None) or [""])
            columns = tuple(others)
            if first not in ("client", "client_id") or columns not in layouts:
                raise InvalidInput(
                    f"{path}, line 1: the first line must be "
                    f"{' or '.join(','.join(('client', *layout)) for layout in layouts)}, "
                    f"got {quoted(','.join((first, *columns))) or 'nothing'}"
                )
            rows = list(_rows(path, reader, columns, limits))
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {reason(error)}") from None
    except csv.Error as error:
        raise InvalidInput(f"{path}, line {reader.line_num}: cannot be read: {error}") from None
    if not rows:
        raise InvalidInput(f"{path}: there is no client in the trace")
    return columns, rows


def text_lines(path: Path, file: TextIO) -> Iterator[str]:
    """Yield the lines of a file that are text and not longer than a line may be."""
    n_lines = 0
    while line := file.readline(MAX_LINE + 1):
        n_lines += 1
        if len(line) > MAX_LINE:
            raise InvalidInput(f"{path}, line {n_lines}: more than {MAX_LINE:,} characters")
        if not line.isascii() and any("\ud800" <= character <= "\udfff" for character in line):
            raise InvalidInput(f"{path}, line {n_lines}: not text in UTF-8")
        yield line


def _rows(
    path: Path, lines: "Reader", columns: tuple[str, ...], limits: tuple[float, float]
) -> Iterator[Row]:
    """Yield the rows after the header."""
    for i, line in enumerate(filter(None, lines)):
        if i == MAX_ROWS:
            raise InvalidInput(f"{path}, line {lines.line_num}: more than {MAX_ROWS:,} rows")
        numbers = _numbers(f"{path}, line {lines.line_num}", columns, line, limits)
        yield lines.line_num, line[0], numbers


def _numbers(
    place: str, columns: tuple[str, ...], line: list[str], limits: tuple[float, float]
) -> list[float]:
    """Return the numbers of one line, after its client."""
    if len(line) != 1 + len(columns):
        raise InvalidInput(f"{place}: expected {1 + len(columns)} values, got {len(line)}")
    if not line[0].strip():
        raise InvalidInput(f"{place}: the client has no name")
    numbers, (low, high) = [], limits
    for name, text in zip(columns, line[1:], strict=True):
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not low <= number <= high:  # not for NaN either
            raise InvalidInput(
                f"{place}: {name} must be a number from {low:g} to {high:g}, got {quoted(text)!r}"
            )
        numbers.append(number)
    return numbers


def quoted(text: str) -> str:
    """Return a text of a file as one short line."""
    shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
    return "".join(c if c.isprintable() else "?" for c in shown)
