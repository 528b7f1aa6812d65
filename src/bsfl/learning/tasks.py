"""The tasks of the experiments, trained in JAX: linear regression and image classification."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from bsfl import validation
from bsfl.extras import optional_imports
from bsfl.learning.array_task import (
    ArrayTask,
    Clients,
    Local,
    Pair,
    image_data,
    label_data,
    on_every_core,
    regression_data,
)
from bsfl.learning.networks import NETWORKS, Network, Shape, Size
from bsfl.learning.task import Evaluation, Update, check_cohort
from bsfl.random import stream
from bsfl.types import FloatArray, IntArray

with optional_imports():
    import jax
    import jax.numpy as jnp

    from bsfl.learning.local import (
        PROGRAMS_KEPT,
        Learner,
        compile_evaluation,
        compile_training,
        cross_entropy,
        optimizer,
        squared_error,
        weighted_sum,
    )
    from bsfl.learning.models import Layers, cnn, linear, softmax, vgg

MODELS = {"cnn": cnn, "vgg": vgg}
EVALUATION_BATCH = 50
"""Test samples in a batch, which stays in the cache."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JaxTask(ArrayTask):
    """A Task whose clients are rows of arrays that are stored once, trained in JAX.

    Build one with `linear_task` or `image_task`, or from any `Learner`. A round costs what its
    cohort costs, however many clients there are.

    Attributes:
        learner: The model, its loss and the clients' optimizer.
    """

    learner: Learner
    _train: Callable[..., tuple[Layers, jax.Array]] = field(init=False, repr=False)
    _evaluate: Callable[..., tuple[jax.Array, jax.Array]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_train", compile_training(self.learner))
        evaluate = compile_evaluation(self.learner, self.n_labels, EVALUATION_BATCH)
        object.__setattr__(self, "_evaluate", evaluate)

    def init(self, seed: int) -> Layers:
        return self.learner.model.init(stream(seed, "model"))

    def train(self, params: Layers, clients: IntArray, *, t: int, seed: int) -> list[Update]:
        cohort = check_cohort(clients, self.n_clients)
        samples = self.holdings.start[cohort + 1] - self.holdings.start[cohort]

        def train_one(client: int) -> tuple[Layers, jax.Array]:
            steps = self._steps(client, t, seed)
            return jax.block_until_ready(self._train(params, self.x, self.y, *steps))  # type: ignore[no-untyped-call,no-any-return]

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
        def part(first: int, last: int) -> tuple[float, Any]:
            total, right = self._evaluate(params, self.x_test, self.y_test, first, last)
            return float(total), np.asarray(right)

        return self._evaluation(part)


def linear_task(train: Pair, test: Pair, clients: Clients, local: Local) -> JaxTask:
    """Return linear regression with squared error.

    Args:
        train: Inputs [n, features] and targets [n].
        test: The same for the test data.
        clients: For each client, the rows of the training data that it holds.
        local: How a client trains.
    """
    data = regression_data(train, test, clients)
    return _task(_linear_learner(data["x"].shape[1], local), local, data)


def vector_task(
    train: Pair, test: Pair, clients: Clients, local: Local, *, n_labels: int | None = None
) -> JaxTask:
    """Return classification of vectors by softmax regression.

    Args:
        train: Inputs [n, features] and labels [n] from 0.
        test: The same for the test data.
        clients: For each client, the rows of the training data that it holds.
        local: How a client trains.
        n_labels: How many labels there are; None: as many as the data show.
    """
    data = label_data(train, test, clients, n_labels, dimensions=(2,))
    learner = _vector_learner(data["x"].shape[1], data["n_labels"], local)
    return _task(learner, local, data)


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
    validation.one_of("network", network, NETWORKS)
    data = image_data(train, test, clients, n_labels)
    dropout = validation.finite("dropout", dropout)
    shape = data["x"].shape[1:]
    return _task(
        _image_learner(network, shape, data["n_labels"], size, dropout, local), local, data
    )


@lru_cache(PROGRAMS_KEPT)
def _linear_learner(n_features: int, local: Local) -> Learner:
    return Learner(linear(n_features), squared_error, optimizer(local))


@lru_cache(PROGRAMS_KEPT)
def _vector_learner(n_features: int, n_labels: int, local: Local) -> Learner:
    return Learner(softmax(n_features, n_labels), cross_entropy, optimizer(local))


@lru_cache(PROGRAMS_KEPT)
def _image_learner(
    network: Network, shape: Shape, n_labels: int, size: Size, dropout: float, local: Local
) -> Learner:
    model = MODELS[network](shape, n_labels, size=size, dropout=dropout)
    return Learner(model, cross_entropy, optimizer(local))


def _task(learner: Learner, local: Local, data: dict[str, Any]) -> JaxTask:
    arrays = {name: jnp.asarray(data[name]) for name in ("x", "y", "x_test", "y_test")}
    return JaxTask(learner=learner, local=local, **(data | arrays))
