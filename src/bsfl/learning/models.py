r"""The networks of the experiments in JAX: pure functions of their parameters.

A model starts from a numpy generator, so that its first parameters do not depend on the version of
JAX; `networks` says which layers it has. Images are [batch, height, width, channel]; kernels are
[3, 3, channel in, channel out]; outside of an image there are zeros ("same" padding).

XLA convolves fast on a processor, but the gradient that autodiff derives is more than ten times
slower than it need be. Here it is two matrix products. With y[i, j] = sum x[i+a-1, j+b-1] k[a, b],
and with slopes G[i, j] = (g[i+1, j], g[i, j], g[i-1, j]) and inputs X[i, j] = (x[i, j-1], x[i, j],
x[i, j+1]) laid side by side as channels,

    dk[a, b] = block (b, a) of X^T G         dx[i, j] = sum over b of block b of (G k^T)[i, j+1-b]

so that each side holds three neighbours; patches of nine on one side would be three times larger.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax

from bsfl.learning.networks import Network, Shape, Size, check_dropout, first_params, layer_shapes
from bsfl.types import Rng

Layer = dict[str, Array]
Layers = dict[str, Layer]
"""Parameters: for each layer its `weight` and `bias`."""

HEIGHT, WIDTH = 1, 2
FORWARD, BACKWARD = (0, 1, 2), (2, 1, 0)
"""In which order neighbours stand: from before to after, or the other way round."""


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
    model = softmax(n_features, 1)
    return Model(model.init, lambda params, x, key: model.apply(params, x, key)[:, 0])


def softmax(n_features: int, n_labels: int) -> Model:
    """Return logits x w + b, one per label, from w = 0."""

    def init(rng: Rng) -> Layers:
        weight, bias = jnp.zeros((n_features, n_labels)), jnp.zeros(n_labels)
        return {"output": {"weight": weight, "bias": bias}}

    return Model(init, lambda params, x, key: _dense(params["output"], x))


def convolutional(
    network: Network, shape: Shape, n_labels: int, size: Size = "small", dropout: float = 0.25
) -> Model:
    """Return convolutions with pooling, then dense - dropout - dense.

    Args:
        network: "cnn": pooling after each convolution; "vgg": after every second one.
        shape: Of an image; height and width are even.
        n_labels: Number of labels.
        size: Of the layers, see `layer_shapes`.
        dropout: Share of the dense layer dropped while training.
    """
    shapes, dropout = layer_shapes(network, size, shape, n_labels), check_dropout(dropout)

    def init(rng: Rng) -> Layers:
        return jax.tree.map(jnp.asarray, first_params(shapes, rng))  # type: ignore[no-any-return]

    def features(params: Layers, x: Array) -> Array:
        for i, layer in enumerate(params[name] for name in shapes if name.startswith("conv")):
            if network == "vgg":
                x = (conv3x3 if i else conv3x3_input)(x, layer["weight"])
                x = max_pool(x) if i % 2 else x
            elif i:
                x = max_pool(conv3x3(x, layer["weight"]))
            else:
                x = conv3x3_pool_input(x, layer["weight"])
            x = jax.nn.relu(x + layer["bias"])  # after pooling the same as before, and cheaper
        return x.reshape(len(x), -1)

    def apply(params: Layers, images: Array, key: Array | None) -> Array:
        x = jax.nn.relu(_dense(params["dense"], features(params, images)))
        if key is not None and dropout > 0:
            kept = jax.random.bernoulli(key, 1 - dropout, x.shape)
            x = jnp.where(kept, x / (1 - dropout), 0)
        return _dense(params["output"], x)

    return Model(init, apply)


def _dense(layer: Layer, x: Array) -> Array:
    return x @ layer["weight"] + layer["bias"]


# --- convolutions and pooling --------------------------------------------------------------------


@jax.custom_vjp
def conv3x3(x: Array, kernel: Array) -> Array:
    """Return the convolution of images with a 3 x 3 kernel, same size."""
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout)


def _conv3x3_backward(saved: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    x, kernel = saved
    c, o = kernel.shape[2:]
    slopes = _neighbours(slope, HEIGHT, BACKWARD).reshape(-1, 3 * o)
    inputs = _neighbours(x, WIDTH, FORWARD).reshape(-1, 3 * c)
    kernel_slope = (inputs.T @ slopes).reshape(3, c, 3, o).transpose(2, 0, 1, 3)
    weight = kernel.transpose(1, 2, 0, 3).reshape(3 * c, 3 * o)
    x_slope = _sum_of_neighbours((slopes @ weight.T).reshape(*x.shape[:3], 3 * c), WIDTH)
    return x_slope, kernel_slope


conv3x3.defvjp(lambda x, kernel: (conv3x3(x, kernel), (x, kernel)), _conv3x3_backward)


def conv3x3_input(images: Array, kernel: Array) -> Array:
    """Return conv3x3 of the network's input, which has few channels and needs no gradient."""
    n, height, width, c = images.shape
    o = kernel.shape[3]
    patches = lax.stop_gradient(_neighbours(_neighbours(images, WIDTH, FORWARD), HEIGHT, FORWARD))
    return (patches.reshape(-1, 9 * c) @ kernel.reshape(9 * c, o)).reshape(n, height, width, o)


def conv3x3_pool_input(images: Array, kernel: Array) -> Array:
    """Return max_pool(conv3x3(images)) of the network's input, with even height and width.

    The four outputs that pooling compares see one 4 x 4 patch: one product of 16 c by 4 o.
    """
    n, height, width, c = images.shape
    o = kernel.shape[3]
    patches = lax.stop_gradient(_patches4x4(images))
    shifted = [
        jnp.pad(kernel, ((i, 1 - i), (j, 1 - j), (0, 0), (0, 0))) for i in (0, 1) for j in (0, 1)
    ]
    outputs = patches @ jnp.stack(shifted, axis=3).reshape(16 * c, 4 * o)
    return max_pool(outputs.reshape(-1, 2, 2, o)).reshape(n, height // 2, width // 2, o)


def max_pool(x: Array) -> Array:
    """Return the largest of every 2 x 2 block; an odd last row or column is left out."""
    height, width = x.shape[1:3]
    return _block_max(x[:, : height // 2 * 2, : width // 2 * 2])


@jax.custom_vjp
def _block_max(x: Array) -> Array:
    n, height, width, c = x.shape
    return x.reshape(n, height // 2, 2, width // 2, 2, c).max((2, 4))


def _block_max_backward(saved: tuple[Array, Array], slope: Array) -> tuple[Array]:
    """Give the slope to the first of the largest."""
    x, largest = saved
    n, height, width, c = x.shape
    blocks = x.reshape(n, height // 2, 2, width // 2, 2, c)
    given = []
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        hit = blocks[:, :, i, :, j] == largest
        given.append(jnp.where(hit, slope, 0))
        slope = jnp.where(hit, 0, slope)
    rows = jnp.stack(given[:2], axis=3), jnp.stack(given[2:], axis=3)
    return (jnp.stack(rows, axis=2).reshape(x.shape),)


_block_max.defvjp(lambda x: (largest := _block_max(x), (x, largest)), _block_max_backward)


def _neighbours(x: Array, axis: int, order: tuple[int, int, int]) -> Array:
    """Return x[i - 1], x[i] and x[i + 1] along an axis, in an order, side by side as channels."""
    framed, size = _framed(x, axis), x.shape[axis]
    parts = [lax.slice_in_dim(framed, start, start + size, axis=axis) for start in order]
    return jnp.concatenate(parts, axis=-1)


def _sum_of_neighbours(x: Array, axis: int) -> Array:
    """Return a[i + 1] + b[i] + c[i - 1] along an axis; (a, b, c) are thirds of the channels."""
    size = x.shape[axis]
    after, middle, before = jnp.split(x, 3, axis=-1)

    def part(third: Array, start: int, stop: int) -> Array:
        return lax.slice_in_dim(third, start, stop, axis=axis)

    lines = [
        part(middle, 0, 1) + part(after, 1, 2),
        part(before, 0, size - 2) + part(middle, 1, size - 1) + part(after, 2, size),
        part(before, size - 2, size - 1) + part(middle, size - 1, size),
    ]
    return jnp.concatenate(lines, axis=axis)


def _framed(x: Array, axis: int) -> Array:
    """Return x with one zero before and after along an axis; copying beats jnp.pad, which fuses."""
    zero = jnp.zeros_like(lax.slice_in_dim(x, 0, 1, axis=axis))
    return jnp.concatenate([zero, x, zero], axis=axis)


def _patches4x4(images: Array) -> Array:
    """Return the 4 x 4 patch around every 2 x 2 block: [blocks, 16 c]."""
    n, height, width, c = images.shape
    high, wide = height // 2, width // 2
    framed = _framed(_framed(images, HEIGHT), WIDTH).reshape(n, high + 1, 2, -1)
    rows = jnp.concatenate([framed[:, :-1], framed[:, 1:]], axis=2)
    pairs = rows.reshape(n, high, 4, wide + 1, 2 * c)
    fours = jnp.concatenate([pairs[:, :, :, :-1], pairs[:, :, :, 1:]], axis=-1)
    return fours.transpose(0, 1, 3, 2, 4).reshape(-1, 16 * c)
