"""What tasks over arrays share, whichever engine trains them: data, clients, steps and threads."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.learning.partition import Clients, checked_rows
from bsfl.learning.task import Evaluation
from bsfl.random import stream
from bsfl.types import IntArray

Result = TypeVar("Result")
Pair = tuple[npt.ArrayLike, npt.ArrayLike]
"""Inputs and targets."""
IndexArray = npt.NDArray[np.int32]
Optimizer = Literal["sgd", "adam"]
OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)
PIXEL_MAX = 255.0
EVALUATION_CHUNK = 500  # test samples that one core evaluates at a time


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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ArrayTask:
    """The part of a Task that knows the data: each client holds rows of arrays stored once.

    Attributes:
        x: Training inputs; pixels stay uint8 in memory and are scaled to 0..1 when used.
        y: Training targets.
        x_test, y_test: The same for the test data.
        clients: For each client, the rows that it holds.
        samples: How many those are.
        local: How a client trains.
        n_labels: Number of labels; None for a regression.
    """

    x: Any
    y: Any
    x_test: Any
    y_test: Any
    clients: list[IndexArray]
    samples: IntArray
    local: Local
    n_labels: int | None = None

    @property
    def n_clients(self) -> int:
        return len(self.clients)

    @property
    def _workers(self) -> int:
        has_affinity = hasattr(os, "sched_getaffinity")
        n_cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count()
        return self.local.workers or n_cores or 1

    def steps(self, client: int, t: int, seed: int) -> tuple[Any, ...]:
        """Return the rows of every step, how many of them count, the number of steps, and a seed.

        Every epoch takes each sample once, in a new order, in ceil(n / batch_size) steps. Both
        arrays have the same shape for every client: short steps are filled up with row 0, and a
        client with less data has steps at the end that it does not take.
        """
        rng = stream(seed, "training", t, client)
        own, size, epochs = self.clients[client], self.local.batch_size, self.local.epochs
        n_steps = -(-len(own) // size)
        longest = epochs * -(-int(self.samples.max()) // size)
        rows, counts = np.zeros((longest, size), np.int32), np.zeros(longest, np.int32)
        for epoch in rows[: epochs * n_steps].reshape(epochs, -1):
            epoch[: len(own)] = rng.permutation(own)
        per_epoch = counts[: epochs * n_steps].reshape(epochs, n_steps)
        per_epoch[:] = size
        per_epoch[:, -1] = len(own) - (n_steps - 1) * size
        return rows, counts, epochs * n_steps, rng.integers(2**32, dtype=np.uint32)

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


def checked_data(
    train: Pair,
    test: Pair,
    clients: Clients,
    *,
    dimensions: tuple[int, ...],
    is_regression: bool = False,
    n_labels: int | None = None,
) -> dict[str, Any]:
    """Return the data of an ArrayTask: pixels as they are, other inputs in float32.

    Inputs must have one of these numbers of dimensions; images of three get an axis for the
    channel. Targets are labels from 0, but for a regression.
    """
    (x, y), (x_test, y_test) = _pair("train", train, dimensions), _pair("test", test, dimensions)
    if x.shape[1:] != x_test.shape[1:]:
        raise InvalidInput(
            f"train and test inputs must have the same shape, got {x.shape[1:]} and "
            f"{x_test.shape[1:]}"
        )
    x, x_test = (
        np.ascontiguousarray(
            a[..., None] if a.ndim == 3 else a, np.uint8 if a.dtype == np.uint8 else np.float32
        )
        for a in (x, x_test)
    )
    if not is_regression:
        labels = np.concatenate([y, y_test])
        if not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
            raise InvalidInput("labels must be whole numbers from 0")
        known = int(labels.max()) + 1
        if n_labels is not None and validation.natural("n_labels", n_labels) < known:
            raise InvalidInput(
                f"n_labels must be at least {known} for these labels, got {n_labels}"
            )
        n_labels = n_labels or known
    y, y_test = (b.astype(np.float32 if is_regression else np.int32) for b in (y, y_test))
    rows = [own.astype(np.int32) for own in checked_rows(clients, len(x))]
    arrays = {"x": x, "y": y, "x_test": x_test, "y_test": y_test}
    samples = np.array([len(own) for own in rows])
    return {**arrays, "clients": rows, "samples": samples, "n_labels": n_labels}


def on_every_core(
    work: Callable[[int], Result], items: Iterable[int], workers: int
) -> Iterator[Result]:
    """Yield the results in the order of the items, computed by as many threads as asked for."""
    if workers == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers) as threads:
        yield from threads.map(work, items)


def _pair(
    name: str, pair: Pair, dimensions: tuple[int, ...]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
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
