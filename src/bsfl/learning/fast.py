"""Image classification on processors: what `image_task` trains, by loops that numba compiles.

Order of samples, dropout and first parameters are those of JAX, so the results are, too, but for
the last digits of float32. An image goes through all layers and back while it is in the cache.
Arrays are [place, channel] or [row, column x channel], a layer is (weight, bias). LLVM makes
vectors of the innermost loops, over channels. Gradients take one of the four sums of a pooling
block each, and only where ReLU lets it through.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.extras import optional_imports
from bsfl.learning import array_task, networks
from bsfl.learning.networks import CHANNELS, LayerShapes, Network, Params, Size
from bsfl.learning.task import Evaluation, Update, check_cohort
from bsfl.random import stream
from bsfl.types import FloatArray, IntArray

with optional_imports():
    import numba

F32, U32, VECTOR = np.float32, np.uint32, 16
C1, C2 = CHANNELS["cnn"]["small"]
CUT = np.int32(-1)
"""Pooling chooses the sum 0, 1, 2 or 3 of a block, row by row; or none, as ReLU cuts all."""
# Sums may be reordered, but nothing may suppose finite numbers: a model that diverges must show it.
REORDER = {"contract", "reassoc", "nsz"}
compiled = numba.njit(fastmath=REORDER, nogil=True, cache=True, error_model="numpy")


def fast_image_task(
    *data: Any,
    network: Network = "cnn",
    size: Size = "small",
    dropout: float = 0.25,
    n_labels: int | None = None,
) -> "FastTask":
    """Return what `image_task` returns for the same arguments, trained by numba.

    It trains the small network "cnn" with optimizer "sgd", with or without momentum.
    """
    train, test, clients, local = data
    if (network, size, local.optimizer) != ("cnn", "small", "sgd"):
        raise InvalidInput(
            'engine "fast" trains the small "cnn" with "sgd", got the '
            f'{size} "{network}" with "{local.optimizer}"; engine "jax" trains all'
        )
    known = array_task.checked_data(train, test, clients, dimensions=(3, 4), n_labels=n_labels)
    shapes = networks.layer_shapes(network, size, known["x"].shape[1:], known["n_labels"])
    return FastTask(shapes=shapes, dropout=networks.check_dropout(dropout), local=local, **known)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FastTask(array_task.ArrayTask):
    """A Task whose clients train in numba; build one with `fast_image_task`.

    Attributes:
        shapes: Shapes of the weights of the layers.
        dropout: Share of the dense layer dropped while training.
    """

    shapes: LayerShapes
    dropout: float

    def init(self, seed: int) -> Params:
        return networks.first_params(self.shapes, stream(seed, "model"))

    def train(self, params: Params, clients: IntArray, *, t: int, seed: int) -> list[Update]:
        cohort, start = check_cohort(clients, self.n_clients), networks.flat(params)
        models = _empty(len(cohort), -(-len(start) // VECTOR) * VECTOR)

        def train_one(i: int) -> Update:
            client, model = int(cohort[i]), models[i, : len(start)]
            model[:] = start
            rows, counts, n, own_seed = self.steps(client, t, seed)
            steps, seen = (rows[:n], counts[:n], own_seed), int(counts.sum())
            loss, _ = self._run(model, self.x, self.y, steps, keep=1 - self.dropout, learn=True)
            learned, samples = networks.views(model, self.shapes), len(self.clients[client])
            return Update(client=client, params=learned, loss=loss / seen, samples=samples)

        return list(array_task.on_every_core(train_one, range(len(cohort)), self._workers))

    def aggregate(self, params: Params, updates: Sequence[Update], weights: FloatArray) -> Any:
        pairs = zip(updates, weights.astype(np.float32), strict=True)
        total = sum(networks.flat(update.params) * weight for update, weight in pairs)
        return networks.views(total, self.shapes) if updates else params

    def evaluate(self, params: Params) -> Evaluation:
        model = networks.flat(params)

        def part(first: int, last: int) -> Any:
            rows, count = np.arange(first, last, dtype=np.int32), np.array([last - first], np.int32)
            steps = rows[None], count, np.uint32(0)
            return self._run(model, self.x_test, self.y_test, steps, keep=1, learn=False)

        return self._evaluation(part)

    def _run(self, model: Any, x: Any, y: Any, steps: Any, *, keep: float, learn: bool) -> Any:
        """Train a model in place, or only evaluate it; return loss and right answers."""
        slope = _empty(1, len(model))[0]
        slope[:] = 0
        own, slopes = (networks.layers(networks.views(a, self.shapes)) for a in (model, slope))
        settings = tuple(map(np.float32, (keep, self.local.learning_rate, self.local.momentum)))
        data = x, np.float32(array_task.PIXEL_MAX if x.dtype == np.uint8 else 1), y
        return _train(model, slope, own, slopes, data, steps, settings, learn)


def recovering(program: Any) -> Callable[..., Any]:
    """Return a compiled program that is compiled again if its copy on disk cannot be read.

    numba unpickles its cache when a program is first called, before the program runs. An error with
    another cause than a damaged pickle is raised by the second call.
    """

    def call(*args: Any) -> Any:
        try:
            return program(*args)
        except Exception:  # there is no list of what a damaged pickle may raise
            folder = Path(program.stats.cache_path)
            for path in (*folder.glob("*.nbi"), *folder.glob("*.nbc")):
                path.unlink(missing_ok=True)
            return program(*args)

    return call


# --- compiled programs ----------------------------------------------------------------------------


@compiled
def empty(rows, columns):
    """Return room for numbers, at an address where vectors do not cross lines of the cache."""
    room = np.empty(rows * columns + VECTOR, F32)
    first = -(room.ctypes.data // 4) % VECTOR
    return room[first : first + rows * columns].reshape(rows, columns)


@compiled
def _four(x, at, step):
    """Return four numbers at equal distances."""
    return x[at], x[at + step], x[at + 2 * step], x[at + 3 * step]


@compiled
def _pool(sums, bias):
    """Return relu(the largest of four sums + bias), and which it is."""
    a, b, c, d = sums
    best = max(max(a, b), max(c, d))
    k = np.int32(2) if c == best else np.int32(3)
    k = np.int32(0) if a == best else np.int32(1) if b == best else k
    best += bias
    return (F32(0), CUT) if best <= 0 else (best, k)


@compiled
def _patch(x, i, j, n_in, c):
    """Return the 4 x 4 inputs of a pooling block, row by row."""
    at, rows = 2 * j * n_in + c, (x[2 * i], x[2 * i + 1], x[2 * i + 2], x[2 * i + 3])
    lower = _four(rows[2], at, n_in), _four(rows[3], at, n_in)
    return _four(rows[0], at, n_in), _four(rows[1], at, n_in), *lower


@compiled
def _convolve(x, layer, n_in, n_out):
    """Return relu(max_pool(conv(x)) + bias) and pooling's choices; x and y have an edge of 0."""
    (w, bias), high, wide = layer, len(x) // 2 - 1, x.shape[1] // n_in // 2 - 1
    y, choice = empty(high + 2, (wide + 2) * n_out), empty(high * wide, n_out).view(np.int32)
    sums, places, y[:] = empty(1, 4 * n_out)[0], y.reshape(high + 2, wide + 2, n_out), 0
    for t in range(high * wide):
        sums[:] = 0
        for c in range(n_in):
            p = _patch(x, t // wide, t % wide, n_in, c)
            for o in range(n_out):  # the four sums share 16 inputs and 9 weights in registers
                s0 = s1 = s2 = s3 = F32(0)
                for a in range(3):
                    for b in range(3):
                        k = w[a, b, c, o]
                        s0, s1 = s0 + k * p[a][b], s1 + k * p[a][b + 1]
                        s2, s3 = s2 + k * p[a + 1][b], s3 + k * p[a + 1][b + 1]
                sums[o], sums[n_out + o] = sums[o] + s0, sums[n_out + o] + s1
                sums[2 * n_out + o] += s2
                sums[3 * n_out + o] += s3
        passed, chosen = places[t // wide + 1, t % wide + 1], choice[t]
        for o in range(n_out):
            passed[o], chosen[o] = _pool(_four(sums, o, n_out), bias[o])
    return y, choice


@compiled
def _first_slope(x, dy, choice, slope, n_in):
    """Add an image's gradient of the first convolution; dy has an edge of 1."""
    (dw, dbias), wide, total = slope, dy.shape[1] // C1 - 2, empty(1, 9 * C1)[0]
    places = dy.reshape(len(dy), wide + 2, C1)
    for c in range(n_in):
        total[:] = 0
        for t in range(len(choice)):
            p, chosen = _patch(x, t // wide, t % wide, n_in, c), choice[t]
            g = places[t // wide + 1, t % wide + 1]
            for o in range(C1):
                g0, g1 = g[o] * F32(chosen[o] == 0), g[o] * F32(chosen[o] == 1)
                g2, g3 = g[o] * F32(chosen[o] == 2), g[o] * F32(chosen[o] == 3)
                dbias[o] += (g0 + g1 + g2 + g3) * F32(c == 0)
                for a in range(3):
                    for b in range(3):
                        left = g0 * p[a][b] + g2 * p[a + 1][b]
                        right = g1 * p[a][b + 1] + g3 * p[a + 1][b + 1]
                        total[(3 * a + b) * C1 + o] += left + right
        dw[:, :, c] += total.reshape(3, 3, C1)


@compiled
def _second_slope(x, w, dy, choice, dw, dbias):
    """Add an image's gradient of the second convolution to dw and dbias; return that of x.

    w and dw are turned to [out, 3, 3 x in]: a row of a window is contiguous in all four arrays.
    """
    (rows, columns), n = x.shape, 3 * C1
    windows, slopes = np.empty(len(dy) + 1, np.int64), np.empty(len(dy) + 1, F32)
    dx, wide = empty(rows, columns), columns // C1 // 2 - 1
    dx[:] = 0
    inputs, changes = x.reshape(-1), dx.reshape(-1)
    for o in range(C2):
        found = 0
        for t in range(len(dy)):
            k = choice[t, o]
            i, j = 2 * (t // wide) + (k >> 1), 2 * (t % wide) + (k & 1)
            windows[found], slopes[found] = i * columns + j * C1, dy[t, o]
            found += k != CUT
        for at, g in zip(windows[:found], slopes[:found]):  # noqa: B905 (unknown to numba)
            dbias[o] += g
            for a in range(3):
                first, kernel, dkernel = at + a * columns, w[o, a], dw[o, a]
                seen, change = inputs[first : first + n], changes[first : first + n]
                for k in range(3 * C1):
                    dkernel[k] += g * seen[k]
                for k in range(3 * C1):
                    change[k] += g * kernel[k]
    return dx


@compiled
def _alive(x):
    """Return where x is not 0."""
    places, found = np.empty(len(x) + 1, np.int64), 0
    for i in range(len(x)):  # without a branch, which no processor could predict
        places[found] = i
        found += x[i] != 0
    return places[:found]


@compiled
def _dense(x, alive, layer):
    w, y = layer[0], layer[1].copy()
    for i in alive:
        for j in range(len(y)):
            y[j] += x[i] * w[i, j]
    return y


@compiled
def _dense_slope(x, alive, layer, dy, slope):
    """Add the gradient of a dense layer; return that of x where x is not 0, behind a ReLU."""
    (w, _), (dw, dbias), dx = layer, slope, np.zeros_like(x)
    dbias += dy
    for i in alive:
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
def train(model, slope, layers, slopes, data, steps, settings, learn):
    """Train a client in place, step by step; return its summed loss and right answers per label.

    layers are views of the flat model; slopes of the flat slope, which is 0 before momentum.
    Without `learn`, the images are only evaluated.
    """
    (x, scale, y), (rows, counts, seed), (keep, rate, momentum) = data, steps, settings
    (first, second, dense, output), total, right = layers, 0.0, np.zeros_like(layers[3][1])
    kernel, dkernel = second[0].reshape(3, -1, C2), slopes[1][0].reshape(3, -1, C2)
    turned, dturned = empty(C2, 9 * C1).reshape(C2, 3, -1), empty(C2, 9 * C1).reshape(C2, 3, -1)
    n_in, wide = x.shape[3], x.shape[2] * x.shape[3]
    x1 = np.zeros((x.shape[1] + 2, wide + 2 * n_in), F32)
    for step in range(len(counts)):
        key = threefry(U32(0), seed, U32(0), U32(step))
        turned[:], dturned[:] = kernel.transpose(2, 0, 1), 0
        for n in range(counts[step]):
            row, label = rows[step, n], y[rows[step, n]]
            x1[1:-1, n_in:-n_in] = x[row].reshape(-1, wide) / scale
            x2, choice1 = _convolve(x1, first, n_in, C1)
            framed, choice2 = _convolve(x2, second, C1, C2)
            x3 = framed[1:-1, C2:-C2].copy().reshape(-1)
            alive = _alive(x3)
            x4 = _dense(x3, alive, dense)
            factor = _relu_dropout(x4, key, n * len(x4), keep)
            x4 *= factor
            alive4 = _alive(x4)
            logits = _dense(x4, alive4, output)
            right[label] += logits.argmax() == label
            logits -= logits.max()
            mass = np.exp(logits).sum()
            total += np.log(mass) - logits[label]
            if learn:
                g = np.exp(logits) / mass
                g[label] -= F32(1)
                dx4 = _dense_slope(x4, alive4, output, g / F32(counts[step]), slopes[3]) * factor
                dx3 = _dense_slope(x3, alive, dense, dx4, slopes[2]).reshape(choice2.shape)
                dx2 = _second_slope(x2, turned, dx3, choice2, dturned, slopes[1][1])
                _first_slope(x1, dx2, choice1, slopes[0], n_in)
        dkernel += dturned.transpose(1, 2, 0)
        for i in range(len(model) if learn else 0):
            model[i] -= rate * slope[i]
            slope[i] *= momentum
    return total, right


_empty, _train = recovering(empty), recovering(train)
