"""Recorded clients: a CSV of latencies or capacities, one row per response or client.

Two layouts, distinguished by their header:

    client,latency_s                                    any number of rows per client; resampled
    client,compute_ms_per_sample,bandwidth_kbps         one row per client; see phone_latencies

A log of responses with other columns is read as by `bsfl advise`: see bsfl.simulation.response_log.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.simulation.client_rows import quoted, read_numbers
from bsfl.simulation.response_log import Columns, has_responses, read_csv
from bsfl.types import LATENCY_RANGE, OK, FloatArray, IntArray, Rng

LATENCY = ("latency_s",)
CAPACITY = ("compute_ms_per_sample", "bandwidth_kbps")


def read_trace(path: Path) -> tuple[tuple[str, ...], dict[str, FloatArray]]:
    """Return the columns of a trace and, for each client, its rows as an array.

    A response that never came takes longer than any deadline.
    """
    columns: tuple[str, ...] = LATENCY
    rows: dict[str, list[list[float]]] = {}
    if has_responses(path):
        for row in read_csv(path, Columns()):
            seconds = row.latency_s if row.outcome == OK else LATENCY_RANGE[1]
            rows.setdefault(row.client, []).append([seconds])
    else:
        columns, lines = read_numbers(path, (LATENCY, CAPACITY), limits=LATENCY_RANGE)
        for line, client, numbers in lines:
            if columns == CAPACITY and client in rows:
                raise InvalidInput(
                    f"{path}, line {line}: client {quoted(client)!r} has more than one row"
                )
            rows.setdefault(client, []).append(numbers)
    return columns, {client: np.array(values) for client, values in rows.items()}


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
