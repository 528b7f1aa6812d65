# mypy: ignore-errors
"""The CNN on one core, image by image while an image is in the cache: training and outputs.

The first layer is convolved as it stands; the others by Winograd's F(2 x 2, 3 x 3), which computes
the four outputs of a pooling block with 16 products instead of 36. Of these four only the largest
has a slope, and only where it is positive: gradients go through lists of those, an eighth of all.
"""

from collections import namedtuple

import numba
import numpy as np

from bsfl.learning.simd import LANES, pool, product, sandwich, sift, taps

BLOCK, WIDE = 7, 2 * LANES
"""Rows of a product that fill the registers (7 divides 28 and 14), and its columns."""

line, times, dots = product(BLOCK, 1, repeat=3), product(BLOCK, 2), product(BLOCK, 2, dots=True)
times_onto = product(8, 2, onto=True)
into_tiles = sandwich([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
into_spectrum = sandwich([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
out_of_tiles = sandwich([[1, 1, 1, 0], [0, 1, -1, -1]])
first_taps, next_taps = taps(wide=False), taps(wide=True)
# numba finds what it compiled by the date of this file alone: touch it when simd.py changes
compiled = numba.njit(nogil=True, cache=True, error_model="numpy")
U32, F32 = np.uint32, np.float32


Layer = namedtuple(
    "Layer", "height width n_in n_out kernel bias inputs choice spectrum target target_row"
)
"""Sizes of a convolution, and where its numbers start; spectrum is -1 for the first layer."""

Net = namedtuple(
    "Net", "record choice features n_features width n_labels dense_bias out out_bias dense size"
)
"""Sizes of an image's record and of the dense layers, and where their numbers start."""

Work = namedtuple(
    "Work",
    "images choices hidden hidden_slope feature_slope image_slope slope turned spectra tiles "
    "products grid places values",
)
"""Room for one batch in one thread: for each image its inputs to every layer, and so on."""


@compiled
def _layer(w, p, work, at, choice):
    """Convolve, pool, add the bias and cut below zero, in the record of an image."""
    x, grid, tiles, products = work.images, work.grid, work.tiles, work.products
    wide, n_in, n_out = p.width, p.n_in, p.n_out
    row, size, many = (wide + 2) * n_in, BLOCK * n_in, BLOCK * n_out
    for i in range(p.height // 2):
        start = at + p.inputs + 2 * i * row
        if p.spectrum < 0:
            for u in range(2):
                for j in range(0, wide, BLOCK):
                    for o in range(0, n_out, LANES):
                        to = grid, (u * wide + j) * n_out + o, n_out, 0
                        patch = x, start + u * row + j * n_in, n_in, 1, row
                        line(to, patch, (w, p.kernel + o, 0, n_out), 3 * n_in, w)
        else:
            for first in range(0, wide // 2, BLOCK):
                here = range(first, min(first + BLOCK, wide // 2))
                for j in here:
                    for c in range(0, n_in, LANES):
                        to = tiles, (j - first) * n_in + c, 4 * size, size
                        into_tiles(to, (x, start + 2 * j * n_in + c, row, n_in))
                for f in range(16):
                    for o in range(0, n_out, WIDE):
                        kernel = work.spectra, p.spectrum + f * n_in * n_out + o, LANES, n_out
                        to = products, f * many + o, n_out, LANES
                        times(to, (tiles, f * size, n_in, 1), kernel, n_in, w)
                for j in here:
                    for o in range(0, n_out, LANES):
                        source = products, (j - first) * n_out + o, 4 * many, many
                        out_of_tiles((grid, 2 * j * n_out + o, wide * n_out, n_out), source)
        for j in range(wide // 2):
            for o in range(0, n_out, LANES):
                to = x, at + p.target + i * p.target_row + j * n_out + o
                chosen = work.choices, choice + p.choice + (i * (wide // 2) + j) * n_out + o
                source = grid, 2 * j * n_out + o, wide * n_out, n_out
                pool(to, chosen, source, (w, p.bias + o), (2 * i * row + 2 * j * n_in, row, n_in))


@compiled
def _layer_slope(p, work, at, choice, g, g_at):
    """Add an image's slopes of a layer's kernel and bias, and write those of its inputs."""
    wide, n_in, n_out, row = p.width // 2, p.n_in, p.n_out, (p.width + 2) * p.n_in
    slope, places, values = work.slope, work.places, work.values
    work.image_slope[p.inputs : p.inputs + (p.height + 2) * row] = F32(0)
    for o in range(n_out):
        n, total = 0, F32(0)
        for odd in range(2):  # neighbours add to the same slopes and would wait for each other
            for i in range(p.height // 2):
                chosen = work.choices, choice + p.choice + (i * wide + odd) * n_out + o
                given = g, g_at + i * p.target_row + odd * n_out + o
                n = sift(places, values, n, chosen, given, 2 * n_out, (wide + 1 - odd) // 2)
        for c in range(0, n_in, 1 if p.spectrum < 0 else LANES):
            kernel, x = (slope, p.kernel + o * 9 * n_in + c), (work.images, at + p.inputs + c)
            dx = work.image_slope, p.inputs + c
            if p.spectrum < 0:
                total = first_taps(places, values, n, kernel, work.turned, x, dx, row, n_in)
            else:
                total = next_taps(places, values, n, kernel, work.turned, x, dx, row, n_in)
        slope[p.bias + o] += total


@compiled
def _turn(source, to, start, rows, columns):
    for i in range(rows):
        for j in range(columns):
            to[start + j * rows + i] = source[start + i * columns + j]


@compiled
def _arrange(w, layers, work):
    """Transform the kernels, and turn them to [out, 3, 3, in]."""
    for p in layers[1:]:
        size = p.n_in * p.n_out
        for i in range(0, size, LANES):
            to = work.spectra, p.spectrum + i, 4 * size, size
            into_spectrum(to, (w, p.kernel + i, 3 * size, size))
        _turn(w, work.turned, p.kernel, 9 * p.n_in, p.n_out)


@compiled
def _forward(w, x, rows, layers, net, work):
    """From images to the dense layer, before its bias."""
    scale, f = F32(255 if x.itemsize == 1 else 1), net.n_features
    row, deep = x.shape[2], layers[0].n_in
    for image in range(len(rows)):
        at = image * net.record
        for i in range(x.shape[1]):
            to = at + (i + 1) * (row + 2 * deep) + deep
            pixels, inputs = x[rows[image], i], work.images[to : to + row]
            for j in range(row):
                inputs[j] = F32(pixels[j]) / scale
        for p in layers:
            _layer(w, p, work, at, image * net.choice)
    for first in range(0, len(rows), BLOCK):
        source = work.images, first * net.record + net.features, net.record, LANES
        for j in range(0, net.width, 2):
            to = work.hidden, first * net.width + j, net.width, 1
            dots(to, source, (w, net.dense + j * f, f, LANES), f // LANES, w)


@compiled
def _backward(w, layers, net, work, n):
    """From the slopes of the dense layer to those of the convolutions."""
    f = net.n_features
    for first in range(0, n, BLOCK):
        source = work.hidden_slope, first * net.width, net.width, 1
        for i in range(0, f, WIDE):
            to = work.feature_slope, first * f + i, f, LANES
            times(to, source, (w, net.dense + i, LANES, f), net.width, w)
    for image in range(n):
        at, choice = image * net.record, image * net.choice
        for p in layers[::-1]:
            if p.target == net.features:
                _layer_slope(p, work, at, choice, work.feature_slope, image * f)
            else:
                _layer_slope(p, work, at, choice, work.image_slope, p.target)


@compiled
def _mixed(x, y, *turns):
    for turn in turns:
        x = U32(x + y)
        y = U32(U32(y << U32(turn)) | U32(y >> U32(32 - turn))) ^ x
    return x, y


@compiled
def threefry(k0, k1, x, y):
    """Return the hash that JAX draws random numbers with (Threefry-2x32, Salmon et al. 2011)."""
    k2 = U32(k0 ^ k1 ^ U32(0x1BD11BDA))
    x, y = U32(x + k0), U32(y + k1)
    for i in range(5):
        x, y = _mixed(x, y, 17, 29, 16, 24) if i % 2 else _mixed(x, y, 13, 15, 26, 6)
        k0, k1, k2 = k1, k2, k0
        x, y = U32(x + k0), U32(y + k1 + U32(i + 1))
    return x, y


@compiled
def _logits(w, net, hidden, out):
    out[:] = w[net.out_bias : net.out_bias + net.n_labels]
    for j in range(net.width):
        for k in range(net.n_labels):
            out[k] += hidden[j] * w[net.out + j * net.n_labels + k]


@compiled
def _output(w, labels, net, work, keep, key):
    """Bias, ReLU, dropout and the last layer, forth and back; return the summed loss."""
    width, n_labels, slope, total = net.width, net.n_labels, work.slope, 0.0
    out, hidden, factor = np.empty(n_labels, F32), np.empty(width, F32), np.empty(width, F32)
    for b in range(len(labels)):
        for j in range(width):
            hidden[j] = work.hidden[b * width + j] + w[net.dense_bias + j]
            u, v = threefry(key[0], key[1], U32(0), U32(b * width + j))
            kept = F32(U32(u ^ v) >> U32(9)) * F32(2.0**-23) < keep
            factor[j] = F32(0) if hidden[j] <= 0 or not kept else F32(1) / keep
            hidden[j] *= factor[j]
        _logits(w, net, hidden, out)
        out -= out.max()
        mass = np.exp(out).sum()
        total += np.log(mass) - out[labels[b]]
        out[:] = np.exp(out) / mass
        out[labels[b]] -= F32(1)
        out /= F32(len(labels))
        slope[net.out_bias : net.out_bias + n_labels] += out
        for j in range(width):
            s = F32(0)
            for k in range(n_labels):
                s += out[k] * w[net.out + j * n_labels + k]
                slope[net.out + j * n_labels + k] += out[k] * hidden[j]
            work.hidden_slope[b * width + j] = s * factor[j]
            slope[net.dense_bias + j] += s * factor[j]
    return total


@compiled
def _descend(w, v, layers, net, work, n, rate, momentum):
    """Take one step of gradient descent from the slopes of a batch."""
    slope, f = work.slope, net.n_features
    target, mix = (v, (momentum, F32(1))) if momentum > 0 else (w, (F32(1), -rate))
    mix = np.array(mix)
    for j in range(0, net.width, 8):
        for i in range(0, f, WIDE):
            to, source = (
                (target, net.dense + j * f + i, f, LANES),
                (work.hidden_slope, j, 1, net.width),
            )
            times_onto(to, source, (work.images, net.features + i, LANES, net.record), n, mix)
    for p in layers:
        _turn(slope, work.turned, p.kernel, p.n_out, 9 * p.n_in)
        slope[p.kernel : p.bias] = work.turned[p.kernel : p.bias]
    for i in range(net.dense):
        if momentum > 0:
            v[i] = slope[i] + momentum * v[i]
        else:
            w[i] -= rate * slope[i]
    if momentum > 0:
        for i in range(net.size):
            w[i] -= rate * v[i]


@compiled
def train(w, v, x, y, rows, counts, layers, net, work, seed, rate, momentum, keep):
    """Train a client in place, step by step; return its mean loss."""
    total = 0.0
    for step in range(len(counts)):
        batch = rows[step, : counts[step]]
        _arrange(w, layers, work)
        _forward(w, x, batch, layers, net, work)
        work.slope[:] = F32(0)
        key = threefry(U32(0), seed, U32(0), U32(step))
        total += _output(w, y[batch], net, work, keep, key)
        _backward(w, layers, net, work, len(batch))
        _descend(w, v, layers, net, work, len(batch), rate, momentum)
    return total / counts.sum()


@compiled
def outputs(w, x, first, last, room, layers, net, work, out):
    """Write the network's outputs for images from first to before last."""
    _arrange(w, layers, work)
    for start in range(first, last, room):
        n = min(room, last - start)
        _forward(w, x, np.arange(start, start + n), layers, net, work)
        for b in range(n):
            hidden = work.hidden[b * net.width : (b + 1) * net.width] + w[net.dense_bias : net.out]
            _logits(w, net, np.where(hidden <= 0, F32(0), hidden), out[start + b])


@compiled
def weighted_sum(total, w, share):
    """Add share * w to the total."""
    for i in range(len(w)):
        total[i] += share * w[i]
