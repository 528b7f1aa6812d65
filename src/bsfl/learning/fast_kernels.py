"""The small CNN for one image at a time, which stays in the cache through all layers and back.

A layer is (weight, bias). LLVM makes vectors of the innermost loops, over contiguous channels.
Gradients take one of the four sums of a pooling block each, and only where ReLU lets it through.
"""

import numba
import numpy as np

F32, U32 = np.float32, np.uint32
CUT, FIRST, SECOND, THIRD, FOURTH = np.arange(-1, 4, dtype=np.int32)
"""Which of the four sums of a pooling block is passed on; CUT: none, by ReLU."""
# What reorders sums, but nothing that supposes finite numbers: a model that diverges must show it.
REORDER = {"contract", "reassoc", "nsz"}
compiled = numba.njit(fastmath=REORDER, nogil=True, cache=True, error_model="numpy")


@compiled
def _four(x, i, j, c):
    return x[i, j, c], x[i, j + 1, c], x[i, j + 2, c], x[i, j + 3, c]


@compiled
def _patch(x, i, j, c):
    """Return the 4 x 4 inputs of a pooling block, row by row."""
    return _four(x, i, j, c), _four(x, i + 1, j, c), _four(x, i + 2, j, c), _four(x, i + 3, j, c)


@compiled
def _dot(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@compiled
def _convolve(x, layer, edge):
    """Return relu(max_pool(conv(x)) + bias) in an edge of zeros, and pooling's choices; x has 1."""
    (w, bias), high, wide, n = layer, x.shape[0] // 2 - 1, x.shape[1] // 2 - 1, len(layer[1])
    y, choice = (
        np.zeros((high + 2 * edge, wide + 2 * edge, n), F32),
        np.empty((high, wide, n), np.int32),
    )
    sums = np.empty((4, n), F32)
    for i in range(high):
        for j in range(wide):
            sums[:] = 0
            for c in range(x.shape[2]):
                p, q, r, s = _patch(x, 2 * i, 2 * j, c)
                for o in range(n):  # the four sums share 16 inputs and 9 weights in registers
                    k0 = w[0, 0, c, o], w[0, 1, c, o], w[0, 2, c, o]
                    k1 = w[1, 0, c, o], w[1, 1, c, o], w[1, 2, c, o]
                    k2 = w[2, 0, c, o], w[2, 1, c, o], w[2, 2, c, o]
                    sums[0, o] += _dot(p, k0) + _dot(q, k1) + _dot(r, k2)
                    sums[1, o] += _dot(p[1:], k0) + _dot(q[1:], k1) + _dot(r[1:], k2)
                    sums[2, o] += _dot(q, k0) + _dot(r, k1) + _dot(s, k2)
                    sums[3, o] += _dot(q[1:], k0) + _dot(r[1:], k1) + _dot(s[1:], k2)
            passed, chosen = y[i + edge, j + edge], choice[i, j]
            for o in range(n):
                best = max(max(sums[0, o], sums[1, o]), max(sums[2, o], sums[3, o]))
                k = THIRD if sums[2, o] == best else FOURTH
                k = FIRST if sums[0, o] == best else SECOND if sums[1, o] == best else k
                best += bias[o]
                passed[o] = F32(0) if best <= 0 else best
                chosen[o] = CUT if best <= 0 else k
    return y, choice


@compiled
def _first_slope(x, dy, choice, slope):
    """Add an image's gradient of the first convolution; dy has an edge of 1."""
    dw, dbias = slope
    for i in range(choice.shape[0]):
        for j in range(choice.shape[1]):
            g, chosen = dy[i + 1, j + 1], choice[i, j]
            for c in range(x.shape[2]):
                p = _patch(x, 2 * i, 2 * j, c)
                for o in range(len(g)):
                    g0, g1 = g[o] * F32(chosen[o] == FIRST), g[o] * F32(chosen[o] == SECOND)
                    g2, g3 = g[o] * F32(chosen[o] == THIRD), g[o] * F32(chosen[o] == FOURTH)
                    for a in range(3):
                        for b in range(3):
                            left = g0 * p[a][b] + g2 * p[a + 1][b]
                            dw[a, b, c, o] += left + g1 * p[a][b + 1] + g3 * p[a + 1][b + 1]
            for o in range(len(g)):
                dbias[o] += g[o] * F32(chosen[o] != CUT)


@compiled
def _second_slope(x, w, dy, choice, dw, dbias):
    """Add an image's gradient of the second convolution to dw and dbias; return that of x.

    w and dw are turned to [out, 3, 3 x in]: a row of a window is contiguous in all four arrays.
    """
    (high, wide, n_out), (_, columns, n_in), n = choice.shape, x.shape, w.shape[2]
    windows, slopes = np.empty(high * wide + 1, np.int64), np.empty(high * wide + 1, F32)
    dx = np.zeros_like(x)
    inputs, changes = x.reshape(-1), dx.reshape(-1)
    for o in range(n_out):
        found = 0
        for i in range(high):
            for j in range(wide):
                k = choice[i, j, o]
                windows[found] = ((2 * i + (k >> 1)) * columns + 2 * j + (k & 1)) * n_in
                slopes[found] = dy[i, j, o]
                found += k != CUT
        for window, g in zip(windows[:found], slopes[:found]):  # noqa: B905 (unknown to numba)
            dbias[o] += g
            for a in range(3):
                at = window + a * columns * n_in
                seen, change = inputs[at : at + n], changes[at : at + n]
                for k in range(n):
                    dw[o, a, k] += g * seen[k]
                for k in range(n):
                    change[k] += g * w[o, a, k]
    return dx


@compiled
def _dense(x, layer):
    w, y = layer[0], layer[1].copy()
    for i in range(len(x)):
        if x[i] != 0:
            for j in range(len(y)):
                y[j] += x[i] * w[i, j]
    return y


@compiled
def _dense_slope(x, layer, dy, slope):
    """Add the gradient of a dense layer; return that of x where x is not 0, behind a ReLU."""
    (w, _), (dw, dbias), dx = layer, slope, np.zeros_like(x)
    dbias += dy
    for i in range(len(x)):
        if x[i] != 0:
            total = F32(0)
            for j in range(len(dy)):
                total += w[i, j] * dy[j]
                dw[i, j] += x[i] * dy[j]
            dx[i] = total
    return dx


@compiled
def threefry(k0, k1, x, y):
    """Return the hash that JAX draws random numbers with (Threefry-2x32, Salmon et al. 2011)."""
    k2 = U32(k0 ^ k1 ^ U32(0x1BD11BDA))
    x, y = U32(x + k0), U32(y + k1)
    for i in range(5):
        for turn in (17, 29, 16, 24) if i % 2 else (13, 15, 26, 6):
            x = U32(x + y)
            y = U32(U32(y << U32(turn)) | U32(y >> U32(32 - turn))) ^ x
        k0, k1, k2 = k1, k2, k0
        x, y = U32(x + k0), U32(y + k1 + U32(i + 1))
    return x, y


@compiled
def _relu_dropout(x, key, first, keep):
    """Return what ReLU and dropout multiply x by: 0, or 1 / keep."""
    factor = np.empty_like(x)
    for j in range(len(x)):
        a, b = threefry(key[0], key[1], U32(0), U32(first + j))
        kept = F32(U32(a ^ b) >> U32(9)) * F32(2.0**-23) < keep
        factor[j] = F32(kept and not x[j] <= 0) / keep
    return factor


@compiled
def train(model, slope, layers, slopes, data, steps, settings):
    """Train a client in place, step by step; return its mean loss.

    layers are views of the flat model; slopes of the flat slope, which is 0 before momentum.
    """
    (x, scale, y), (rows, counts, seed), (keep, rate, momentum), total = data, steps, settings, 0.0
    (conv1, conv2, dense, output), (w, bias), (dw, dbias) = layers, layers[1], slopes[1]
    x1 = np.zeros((x.shape[1] + 2, x.shape[2] + 2, x.shape[3]), F32)
    for step in range(len(counts)):
        turned = w.transpose(3, 0, 1, 2).copy().reshape(len(bias), 3, -1)
        dturned, key = np.zeros_like(turned), threefry(U32(0), seed, U32(0), U32(step))
        for n in range(counts[step]):
            label, x1[1:-1, 1:-1] = y[rows[step, n]], x[rows[step, n]] / scale
            x2, choice1 = _convolve(x1, conv1, 1)
            x3, choice2 = _convolve(x2, conv2, 0)
            hidden = _dense(x3.reshape(-1), dense)
            factor = _relu_dropout(hidden, key, n * len(hidden), keep)
            hidden *= factor
            logits = _dense(hidden, output)
            logits -= logits.max()
            mass = np.exp(logits).sum()
            total += np.log(mass) - logits[label]
            g = np.exp(logits) / mass
            g[label] -= F32(1)
            dhidden = _dense_slope(hidden, output, g / F32(counts[step]), slopes[3]) * factor
            dx3 = _dense_slope(x3.reshape(-1), dense, dhidden, slopes[2]).reshape(x3.shape)
            dx2 = _second_slope(x2, turned, dx3, choice2, dturned, dbias)
            _first_slope(x1, dx2, choice1, slopes[0])
        dw += dturned.reshape(-1, 3, 3, w.shape[2]).transpose(1, 2, 3, 0)
        for i in range(len(model)):
            model[i] -= rate * slope[i]
            slope[i] *= momentum
    return total / counts.sum()
