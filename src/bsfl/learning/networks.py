"""The networks of the experiments: which layers they have, and what they start from.

This needs numpy alone, so every engine starts from the same numbers. Weights are N(0, 2 / fan-in)
(He et al. 2015), biases zero.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.types import Rng

Network = Literal["cnn", "vgg"]
Size = Literal["small", "paper"]

Array = npt.NDArray[Any]
Params = Mapping[str, Mapping[str, Any]]
"""For each layer its `weight` and `bias`; sorted names go from the first layer to the last."""
Shape = tuple[int, int, int]
"""Height, width and channels of an image."""
LayerShapes = dict[str, tuple[int, ...]]
"""For each layer the shape of its weight; the last number is also the length of its bias."""

CHANNELS: dict[Network, dict[Size, tuple[int, ...]]] = {
    "cnn": {"small": (16, 32), "paper": (32, 64, 128)},
    "vgg": {"small": (16, 32, 64), "paper": (32, 64, 128)},
}
CONVOLUTIONS_BEFORE_POOL: dict[Network, int] = {"cnn": 1, "vgg": 2}
DENSE: dict[Size, int] = {"small": 64, "paper": 128}


def layer_shapes(network: Network, size: Size, shape: Shape, n_labels: int) -> LayerShapes:
    """Return the layers from the first to the last: convolutions conv1 ..., dense and output."""
    validation.one_of("network", network, get_args(Network))
    validation.one_of("size", size, get_args(Size))
    channels = CHANNELS[network][size]
    n_pools = len(channels)
    if shape[0] % 2 or shape[1] % 2 or min(shape[:2]) < 2**n_pools:
        raise InvalidInput(
            f"images must have an even height and width of at least {2**n_pools}, "
            f"got {shape[0]} x {shape[1]}"
        )
    outputs = [c for c in channels for _ in range(CONVOLUTIONS_BEFORE_POOL[network])]
    kernels = pairwise((shape[2], *outputs))
    n_features = (shape[0] >> n_pools) * (shape[1] >> n_pools) * outputs[-1]
    return {
        **{f"conv{i}": (3, 3, *kernel) for i, kernel in enumerate(kernels, 1)},
        "dense": (n_features, DENSE[size]),
        "output": (DENSE[size], n_labels),
    }


def check_dropout(dropout: float) -> float:
    """Return the share of the dense layer that is dropped while training."""
    if not (0 <= validation.finite("dropout", dropout) < 1):
        raise InvalidInput(f"dropout must be at least 0 and below 1, got {dropout!r}")
    return dropout


def first_params(shapes: LayerShapes, rng: Rng) -> dict[str, dict[str, Array]]:
    """Return untrained parameters: `weight` and `bias` of each layer."""
    return {
        name: {
            "weight": (rng.normal(size=shape) * math.sqrt(2 / math.prod(shape[:-1]))).astype("f4"),
            "bias": np.zeros(shape[-1], np.float32),
        }
        for name, shape in shapes.items()
    }


def flat(params: Params) -> Array:
    """Return all numbers of a model in a new array."""
    return np.concatenate([np.ravel(part) for layer in layers(params) for part in layer])


def views(numbers: Any, shapes: LayerShapes) -> dict[str, dict[str, Array]]:
    """Return a model's parameters as views of all its numbers."""
    named: dict[str, dict[str, Array]] = {}
    end = 0
    for name, shape in shapes.items():
        first, middle = end, end + math.prod(shape)
        end = middle + shape[-1]
        weight, bias = numbers[first:middle].reshape(shape), numbers[middle:end]
        named[name] = {"weight": weight, "bias": bias}
    return named


def layers(params: Params) -> tuple[tuple[Any, Any], ...]:
    """Return weight and bias of each layer, from the first to the last."""
    return tuple((params[name]["weight"], params[name]["bias"]) for name in sorted(params))
