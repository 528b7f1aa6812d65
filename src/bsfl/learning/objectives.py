"""Losses of single samples, and how a client's optimizer is named."""

from collections.abc import Callable
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import optax
from jax import Array

from bsfl import checks
from bsfl.errors import InvalidInput

Loss = Callable[[Array, Array], Array]
"""Outputs of a batch and its targets to one loss per sample."""

Optimizer = Literal["sgd", "adam"]
OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Return -log softmax(logits)[label] for every sample."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)[:, 0]


def squared_error(outputs: Array, targets: Array) -> Array:
    """Return (output - target)^2 for every sample."""
    return (outputs - targets) ** 2


def optimizer(
    name: Optimizer = "sgd", *, learning_rate: float, momentum: float = 0.0
) -> optax.GradientTransformation:
    """Return the optimizer that every client starts afresh in every round."""
    checks.one_of("optimizer", name, OPTIMIZERS)
    checks.positive("learning_rate", learning_rate)
    if not (0 <= checks.finite("momentum", momentum) < 1):
        raise InvalidInput(f"momentum must be at least 0 and below 1, got {momentum!r}")
    if name == "sgd":
        return optax.sgd(learning_rate, momentum=momentum or None)
    if momentum:
        raise InvalidInput(f"momentum belongs to sgd; adam has its own, got {momentum!r}")
    return optax.adam(learning_rate)
