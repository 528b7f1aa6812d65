"""The tasks of the experiments, trained in JAX: regression and classification.

A task has two compiled programs: training and evaluation. Each core runs the program of one client
at a time: its matrix products are too small to be shared between cores. As a client's
number of steps is an argument and not a shape, one compilation serves all clients and cohorts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from bsfl import validation
from bsfl.extras import optional_imports
from bsfl.learning.array_task import PIXEL_MAX, ArrayTask, Local, Pair, checked_data, on_every_core
from bsfl.learning.networks import Network, Size
from bsfl.learning.partition import Clients
from bsfl.learning.task import Evaluation, Update, check_cohort
from bsfl.random import stream
from bsfl.types import FloatArray, IntArray

with optional_imports():
    import jax
    import jax.numpy as jnp
    import optax
    from jax import Array, lax

    from bsfl.learning.models import Layers, Model, convolutional, linear, softmax

PROGRAMS_KEPT = 8
"""Learners whose programs stay compiled: many runs in a process ask for the same one."""
EVALUATION_BATCH = 50  # test samples in a batch, which stays in the cache
Loss = Callable[[Array, Array], Array]
"""Outputs of a batch and its targets to one loss per sample."""


@dataclass(frozen=True, slots=True)
class Learner:
    """What turns data into parameters: a model, its loss and the clients' optimizer."""

    model: Model
    loss: Loss
    optimizer: optax.GradientTransformation


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JaxTask(ArrayTask):
    """A Task over arrays, trained in JAX. The cost of a round is that of its cohort.

    Attributes:
        learner: The model, its loss and the clients' optimizer.
    """

    learner: Learner

    def init(self, seed: int) -> Layers:
        return self.learner.model.init(stream(seed, "model"))

    def train(self, params: Layers, clients: IntArray, *, t: int, seed: int) -> list[Update]:
        cohort = check_cohort(clients, self.n_clients)
        program = compile_training(self.learner)

        def train_one(client: int) -> Update:
            steps = self.steps(client, t, seed)
            learned, loss = program(params, self.x, self.y, *steps)
            n = len(self.clients[client])
            return Update(client=client, params=learned, loss=float(loss), samples=n)

        return list(on_every_core(train_one, cohort.tolist(), self._workers))

    def aggregate(self, params: Layers, updates: Sequence[Update], weights: FloatArray) -> Layers:
        if not updates:
            return params
        total: Layers = jax.tree.map(jnp.zeros_like, params)
        for update, weight in zip(updates, weights.astype(np.float32), strict=True):
            total = weighted_sum(total, update.params, weight)
        return total

    def evaluate(self, params: Layers) -> Evaluation:
        program = compile_evaluation(self.learner, self.n_labels)

        def part(first: int, last: int) -> tuple[Array, Array]:
            return program(params, self.x_test, self.y_test, first, last)

        return self._evaluation(part)


def linear_task(train: Pair, test: Pair, clients: Clients, local: Local) -> JaxTask:
    """Return linear regression with squared error.

    Args:
        train: Inputs [n, features] and targets [n].
        test: The same for the test data.
        clients: For each client, the rows of the training data that it holds.
        local: How a client trains.
    """
    data = checked_data(train, test, clients, dimensions=(2,), is_regression=True)
    return _task(_learner(linear, squared_error, local, data["x"].shape[1]), local, data)


def vector_task(
    train: Pair, test: Pair, clients: Clients, local: Local, *, n_labels: int | None = None
) -> JaxTask:
    """Return classification of vectors by softmax regression; arguments are as for image_task."""
    data = checked_data(train, test, clients, dimensions=(2,), n_labels=n_labels)
    learner = _learner(softmax, cross_entropy, local, data["x"].shape[1], data["n_labels"])
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
        train: Images [n, height, width(, channels)], uint8 or floats, and labels [n] from 0.
        test, clients, local: As for linear_task.
        network, size: "cnn" or "vgg", "small" or "paper".
        dropout: Share of the dense layer dropped while training.
        n_labels: Number of labels; None: as many as the data show.
    """
    data = checked_data(train, test, clients, dimensions=(3, 4), n_labels=n_labels)
    dropout = validation.finite("dropout", dropout)
    sizes = network, data["x"].shape[1:], data["n_labels"], size, dropout
    return _task(_learner(convolutional, cross_entropy, local, *sizes), local, data)


@lru_cache(PROGRAMS_KEPT)
def _learner(build: Callable[..., Model], loss: Loss, local: Local, *sizes: Any) -> Learner:
    """Return the learner of these arguments, the same one for equal arguments."""
    return Learner(build(*sizes), loss, optimizer(local))


def _task(learner: Learner, local: Local, data: dict[str, Any]) -> JaxTask:
    arrays = {name: jnp.asarray(data[name]) for name in ("x", "y", "x_test", "y_test")}
    return JaxTask(learner=learner, local=local, **(data | arrays))


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Return -log softmax(logits)[label] for every sample."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)[:, 0]


def squared_error(outputs: Array, targets: Array) -> Array:
    """Return (output - target)^2 for every sample."""
    return (outputs - targets) ** 2


def optimizer(local: Local) -> optax.GradientTransformation:
    """Return the optimizer that every client starts afresh in every round."""
    if local.optimizer == "sgd":
        return optax.sgd(local.learning_rate, momentum=local.momentum or None)
    return optax.adam(local.learning_rate)


@lru_cache(PROGRAMS_KEPT)
def compile_training(learner: Learner) -> Callable[..., tuple[Layers, Array]]:
    """Return the program (params, x, y, rows, counts, n_steps, seed) -> (params, mean loss)."""

    def train(
        params: Layers, x: Array, y: Array, rows: Array, counts: Array, n_steps: Array, seed: Array
    ) -> tuple[Layers, Array]:
        key = jax.random.key(seed)

        def step(i: Array, carry: tuple[Any, Any, Array]) -> tuple[Any, Any, Array]:
            params, state, total = carry
            batch, targets = _scaled(x[rows[i]]), y[rows[i]]
            real = jnp.arange(rows.shape[1]) < counts[i]

            def objective(params: Layers) -> tuple[Array, Array]:
                outputs = learner.model.apply(params, batch, jax.random.fold_in(key, i))
                summed = jnp.where(real, learner.loss(outputs, targets), 0).sum()
                return summed / counts[i], summed

            slope, summed = jax.grad(objective, has_aux=True)(params)
            change, state = learner.optimizer.update(slope, state, params)
            return optax.apply_updates(params, change), state, total + summed

        start = params, learner.optimizer.init(params), jnp.zeros(())
        params, _, total = lax.fori_loop(0, n_steps, step, start)
        return params, total / counts.sum()

    return _compiled(train)


@lru_cache(PROGRAMS_KEPT)
def compile_evaluation(
    learner: Learner, n_labels: int | None
) -> Callable[..., tuple[Array, Array]]:
    """Return the program (params, x, y, first, last) -> (summed loss, right answers per label).

    It evaluates the samples from `first` to before `last`, in batches that stay in the cache.
    """

    def evaluate(
        params: Layers, x: Array, y: Array, first: Array, last: Array
    ) -> tuple[Array, Array]:
        def batch(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            total, right = carry
            rows = first + i * EVALUATION_BATCH + jnp.arange(EVALUATION_BATCH)
            real, rows = rows < last, jnp.minimum(rows, last - 1)
            outputs, targets = learner.model.apply(params, _scaled(x[rows]), None), y[rows]
            total += jnp.where(real, learner.loss(outputs, targets), 0).sum()
            if n_labels is not None:
                hit = real & (outputs.argmax(axis=1) == targets)
                right += (hit[:, None] & (targets[:, None] == jnp.arange(n_labels))).sum(axis=0)
            return total, right

        start = jnp.zeros(()), jnp.zeros(n_labels or 0, jnp.int32)
        n_batches = (last - first + EVALUATION_BATCH - 1) // EVALUATION_BATCH
        return lax.fori_loop(0, n_batches, batch, start)  # type: ignore[no-any-return]

    return _compiled(evaluate)


def _scaled(x: Array) -> Array:
    """Return pixels (uint8) as numbers between 0 and 1, and numbers as they are."""
    return x.astype(jnp.float32) / PIXEL_MAX if x.dtype == jnp.uint8 else x


@jax.jit
def weighted_sum(total: Layers, params: Layers, share: Array) -> Layers:
    """Return total + share * params."""
    return jax.tree.map(lambda a, b: a + share * b, total, params)  # type: ignore[no-any-return]


def _compiled(program: Callable[..., Any]) -> Callable[..., Any]:
    """Return the program compiled to run on one core."""
    on_processor = jax.default_backend() == "cpu"
    options = {"xla_cpu_multi_thread_eigen": False} if on_processor else None
    return jax.jit(program, compiler_options=options)
