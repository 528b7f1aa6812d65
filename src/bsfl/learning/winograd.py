"""A 3 x 3 convolution with pooling and ReLU by Winograd's F(2 x 2, 3 x 3), compiled by numba.

The four sums of a pooling block are 16 products per channel of its transformed patch and the
transformed kernel, instead of 36 (Lavin and Gray 2016). LLVM makes vectors of the innermost loops,
over channels, whose number it knows.
"""

import numba
import numpy as np

from bsfl.learning.networks import CHANNELS

F32, VECTOR = np.float32, 16
C1, C2 = CHANNELS["cnn"]["small"]
KERNEL = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], F32) / 2
"""What transforms a kernel, along each of its sides."""
CUT = np.int32(-1)
"""Pooling chooses the sum 0, 1, 2 or 3 of a block, row by row; or none, as ReLU cuts all."""
# What reorders sums, but nothing that supposes finite numbers: a model that diverges must show it.
REORDER = {"contract", "reassoc", "nsz"}
compiled = numba.njit(fastmath=REORDER, nogil=True, cache=True, error_model="numpy")


@compiled
def empty(rows, columns):
    """Return room for numbers, at an address where vectors do not cross lines of the cache."""
    room = np.empty(rows * columns + VECTOR, F32)
    first = -(room.ctypes.data // 4) % VECTOR
    return room[first : first + rows * columns].reshape(rows, columns)


@compiled
def four(x, at, step):
    """Return four numbers at equal distances."""
    return x[at], x[at + step], x[at + 2 * step], x[at + 3 * step]


@compiled
def pool(sums, bias):
    """Return relu(the largest of four sums + bias), and which it is."""
    a, b, c, d = sums
    best = max(max(a, b), max(c, d))
    k = np.int32(2) if c == best else np.int32(3)
    k = np.int32(0) if a == best else np.int32(1) if b == best else k
    best += bias
    return (F32(0), CUT) if best <= 0 else (best, k)


@compiled
def _into(a, b, c, d):
    """Transform four neighbours of a patch."""
    return a - c, b + c, c - b, b - d


@compiled
def _out_of(a, b, c, d):
    """Return two neighbouring sums from four products."""
    return a + b + c, b - c - d


@compiled
def spectrum(kernel):
    """Return Winograd's transform of a kernel [3, 3, in, out]: [16, in, out]."""
    source, u = kernel.reshape(9, C1 * C2), empty(16, C1 * C2)
    u[:] = 0
    for f in range(16):
        for k in range(9):
            to, tap, factor = u[f], source[k], KERNEL[f % 4, k // 3] * KERNEL[f // 4, k % 3]
            for i in range(len(to) if factor else 0):
                to[i] += factor * tap[i]
    return u.reshape(16, C1, C2)


@compiled
def convolve(x, kernel, bias):
    """Return relu(max_pool(conv(x)) + bias) and pooling's choices; x has an edge of 0.

    kernel is transformed, [16, in, out]; y is [place, out].
    """
    wide = x.shape[1] // C1 // 2 - 1
    n = (len(x) // 2 - 1) * wide
    y, choice = empty(n, C2), empty(n, C2).view(np.int32)
    flat_tiles, flat_sums = empty(n, 16 * C1), empty(n, 16 * C2)
    tiles, sums = flat_tiles.reshape(n, 16, C1), flat_sums.reshape(n, 16, C2)
    for t in range(n):
        i, at, to = 2 * (t // wide), t % wide * 2 * C1, flat_tiles[t]
        p, q, r, s = x[i, at:], x[i + 1, at:], x[i + 2, at:], x[i + 3, at:]
        for k in range(C1):
            a, b = _into(*four(p, k, C1)), _into(*four(q, k, C1))
            c, d = _into(*four(r, k, C1)), _into(*four(s, k, C1))
            for f in range(4):
                column = _into(a[f], b[f], c[f], d[f])
                for g in range(4):
                    to[(4 * f + g) * C1 + k] = column[g]
    for f in range(16):
        for t in range(n):
            tile, to = tiles[t, f], sums[t, f]
            for o in range(C2):
                total = F32(0)
                for c in range(C1):
                    total += tile[c] * kernel[f, c, o]
                to[o] = total
    for t in range(n):
        p, passed, chosen = flat_sums[t], y[t], choice[t]
        for o in range(C2):
            a, b = _out_of(*four(p, o, C2)), _out_of(*four(p, 4 * C2 + o, C2))
            c, d = _out_of(*four(p, 8 * C2 + o, C2)), _out_of(*four(p, 12 * C2 + o, C2))
            upper, lower = _out_of(a[0], b[0], c[0], d[0]), _out_of(a[1], b[1], c[1], d[1])
            passed[o], chosen[o] = pool((*upper, *lower), bias[o])
    return y, choice
