r"""3 x 3 convolutions and pooling as matrix products, for processors rather than accelerators.

Images are [batch, height, width, channel]; kernels are [3, 3, channel in, channel out]; outside of
an image there are zeros ("same" padding). With N = batch x height x width:

    conv3x3(x) = shift_add(windows(x, width) W, height)      W: [3 c, 3 o]

`windows` lays the three neighbours along the width side by side, one product gives the share of
each kernel row, and `shift_add` sums the rows. Patches of nine would be three times as large, and
the two functions are each other's transpose, so gradients are made of the same fast copies and
sums. What autodiff would write instead (padding inside of fused loops) is several times slower,
which is why the gradients are given here.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

HEIGHT, WIDTH = 1, 2


def conv3x3(x: Array, kernel: Array) -> Array:
    """Return the convolution of images with a 3 x 3 kernel, same size."""
    n, height, width, c = x.shape
    o = kernel.shape[3]
    weight = kernel.transpose(1, 2, 0, 3).reshape(3 * c, 3 * o)
    rows = windows(x, WIDTH).reshape(-1, 3 * c) @ weight
    return shift_add(rows.reshape(n, height, width, 3 * o), HEIGHT)


def conv3x3_input(images: Array, kernel: Array) -> Array:
    """Return conv3x3 of the network's input, which has few channels and needs no gradient."""
    n, height, width, c = images.shape
    o = kernel.shape[3]
    patches = lax.stop_gradient(windows(windows(images, WIDTH), HEIGHT))
    return (patches.reshape(-1, 9 * c) @ kernel.reshape(9 * c, o)).reshape(n, height, width, o)


def conv3x3_pool_input(images: Array, kernel: Array) -> Array:
    """Return max_pool(conv3x3(images)) of the network's input, with even height and width.

    The four outputs that pooling compares see a 4 x 4 patch, so one product of 16 c by 4 o gives
    them side by side, with four times fewer and larger rows than patches of nine.
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
    n, height, width, c = x.shape
    return _block_max(x[:, : height // 2 * 2, : width // 2 * 2])


@jax.custom_vjp
def _block_max(x: Array) -> Array:
    n, height, width, c = x.shape
    return x.reshape(n, height // 2, 2, width // 2, 2, c).max((2, 4))


def _block_max_forward(x: Array) -> tuple[Array, tuple[Array, Array]]:
    largest = _block_max(x)
    return largest, (x, largest)


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


_block_max.defvjp(_block_max_forward, _block_max_backward)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def windows(x: Array, axis: int) -> Array:
    """Return out[i] = (x[i - 1], x[i], x[i + 1]) along an axis, side by side as channels."""
    return _side_by_side(x, axis, (0, 1, 2))


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def shift_add(x: Array, axis: int) -> Array:
    """Return out[i] = a[i - 1] + b[i] + c[i + 1], where (a, b, c) are thirds of the channels."""
    return _sum_of_thirds(x, axis, (0, 1, 2))


windows.defvjp(
    lambda x, axis: (windows(x, axis), None),
    lambda axis, _, slope: (_sum_of_thirds(slope, axis, (2, 1, 0)),),
)
shift_add.defvjp(
    lambda x, axis: (shift_add(x, axis), None),
    lambda axis, _, slope: (_side_by_side(slope, axis, (2, 1, 0)),),
)


def _side_by_side(x: Array, axis: int, starts: tuple[int, ...]) -> Array:
    framed, size = _framed(x, axis), x.shape[axis]
    parts = [lax.slice_in_dim(framed, s, s + size, axis=axis) for s in starts]
    return jnp.concatenate(parts, axis=-1)


def _sum_of_thirds(x: Array, axis: int, starts: tuple[int, ...]) -> Array:
    size = x.shape[axis]
    thirds = jnp.split(_framed(x, axis), 3, axis=-1)
    a, b, c = (
        lax.slice_in_dim(third, s, s + size, axis=axis)
        for third, s in zip(thirds, starts, strict=True)
    )
    return a + b + c


def _framed(x: Array, axis: int) -> Array:
    """Return x with one zero before and after along an axis; copying beats jnp.pad, which fuses."""
    zero = jnp.zeros_like(lax.slice_in_dim(x, 0, 1, axis=axis))
    return lax.optimization_barrier(jnp.concatenate([zero, x, zero], axis=axis))


def _patches4x4(images: Array) -> Array:
    """Return the 4 x 4 patch around every 2 x 2 block: [blocks, 16 c]."""
    n, height, width, c = images.shape
    high, wide = height // 2, width // 2
    framed = _framed(_framed(images, HEIGHT), WIDTH).reshape(n, high + 1, 2, -1)
    rows = jnp.concatenate([framed[:, :-1], framed[:, 1:]], axis=2)
    pairs = rows.reshape(n, high, 4, wide + 1, 2 * c)
    fours = jnp.concatenate([pairs[:, :, :, :-1], pairs[:, :, :, 1:]], axis=-1)
    return fours.transpose(0, 1, 3, 2, 4).reshape(-1, 16 * c)
