"""What clients learn with, and the two compiled programs of a task: training and evaluation.

Each core runs the program of one client at a time, on its own: products of the size met here are
too small to be shared between cores, and clients have nothing to wait for. As a client's number of
steps is an argument and not a shape, one compilation serves every client and every cohort.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from bsfl.learning.array_task import PIXEL_MAX, Local
from bsfl.learning.models import Layers, Model

PROGRAMS_KEPT = 8
"""Learners whose programs stay compiled: many runs in a process ask for the same one."""


Loss = Callable[[Array, Array], Array]
"""Outputs of a batch and its targets to one loss per sample."""


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


@dataclass(frozen=True, slots=True)
class Learner:
    """What turns data into parameters: a model, its loss and the clients' optimizer."""

    model: Model
    loss: Loss
    optimizer: optax.GradientTransformation


@lru_cache(PROGRAMS_KEPT)
def compile_training(learner: Learner) -> Callable[..., tuple[Layers, Array]]:
    """Return the program (params, x, y, rows, counts, n_steps, seed) -> (params, mean loss)."""

    def train(
        params: Layers, x: Array, y: Array, rows: Array, counts: Array, n_steps: Array, seed: Array
    ) -> tuple[Layers, Array]:
        key = jax.random.key(seed)

        def step(i: Array, carry: tuple[Any, Any, Array]) -> tuple[Any, Any, Array]:
            params, state, total = carry
            batch, targets = as_float(x[rows[i]]), y[rows[i]]
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
    learner: Learner, n_labels: int | None, batch_size: int
) -> Callable[..., tuple[Array, Array]]:
    """Return the program (params, x, y, first, last) -> (summed loss, right answers per label).

    It evaluates the samples from `first` to before `last`, in batches that stay in the cache.
    """

    def evaluate(
        params: Layers, x: Array, y: Array, first: Array, last: Array
    ) -> tuple[Array, Array]:
        def batch(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            total, right = carry
            rows = first + i * batch_size + jnp.arange(batch_size)
            real, rows = rows < last, jnp.minimum(rows, last - 1)
            outputs, targets = learner.model.apply(params, as_float(x[rows]), None), y[rows]
            total += jnp.where(real, learner.loss(outputs, targets), 0).sum()
            if n_labels is not None:
                hit = real & (outputs.argmax(axis=1) == targets)
                right += (hit[:, None] & (targets[:, None] == jnp.arange(n_labels))).sum(axis=0)
            return total, right

        start = jnp.zeros(()), jnp.zeros(n_labels or 0, jnp.int32)
        n_batches = (last - first + batch_size - 1) // batch_size
        return lax.fori_loop(0, n_batches, batch, start)  # type: ignore[no-any-return]

    return _compiled(evaluate)


def as_float(x: Array) -> Array:
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
