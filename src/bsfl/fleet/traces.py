"""Recorded fleets: a CSV of latencies or capacities, one row per observation or client.

Two layouts, told apart by their header:

    client,latency_s                                    any number of rows per client; resampled
    client,compute_ms_per_sample,bandwidth_kbps         one row per client; see bsfl.fleet.phones
"""

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from bsfl.errors import InvalidInput, reason
from bsfl.fleet.latency import Latencies, Recorded
from bsfl.fleet.phones import Sizes, phone_latencies
from bsfl.records import LATENCY_RANGE, FloatArray, IntArray, Rng

if TYPE_CHECKING:
    from _csv import Reader

LATENCY = ("latency_s",)
CAPACITY = ("compute_ms_per_sample", "bandwidth_kbps")

MAX_ROWS = 5_000_000
"""Rows of a file; so many take about 2 GB of memory."""
MAX_LINE = 100_000
"""Characters of a line."""

MAX_SHOWN = 80
"""Characters of a file's text in a message."""

Row = tuple[int, str, list[float]]
"""The line on which a row ends, for messages; its client; its numbers."""


def trace(
    n_clients: int,
    rng: Rng,
    *,
    path: str = "",
    samples: Sizes = 120,
    model_bytes: float = 1e6,
    jitter: float = 0.2,
    ids: Sequence[str] | None = None,
) -> Latencies:
    """Return n_clients of a recorded fleet, drawn at random; twice the same if it has fewer.

    They keep their names; a client that is there twice is "name", "name+2", and so on.

    Args:
        path: The CSV file.
        samples, model_bytes, jitter: As for phones; only for capacities.
        ids: What the clients are called, where the data has names; those that the file knows are
            the same ones here.
    """
    if not isinstance(path, str) or not path:
        raise InvalidInput(f"path must be the name of a file, got {path!r}")
    columns, rows = read_trace(Path(path))
    recorded, names = list(rows.values()), list(rows)
    who = follow(names, n_clients, rng, ids)
    called = numbered(names[k] for k in who) if ids is None else ids
    if columns == LATENCY:
        return Recorded([recorded[k][:, 0] for k in who], called)
    compute_ms, kbps = np.array([recorded[k][0] for k in who]).T
    drawn = phone_latencies(
        compute_ms, kbps, samples=samples, model_bytes=model_bytes, jitter=jitter
    )
    return replace(drawn, ids=called)


def follow(
    recorded: Sequence[str], n_clients: int, rng: Rng, ids: Sequence[str] | None = None
) -> IntArray:
    """Return which recorded client each one follows: itself where it is known, else a random one.

    None is followed twice unless there are fewer.
    """
    who: IntArray = rng.choice(len(recorded), n_clients, replace=n_clients > len(recorded))
    place = {name: k for k, name in enumerate(recorded)}
    for k, name in enumerate(ids or ()):
        who[k] = place.get(name, who[k])
    return who


def numbered(names: Iterable[str]) -> list[str]:
    """Return names of which none is there twice.

    >>> numbered(["a", "b", "a", "a"])
    ['a', 'b', 'a+2', 'a+3']
    """
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}+{seen[name]}")
    return found


def read_trace(path: Path) -> tuple[tuple[str, ...], dict[str, FloatArray]]:
    """Return the columns of a trace and, for each client, its rows as an array."""
    rows: dict[str, list[list[float]]] = {}
    columns, lines = read_rows(path, (LATENCY, CAPACITY), limits=LATENCY_RANGE)
    for _, client, numbers in lines:
        rows.setdefault(client, []).append(numbers)
    if columns == CAPACITY and (twice := [c for c, r in rows.items() if len(r) > 1]):
        raise InvalidInput(f"{path}: client {quoted(twice[0])!r} has more than one row")
    return columns, {client: np.array(values) for client, values in rows.items()}


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
        with path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
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
