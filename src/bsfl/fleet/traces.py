"""Recorded fleets: a CSV of latencies or capacities, one row per observation or client.

Two layouts, told apart by their header:

    client,latency_s                                    any number of rows per client; resampled
    client,compute_ms_per_sample,bandwidth_kbps         one row per client; see bsfl.fleet.phones

A log of answers with other columns is read as `bsfl advise` reads it: see bsfl.fleet.answer_log.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.fleet.answer_log import Columns, has_answers, read_csv
from bsfl.fleet.client_rows import quoted, read_rows
from bsfl.fleet.latency import Latencies, Recorded
from bsfl.fleet.phones import Sizes, phone_latencies
from bsfl.records import LATE, LATENCY_RANGE, OK, FloatArray, IntArray, Rng

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
    """Return the columns of a trace and, for each client, its rows as an array.

    An answer that never came takes longer than any deadline.
    """
    rows: dict[str, list[list[float]]] = {}
    if has_answers(path):
        for row in read_csv(path, Columns()):
            seconds = row.latency_s if row.outcome in (OK, LATE) else LATENCY_RANGE[1]
            rows.setdefault(row.client, []).append([seconds])
        return LATENCY, {client: np.array(values) for client, values in rows.items()}
    columns, lines = read_rows(path, (LATENCY, CAPACITY), limits=LATENCY_RANGE)
    for _, client, numbers in lines:
        rows.setdefault(client, []).append(numbers)
    if columns == CAPACITY and (twice := [c for c, r in rows.items() if len(r) > 1]):
        raise InvalidInput(f"{path}: client {quoted(twice[0])!r} has more than one row")
    return columns, {client: np.array(values) for client, values in rows.items()}
