"""What tasks over arrays share, whichever engine trains them: data, clients, steps and threads."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.learning.task import Evaluation
from bsfl.random import stream
from bsfl.types import IntArray, Rng

Result = TypeVar("Result")
Pair = tuple[npt.ArrayLike, npt.ArrayLike]
"""Inputs and targets."""
Arrays = tuple[npt.NDArray[Any], npt.NDArray[Any]]
Clients = Sequence[npt.ArrayLike]
"""For each client, the rows of the training data that it holds."""

IndexArray = npt.NDArray[np.int32]

Optimizer = Literal["sgd", "adam"]
OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)

PIXEL_MAX = 255.0
EVALUATION_CHUNK = 500
"""Test samples in the share of one core at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """How a client trains.

    Attributes:
        batch_size: Samples in a step.
        epochs: How often it goes through its data in a round.
        optimizer: "sgd" or "adam", started afresh in every round.
        learning_rate: Of the optimizer.
        momentum: Of sgd; 0 for none.
        workers: Clients that train at the same time; None: as many as there are cores. The
            results do not depend on it.
    """

    batch_size: int = 32
    epochs: int = 1
    optimizer: Optimizer = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.0
    workers: int | None = None

    def __post_init__(self) -> None:
        validation.natural("batch_size", self.batch_size)
        validation.natural("epochs", self.epochs)
        if self.workers is not None:
            validation.natural("workers", self.workers)
        validation.one_of("optimizer", self.optimizer, OPTIMIZERS)
        validation.positive("learning_rate", self.learning_rate)
        if not (0 <= validation.finite("momentum", self.momentum) < 1):
            raise InvalidInput(f"momentum must be at least 0 and below 1, got {self.momentum!r}")
        if self.momentum and self.optimizer == "adam":
            raise InvalidInput(f"momentum belongs to sgd; adam has its own, got {self.momentum!r}")


@dataclass(frozen=True, slots=True)
class Holdings:
    """Which rows of the training data each client holds, end to end in one array.

    Attributes:
        rows: The rows of client 0, then those of client 1, and so on.
        start: Where each client's rows start, and at last where they end.
        most: How many samples the client with the most holds.
    """

    rows: IndexArray
    start: IntArray
    most: int

    @classmethod
    def of(cls, clients: Sequence[npt.ArrayLike], n_rows: int) -> Self:
        """Return the holdings of clients given as one list of rows each."""
        if len(clients) == 0:
            raise InvalidInput("clients must name at least one client, got none")
        lists = [np.asarray(rows) for rows in clients]
        for k, rows in enumerate(lists):
            if rows.ndim != 1 or len(rows) == 0:
                raise InvalidInput(f"client {k} must hold a list of at least one sample")
            if not np.issubdtype(rows.dtype, np.integer):
                raise InvalidInput(f"client {k} must hold whole row numbers, got {rows.dtype}")
        start = np.cumsum([0, *(len(rows) for rows in lists)])
        rows = np.concatenate(lists)
        outside = np.flatnonzero((rows < 0) | (rows >= n_rows))
        if len(outside):
            k = int(np.searchsorted(start, outside[0], side="right")) - 1
            raise InvalidInput(
                f"client {k} must hold rows between 0 and {n_rows - 1}, got {rows[outside[0]]}"
            )
        most = max(len(rows) for rows in lists)
        return cls(rows.astype(np.int32), start.astype(np.int64), most)

    @property
    def counts(self) -> IntArray:
        return np.diff(self.start)

    def batches(
        self, client: int, *, batch_size: int, epochs: int, rng: Rng
    ) -> tuple[IndexArray, IndexArray]:
        """Return the rows of every step of a client's training, and how many of them count.

        Every epoch meets every sample once, in a new order, in ceil(n / batch_size) steps; the
        last one may be short. Both arrays are as long for every client: a client with less data
        has steps at the end that it never takes, and short steps are filled up with row 0.
        """
        rows = self.rows[self.start[client] : self.start[client + 1]]
        n_steps = -(-len(rows) // batch_size)
        longest = epochs * -(-self.most // batch_size)
        all_rows = np.zeros((longest, batch_size), np.int32)
        all_counts = np.zeros(longest, np.int32)
        for epoch in all_rows[: epochs * n_steps].reshape(epochs, -1):
            epoch[: len(rows)] = rng.permutation(rows)
        counts = all_counts[: epochs * n_steps].reshape(epochs, n_steps)
        counts[:] = batch_size
        counts[:, -1] = len(rows) - (n_steps - 1) * batch_size
        return all_rows, all_counts


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ArrayTask:
    """The part of a Task that knows who holds what: its clients are rows of arrays stored once.

    Attributes:
        x: Training inputs; pixels stay uint8 in memory and are scaled to 0..1 when used.
        y: Training targets.
        x_test, y_test: The same for the test data.
        holdings: Which rows each client holds.
        local: How a client trains.
        n_labels: How many labels there are; None for a regression.
    """

    x: Any
    y: Any
    x_test: Any
    y_test: Any
    holdings: Holdings
    local: Local
    n_labels: int | None = None

    @property
    def n_clients(self) -> int:
        return len(self.holdings.start) - 1

    @property
    def samples(self) -> IntArray:
        return self.holdings.counts

    @property
    def _workers(self) -> int:
        return self.local.workers or n_cores()

    def _steps(self, client: int, t: int, seed: int) -> tuple[Any, ...]:
        """Return a client's batches in round t, how many steps it takes, and its own seed."""
        rng = stream(seed, "training", t, client)
        rows, counts = self.holdings.batches(
            client, batch_size=self.local.batch_size, epochs=self.local.epochs, rng=rng
        )
        return rows, counts, np.count_nonzero(counts), rng.integers(2**32, dtype=np.uint32)

    def _evaluation(self, part: Callable[[int, int], tuple[Any, Any]]) -> Evaluation:
        """Return the evaluation from summed loss and right answers per label of a range of rows."""
        n = len(self.x_test)

        def part_from(first: int) -> tuple[Any, Any]:
            return part(first, min(first + EVALUATION_CHUNK, n))

        parts = list(on_every_core(part_from, range(0, n, EVALUATION_CHUNK), self._workers))
        loss = sum(float(total) for total, _ in parts) / n
        if self.n_labels is None:
            return Evaluation(loss=loss)
        right = np.sum([np.asarray(hits) for _, hits in parts], axis=0)
        per_label = np.bincount(np.asarray(self.y_test), minlength=self.n_labels)
        with np.errstate(invalid="ignore"):
            label_accuracy = right / per_label
        return Evaluation(loss=loss, accuracy=float(right.sum() / n), label_accuracy=label_accuracy)


def regression_data(train: Pair, test: Pair, clients: Clients) -> dict[str, Any]:
    """Return the data of an ArrayTask of inputs [n, features] and targets [n], checked."""
    return _data(_pair("train", train, 2), _pair("test", test, 2), clients, np.float32)


def image_data(train: Pair, test: Pair, clients: Clients, n_labels: int | None) -> dict[str, Any]:
    """Return the data of an ArrayTask of images and labels, checked, and how many labels."""
    return label_data(train, test, clients, n_labels, dimensions=(3, 4))


def label_data(
    train: Pair, test: Pair, clients: Clients, n_labels: int | None, *, dimensions: tuple[int, ...]
) -> dict[str, Any]:
    """Return the data of an ArrayTask of inputs and labels, checked; images get a last axis."""
    (x, y), (x_test, y_test) = _pair("train", train, *dimensions), _pair("test", test, *dimensions)
    x, x_test = (a[..., None] if a.ndim == 3 else a for a in (x, x_test))
    labels = np.concatenate([y, y_test])
    if not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        raise InvalidInput("labels must be whole numbers from 0")
    known = int(labels.max()) + 1
    if n_labels is not None and validation.natural("n_labels", n_labels) < known:
        raise InvalidInput(f"n_labels must be at least {known} for these labels, got {n_labels}")
    data = _data((x, y), (x_test, y_test), clients, np.int32)
    return data | {"n_labels": n_labels or known}


def on_every_core(
    work: Callable[[int], Result], items: Iterable[int], workers: int
) -> Iterator[Result]:
    """Yield the results in the order of the items, computed by as many threads as asked for."""
    if workers == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers) as threads:
        yield from threads.map(work, items)


def n_cores() -> int:
    """Return how many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _pair(name: str, pair: Pair, *dimensions: int) -> Arrays:
    """Return inputs and targets as arrays that fit together."""
    x, y = (np.asarray(part) for part in pair)
    if x.ndim not in dimensions or len(x) == 0:
        allowed = " or ".join(map(str, dimensions))
        raise InvalidInput(f"{name} inputs must have {allowed} dimensions, got shape {x.shape}")
    if y.shape != (len(x),):
        raise InvalidInput(f"{name} must have one target per input, got {y.shape} for {len(x)}")
    if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
        raise InvalidInput(f"{name} inputs must be finite numbers")
    return x, y


def _data(train: Arrays, test: Arrays, clients: Clients, target: npt.DTypeLike) -> dict[str, Any]:
    """Return the data of an ArrayTask: pixels as they are, other inputs in float32."""
    if train[0].shape[1:] != test[0].shape[1:]:
        raise InvalidInput(
            f"train and test inputs must have the same shape, "
            f"got {train[0].shape[1:]} and {test[0].shape[1:]}"
        )
    x, x_test = (
        np.ascontiguousarray(a, np.uint8 if a.dtype == np.uint8 else np.float32)
        for a, _ in (train, test)
    )
    y, y_test = (b.astype(target) for _, b in (train, test))
    holdings = Holdings.of(clients, len(x))
    return {"x": x, "y": y, "x_test": x_test, "y_test": y_test, "holdings": holdings}
