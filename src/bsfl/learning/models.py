"""The networks of the experiments: pure functions of their parameters.

A model starts from a numpy generator, so that its first parameters do not depend on the version of
JAX. Weights are N(0, 2 / fan-in) (He et al. 2015), biases zero.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.learning.convolution import conv3x3, conv3x3_input, conv3x3_pool_input, max_pool
from bsfl.records import Rng

Layer = dict[str, Array]
Layers = dict[str, Layer]
"""Parameters: for each layer its `weight` and `bias`."""

Shape = tuple[int, int, int]
"""Height, width and channels of an image."""

Size = Literal["small", "paper"]
SIZES: tuple[Size, ...] = get_args(Size)

CNN_CHANNELS = {"small": (16, 32), "paper": (32, 64, 128)}
VGG_CHANNELS = {"small": (16, 32, 64), "paper": (32, 64, 128)}
DENSE = {"small": 64, "paper": 128}


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

    return _convolutional(features, CNN_CHANNELS, 1, shape, n_labels, size, dropout)


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

    return _convolutional(features, VGG_CHANNELS, 2, shape, n_labels, size, dropout)


def _convolutional(
    features: Callable[[list[Layer], Array], Array],
    channels: Mapping[str, tuple[int, ...]],
    n_before_pool: int,
    shape: Shape,
    n_labels: int,
    size: Size,
    dropout: float,
) -> Model:
    """Return a network of 3 x 3 convolutions, some before each pool, with dense layers behind."""
    checks.one_of("size", size, SIZES)
    n_pools, width = len(channels[size]), DENSE[size]
    if shape[0] % 2 or shape[1] % 2 or min(shape[:2]) < 2**n_pools:
        raise InvalidInput(
            f"images must have an even height and width of at least {2**n_pools}, "
            f"got {shape[0]} x {shape[1]}"
        )
    if not (0 <= checks.finite("dropout", dropout) < 1):
        raise InvalidInput(f"dropout must be at least 0 and below 1, got {dropout!r}")
    outputs = [c for c in channels[size] for _ in range(n_before_pool)]
    kernels = {f"conv{i}": k for i, k in enumerate(pairwise((shape[2], *outputs)), 1)}
    n_features = (shape[0] >> n_pools) * (shape[1] >> n_pools) * outputs[-1]

    def init(rng: Rng) -> Layers:
        params = {name: _layer(rng, 3, 3, *kernel) for name, kernel in kernels.items()}
        params["dense"] = _layer(rng, n_features, width)
        params["output"] = _layer(rng, width, n_labels)
        return params

    def apply(params: Layers, images: Array, key: Array | None) -> Array:
        x = features([params[name] for name in kernels], images).reshape(len(images), n_features)
        x = jax.nn.relu(_dense(params["dense"], x))
        if key is not None and dropout > 0:
            kept = jax.random.bernoulli(key, 1 - dropout, x.shape)
            x = jnp.where(kept, x / (1 - dropout), 0)
        return _dense(params["output"], x)

    return Model(init, apply)


def _layer(rng: Rng, *shape: int) -> Layer:
    weight = rng.normal(size=shape) * np.sqrt(2 / np.prod(shape[:-1]))
    return {"weight": jnp.asarray(weight, jnp.float32), "bias": jnp.zeros(shape[-1])}


def _dense(layer: Layer, x: Array) -> Array:
    return x @ layer["weight"] + layer["bias"]


def _relu(x: Array, layer: Layer) -> Array:
    """Return max(0, x + b); a bias and ReLU after pooling are the same as before, and cheaper."""
    return jax.nn.relu(x + layer["bias"])
