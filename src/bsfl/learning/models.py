"""The networks of the experiments: pure functions of their parameters.

A model starts from a numpy generator, so that its first parameters do not depend on the version of
JAX; `networks` says which layers it has.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from bsfl.learning.convolution import conv3x3, conv3x3_input, conv3x3_pool_input, max_pool
from bsfl.learning.networks import Network, Shape, Size, check_dropout, first_params, layer_shapes
from bsfl.types import Rng

Layer = dict[str, Array]
Layers = dict[str, Layer]
"""Parameters: for each layer its `weight` and `bias`."""


@dataclass(frozen=True, slots=True)
class Model:
    """A network.

    Attributes:
        init: Returns untrained parameters, drawn from a generator.
        apply: Returns the outputs for a batch of inputs; with a key while training (dropout drops),
            with None otherwise.
    """

    init: Callable[[Rng], Layers]
    apply: Callable[[Layers, Array, Array | None], Array]


def linear(n_features: int) -> Model:
    """Return y = x w + b, one number per sample, from w = 0."""

    def init(rng: Rng) -> Layers:
        return {"output": {"weight": jnp.zeros((n_features, 1)), "bias": jnp.zeros(1)}}

    def apply(params: Layers, x: Array, key: Array | None) -> Array:
        return _dense(params["output"], x)[:, 0]

    return Model(init, apply)


def softmax(n_features: int, n_labels: int) -> Model:
    """Return logits x w + b, one per label, from w = 0."""

    def init(rng: Rng) -> Layers:
        weight, bias = jnp.zeros((n_features, n_labels)), jnp.zeros(n_labels)
        return {"output": {"weight": weight, "bias": bias}}

    def apply(params: Layers, x: Array, key: Array | None) -> Array:
        return _dense(params["output"], x)

    return Model(init, apply)


def cnn(shape: Shape, n_labels: int, *, size: Size = "small", dropout: float = 0.25) -> Model:
    """Return conv - pool for every number of channels, then dense - dropout - dense.

    Args:
        shape: Of an image; height and width are even.
        n_labels: How many labels there are.
        size: "small": 16 and 32 channels, dense 64; "paper": 32, 64 and 128, dense 128.
        dropout: Share of the dense layer dropped while training.
    """

    def features(convolutions: list[Layer], images: Array) -> Array:
        first, *others = convolutions
        x = _relu(conv3x3_pool_input(images, first["weight"]), first)
        for layer in others:
            x = _relu(max_pool(conv3x3(x, layer["weight"])), layer)
        return x

    return _convolutional(features, "cnn", shape, n_labels, size, dropout)


def vgg(shape: Shape, n_labels: int, *, size: Size = "small", dropout: float = 0.25) -> Model:
    """Return conv - conv - pool for every number of channels, then dense - dropout - dense.

    Takes what cnn takes, but "small" has 16, 32 and 64 channels.
    """

    def features(convolutions: list[Layer], images: Array) -> Array:
        x = images
        for i, layer in enumerate(convolutions):
            x = (conv3x3 if i else conv3x3_input)(x, layer["weight"])
            x = _relu(max_pool(x) if i % 2 else x, layer)
        return x

    return _convolutional(features, "vgg", shape, n_labels, size, dropout)


def _convolutional(
    features: Callable[[list[Layer], Array], Array],
    network: Network,
    shape: Shape,
    n_labels: int,
    size: Size,
    dropout: float,
) -> Model:
    """Return a network of 3 x 3 convolutions and pools, with dense layers behind."""
    shapes, dropout = layer_shapes(network, size, shape, n_labels), check_dropout(dropout)
    n_features = shapes["dense"][0]

    def init(rng: Rng) -> Layers:
        return jax.tree.map(jnp.asarray, first_params(shapes, rng))  # type: ignore[no-any-return]

    def apply(params: Layers, images: Array, key: Array | None) -> Array:
        x = features([params[name] for name in shapes if name.startswith("conv")], images).reshape(
            len(images), n_features
        )
        x = jax.nn.relu(_dense(params["dense"], x))
        if key is not None and dropout > 0:
            kept = jax.random.bernoulli(key, 1 - dropout, x.shape)
            x = jnp.where(kept, x / (1 - dropout), 0)
        return _dense(params["output"], x)

    return Model(init, apply)


def _dense(layer: Layer, x: Array) -> Array:
    return x @ layer["weight"] + layer["bias"]


def _relu(x: Array, layer: Layer) -> Array:
    """Return max(0, x + b); a bias and ReLU after pooling are the same as before, and cheaper."""
    return jax.nn.relu(x + layer["bias"])
