"""CSV files of which every row is about a client: opened safely, read row by row."""

import csv
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from bsfl.errors import InvalidInput, reason
from bsfl.persistence.regular_file import open_csv
from bsfl.types import IntArray, Rng

if TYPE_CHECKING:
    from _csv import Reader

MAX_CSV_BYTES = 1 << 32
MAX_ROWS = 5_000_000
"""Rows of a file; so many take about 2 GB of memory."""
MAX_LINE = 100_000
"""Characters of a line."""
MAX_SHOWN = 80
"""Characters of a file's text in a message."""
DELIMITERS = ",;\t|"

Cells = tuple[int, list[str]]
"""A row, after the number of its line."""


def file_path(path: object) -> Path:
    """Return the path of a file that is a setting of a scenario."""
    if path in (None, ""):
        raise InvalidInput("missing key 'path'")
    if not isinstance(path, str | Path):
        raise InvalidInput(f"path must be the name of a file, got {path!r}")
    return Path(path)


@contextmanager
def open_rows(path: Path) -> Iterator[tuple[list[str], Iterator[Cells], str]]:
    """Open a CSV with a header: its column names, its rows with as many cells, its delimiter."""
    try:
        with open_csv(path, errors="surrogateescape", max_bytes=MAX_CSV_BYTES) as file:
            lines = _text_lines(path, file)
            header = next(lines, "")
            delimiter = max(DELIMITERS, key=header.count)
            reader = csv.reader(chain([header], lines), delimiter=delimiter)
            names = [name.strip() for name in next(reader, [])]
            yield names, _rows(path, reader, len(names)), delimiter
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {reason(error)}") from None
    except csv.Error as error:
        raise InvalidInput(f"{path}, line {reader.line_num}: cannot be read: {error}") from None


def _text_lines(path: Path, file: TextIO) -> Iterator[str]:
    """Yield the lines of a file that are text and not longer than a line may be."""
    n_lines = 0
    while line := file.readline(MAX_LINE + 1):
        n_lines += 1
        if len(line) > MAX_LINE:
            raise InvalidInput(f"{path}, line {n_lines}: more than {MAX_LINE:,} characters")
        if not line.isascii() and any("\ud800" <= character <= "\udfff" for character in line):
            raise InvalidInput(f"{path}, line {n_lines}: not text in UTF-8")
        yield line


def _rows(path: Path, reader: "Reader", n_columns: int) -> Iterator[Cells]:
    n_rows = 0
    for cells in filter(None, reader):
        n_rows += 1
        line = reader.line_num
        if n_rows > MAX_ROWS:
            raise InvalidInput(f"{path}, line {line}: more than {MAX_ROWS:,} rows")
        if len(cells) != n_columns:
            raise InvalidInput(
                f"{path}, line {line}: expected {n_columns} values, got {len(cells)}"
            )
        yield line, cells
    if not n_rows:
        raise InvalidInput(f"{path}: there is no row below the header")


def read_numbers(
    path: Path, layouts: Sequence[tuple[str, ...]], *, limits: tuple[float, float]
) -> tuple[tuple[str, ...], list[tuple[int, str, list[float]]]]:
    """Return which layout a CSV of clients has, and the line, client and numbers of each row.

    Args:
        path: The file; its first column is the client.
        layouts: Names of the other columns, all of them numbers.
        limits: Smallest and largest number that is taken.
    """
    with open_rows(path) as (names, rows, _):
        columns = tuple(names[1:])
        if names[:1] not in (["client"], ["client_id"]) or columns not in layouts:
            raise InvalidInput(
                f"{path}, line 1: the first line must be "
                f"{' or '.join(','.join(('client', *layout)) for layout in layouts)}, "
                f"got {quoted(','.join(names)) or 'nothing'}"
            )
        found = []
        for line, (client, *texts) in rows:
            place, cells = f"{path}, line {line}", zip(columns, texts, strict=True)
            check_name(place, client)
            numbers = [as_number(place, name, text, *limits) for name, text in cells]
            found.append((line, client, numbers))
        return columns, found


def check_name(place: str, client: str) -> None:
    """Check that a row names its client."""
    if not client.strip():
        raise InvalidInput(f"{place}: the client has no name")


def as_number(place: str, name: str, text: str, low: float, high: float) -> float:
    """Return the number in a cell."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:  # not for NaN either
        raise InvalidInput(
            f"{place}: {name} must be a number from {low:g} to {high:g}, got {quoted(text)!r}"
        )
    return value


def quoted(text: str) -> str:
    """Return a text of a file as one short line."""
    shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
    return "".join(c if c.isprintable() else "?" for c in shown)


def follow(
    recorded: Sequence[str], n_clients: int, rng: Rng, ids: Sequence[str] | None = None
) -> IntArray:
    """Return which recorded client each one follows: itself where it is known, else a random one.

    None is followed twice unless there are fewer.
    """
    devices: IntArray = rng.choice(len(recorded), n_clients, replace=n_clients > len(recorded))
    place = {name: k for k, name in enumerate(recorded)}
    for k, name in enumerate(ids or ()):
        devices[k] = place.get(name, devices[k])
    return devices
