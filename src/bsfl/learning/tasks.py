"""The tasks of the experiments, trained in JAX: linear regression and image classification."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.extras import optional_imports
from bsfl.learning.samples import Holdings
from bsfl.learning.task import Evaluation, Update, check_cohort
from bsfl.randomness import stream
from bsfl.records import FloatArray, IntArray

with optional_imports():
    import jax
    import jax.numpy as jnp
    import optax

    from bsfl.learning.local import (
        PROGRAMS_KEPT,
        Learner,
        Optimizer,
        compile_evaluation,
        compile_training,
        cross_entropy,
        n_cores,
        on_every_core,
        optimizer,
        squared_error,
        weighted_sum,
    )
    from bsfl.learning.models import Layers, Model, Shape, Size, cnn, linear, vgg

Network = Literal["cnn", "vgg"]
NETWORKS: dict[str, Callable[..., Model]] = {"cnn": cnn, "vgg": vgg}

Pair = tuple[npt.ArrayLike, npt.ArrayLike]
"""Inputs and targets."""
Arrays = tuple[npt.NDArray[Any], npt.NDArray[Any]]
Clients = Sequence[npt.ArrayLike]
"""For each client, the rows of the training data that it holds."""

EVALUATION_BATCH = 50
EVALUATION_CHUNK = 500
"""Test samples in a batch, which stays in the cache, and in the share of one core at a time."""


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
        checks.natural("batch_size", self.batch_size)
        checks.natural("epochs", self.epochs)
        if self.workers is not None:
            checks.natural("workers", self.workers)
        self.rule()

    def rule(self) -> optax.GradientTransformation:
        return optimizer(self.optimizer, learning_rate=self.learning_rate, momentum=self.momentum)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JaxTask:
    """A Task whose clients are rows of arrays that are stored once.

    Build one with `linear_task` or `image_task`, or from any `Learner`. A round costs what its
    cohort costs, however many clients there are.

    Attributes:
        learner: The model, its loss and the clients' optimizer.
        x: Training inputs; pixels stay uint8 in memory and are scaled to 0..1 when used.
        y: Training targets.
        x_test, y_test: The same for the test data.
        holdings: Which rows each client holds.
        local: How a client trains.
        n_labels: How many labels there are; None for a regression.
    """

    learner: Learner
    x: jax.Array
    y: jax.Array
    x_test: jax.Array
    y_test: jax.Array
    holdings: Holdings
    local: Local
    n_labels: int | None = None
    _train: Callable[..., tuple[Layers, jax.Array]] = field(init=False, repr=False)
    _evaluate: Callable[..., tuple[jax.Array, jax.Array]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_train", compile_training(self.learner))
        evaluate = compile_evaluation(self.learner, self.n_labels, EVALUATION_BATCH)
        object.__setattr__(self, "_evaluate", evaluate)

    @property
    def n_clients(self) -> int:
        return len(self.holdings.start) - 1

    @property
    def samples(self) -> IntArray:
        return self.holdings.counts

    def init(self, seed: int) -> Layers:
        return self.learner.model.init(stream(seed, "model"))

    def train(self, params: Layers, clients: IntArray, *, t: int, seed: int) -> list[Update]:
        cohort = check_cohort(clients, self.n_clients)
        samples = self.holdings.start[cohort + 1] - self.holdings.start[cohort]

        def train_one(client: int) -> tuple[Layers, jax.Array]:
            return self._train(params, self.x, self.y, *self._steps(client, t, seed))

        trained = on_every_core(train_one, cohort.tolist(), self._workers)
        return [
            Update(client=client, params=learned, loss=float(loss), samples=n)
            for client, n, (learned, loss) in zip(
                cohort.tolist(), samples.tolist(), trained, strict=True
            )
        ]

    def aggregate(self, params: Layers, updates: Sequence[Update], weights: FloatArray) -> Layers:
        if not updates:
            return params
        total: Layers = jax.tree.map(jnp.zeros_like, params)
        for update, weight in zip(updates, weights.astype(np.float32), strict=True):
            total = weighted_sum(total, update.params, weight)
        return total

    def evaluate(self, params: Layers) -> Evaluation:
        n = len(self.x_test)
        starts = range(0, n, EVALUATION_CHUNK)

        def evaluate_from(first: int) -> tuple[jax.Array, jax.Array]:
            last = min(first + EVALUATION_CHUNK, n)
            return self._evaluate(params, self.x_test, self.y_test, first, last)

        parts = list(on_every_core(evaluate_from, starts, self._workers))
        loss = sum(float(total) for total, _ in parts) / n
        if self.n_labels is None:
            return Evaluation(loss=loss)
        right = np.sum([np.asarray(hits) for _, hits in parts], axis=0)
        per_label = np.bincount(np.asarray(self.y_test), minlength=self.n_labels)
        with np.errstate(invalid="ignore"):
            label_accuracy = right / per_label
        return Evaluation(loss=loss, accuracy=float(right.sum() / n), label_accuracy=label_accuracy)

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


def linear_task(train: Pair, test: Pair, clients: Clients, local: Local) -> JaxTask:
    """Return linear regression with squared error.

    Args:
        train: Inputs [n, features] and targets [n].
        test: The same for the test data.
        clients: For each client, the rows of the training data that it holds.
        local: How a client trains.
    """
    known, unseen = _pair("train", train, 2), _pair("test", test, 2)
    return _task(_linear_learner(known[0].shape[1], local), known, unseen, clients, local)


def image_task(
    train: Pair,
    test: Pair,
    clients: Clients,
    local: Local,
    *,
    network: Network = "cnn",
    size: Size = "small",
    dropout: float = 0.25,
    n_labels: int | None = None,
) -> JaxTask:
    """Return image classification with softmax cross entropy.

    Args:
        train: Images [n, height, width, channels] (or without channels), uint8 from 0 to 255 or
            floats, and labels [n] from 0.
        test: The same for the test data.
        clients: For each client, the rows of the training data that it holds.
        local: How a client trains.
        network: "cnn" or "vgg".
        size: "small" or "paper".
        dropout: Share of the dense layer dropped while training.
        n_labels: How many labels there are; None: as many as the data show.
    """
    checks.one_of("network", network, tuple(NETWORKS))
    (x, y), (x_test, y_test) = _pair("train", train, 3, 4), _pair("test", test, 3, 4)
    x, x_test = (a[..., None] if a.ndim == 3 else a for a in (x, x_test))
    labels = np.concatenate([y, y_test])
    if not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        raise InvalidInput("labels must be whole numbers from 0")
    known = int(labels.max()) + 1
    if n_labels is not None and checks.natural("n_labels", n_labels) < known:
        raise InvalidInput(f"n_labels must be at least {known} for these labels, got {n_labels}")
    count = n_labels or known
    dropout = checks.finite("dropout", dropout)
    learner = _image_learner(network, x.shape[1:], count, size, dropout, local)
    return _task(learner, (x, y), (x_test, y_test), clients, local, count)


@lru_cache(PROGRAMS_KEPT)
def _linear_learner(n_features: int, local: Local) -> Learner:
    return Learner(linear(n_features), squared_error, local.rule())


@lru_cache(PROGRAMS_KEPT)
def _image_learner(
    network: Network, shape: Shape, n_labels: int, size: Size, dropout: float, local: Local
) -> Learner:
    model = NETWORKS[network](shape, n_labels, size=size, dropout=dropout)
    return Learner(model, cross_entropy, local.rule())


def _task(
    learner: Learner,
    train: Arrays,
    test: Arrays,
    clients: Clients,
    local: Local,
    n_labels: int | None = None,
) -> JaxTask:
    if train[0].shape[1:] != test[0].shape[1:]:
        raise InvalidInput(
            f"train and test inputs must have the same shape, "
            f"got {train[0].shape[1:]} and {test[0].shape[1:]}"
        )
    target = np.float32 if n_labels is None else np.int32
    (x, y), (x_test, y_test) = (
        (jnp.asarray(a if a.dtype == np.uint8 else a.astype(np.float32)), jnp.asarray(b, target))
        for a, b in (train, test)
    )
    return JaxTask(
        learner=learner,
        x=x,
        y=y,
        x_test=x_test,
        y_test=y_test,
        holdings=Holdings.of(clients, len(x)),
        local=local,
        n_labels=n_labels,
    )


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
