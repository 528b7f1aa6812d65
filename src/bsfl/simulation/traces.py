"""Recorded fleets: a CSV of latencies or capacities, one row per observation or client.

Two layouts, distinguished by their header:

    client,latency_s                                    any number of rows per client; resampled
    client,compute_ms_per_sample,bandwidth_kbps         one row per client, see phones.py

A log of responses with other columns is read as by `bsfl advise`: see bsfl.simulation.response_log.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.simulation.client_rows import quoted, read_rows
from bsfl.simulation.latency import Latencies, Recorded
from bsfl.simulation.phones import Sizes, phone_latencies
from bsfl.simulation.response_log import Columns, has_responses, read_csv
from bsfl.types import LATENCY_RANGE, OK, FloatArray, IntArray, Rng

LATENCY = ("latency_s",)
CAPACITY = ("compute_ms_per_sample", "bandwidth_kbps")


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
        ids: Names of the clients, where the data has names; those in the file are the same
            clients.
    """
    if not isinstance(path, str) or not path:
        raise InvalidInput(f"path must be the name of a file, got {path!r}")
    columns, rows = read_trace(Path(path))
    recorded, names = list(rows.values()), list(rows)
    devices = follow(names, n_clients, rng, ids)
    called = numbered(names[k] for k in devices) if ids is None else ids
    if columns == LATENCY:
        return Recorded([recorded[k][:, 0] for k in devices], called)
    compute_ms, kbps = np.array([recorded[k][0] for k in devices]).T
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


def read_trace(path: Path) -> tuple[tuple[str, ...], dict[str, FloatArray]]:
    """Return the columns of a trace and, for each client, its rows as an array.

    A response that never came takes longer than any deadline.
    """
    rows: dict[str, list[list[float]]] = {}
    if has_responses(path):
        for row in read_csv(path, Columns()):
            seconds = row.latency_s if row.outcome == OK else LATENCY_RANGE[1]
            rows.setdefault(row.client, []).append([seconds])
        return LATENCY, {client: np.array(values) for client, values in rows.items()}
    columns, lines = read_rows(path, (LATENCY, CAPACITY), limits=LATENCY_RANGE)
    for _, client, numbers in lines:
        rows.setdefault(client, []).append(numbers)
    if columns == CAPACITY and (twice := [c for c, r in rows.items() if len(r) > 1]):
        raise InvalidInput(f"{path}: client {quoted(twice[0])!r} has more than one row")
    return columns, {client: np.array(values) for client, values in rows.items()}
