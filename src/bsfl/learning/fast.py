"""Image classification for processors, in numba: what `image_task` trains, several times faster.

Order of samples, dropout and first parameters are those of JAX, so the results are, too, but for
the last digits of float32.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl.errors import InvalidInput
from bsfl.extras import optional_imports
from bsfl.learning.task import Evaluation, Update, check_cohort
from bsfl.learning.tasks import JaxTask, Local, Network, image_task
from bsfl.records import FloatArray, IntArray

with optional_imports():
    from bsfl.learning import fast_kernels as kernels
    from bsfl.learning.models import CNN_CHANNELS, DENSE, Size
    from bsfl.learning.simd import LANES

Floats = npt.NDArray[np.float32]
Params = Mapping[str, Mapping[str, Any]]

TEST_BATCH = 3 * kernels.BLOCK
LINE_BYTES = 64
"""A line of the cache: vectors that lie across two take twice as long."""


def fast_image_task(
    train: tuple[npt.ArrayLike, npt.ArrayLike],
    test: tuple[npt.ArrayLike, npt.ArrayLike],
    clients: Sequence[npt.ArrayLike],
    local: Local,
    *,
    network: Network = "cnn",
    size: Size = "small",
    dropout: float = 0.25,
    n_labels: int | None = None,
) -> "FastTask":
    """Return what `image_task` returns for the same arguments, trained by numba.

    It knows network "cnn" and optimizer "sgd", with or without momentum.
    """
    if network != "cnn" or local.optimizer != "sgd":
        raise InvalidInput(
            f'engine "fast" trains network "cnn" with optimizer "sgd", got "{network}" with '
            f'"{local.optimizer}"; engine "jax" trains all'
        )
    settings = {"network": network, "size": size, "dropout": dropout, "n_labels": n_labels}
    task = image_task(train, test, clients, local, **settings)  # type: ignore[arg-type]
    layers, net = _layout(task.x.shape[1:], CNN_CHANNELS[size], DENSE[size], task.n_labels or 0)
    return FastTask(task=task, layers=layers, net=net, dropout=dropout)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FastTask:
    """A Task that trains the CNN of a JaxTask; build one with `fast_image_task`.

    Attributes:
        task: Holds the data and the settings, and starts the model.
        layers: Sizes of the convolutions, and where their numbers are.
        net: The same of the dense layers.
        dropout: Share of the dense layer dropped while training.
    """

    task: JaxTask
    layers: tuple[kernels.Layer, ...]
    net: kernels.Net
    dropout: float
    _rooms: list[kernels.Work] = field(default_factory=list, init=False, repr=False)

    @property
    def n_clients(self) -> int:
        return self.task.n_clients

    @property
    def samples(self) -> IntArray:
        return self.task.samples

    def init(self, seed: int) -> Params:
        return self._named(self._flat(self.task.init(seed)))

    def train(self, params: Params, clients: IntArray, *, t: int, seed: int) -> list[Update]:
        cohort, local = check_cohort(clients, self.n_clients), self.task.local
        models = _aligned(len(cohort), self.net.size)
        models[:] = self._flat(params)
        x, y = _by_rows(self.task.x), np.asarray(self.task.y)
        rate, momentum = np.float32(local.learning_rate), np.float32(local.momentum)

        def train_one(i: int) -> float:
            rows, counts, n, own_seed = self.task._steps(int(cohort[i]), t, seed)
            speed, room = np.zeros(self.net.size if momentum else 0, np.float32), self._room()
            settings = (
                self.layers,
                self.net,
                room,
                own_seed,
                rate,
                momentum,
                np.float32(1 - self.dropout),
            )
            loss: float = kernels.train(models[i], speed, x, y, rows[:n], counts[:n], *settings)
            self._rooms.append(room)
            return loss

        losses = self._side_by_side(train_one, range(len(cohort)))
        return [
            Update(client=client, params=self._named(model), loss=loss, samples=n)
            for client, model, loss, n in zip(
                cohort.tolist(), models, losses, self.samples[cohort].tolist(), strict=True
            )
        ]

    def aggregate(self, params: Params, updates: Sequence[Update], weights: FloatArray) -> Params:
        if not updates:
            return params
        total = _aligned(1, self.net.size)[0]
        for update, weight in zip(updates, weights.astype(np.float32), strict=True):
            kernels.weighted_sum(total, self._flat(update.params), weight)
        return self._named(total)

    def evaluate(self, params: Params) -> Evaluation:
        flat, x, y = self._flat(params), _by_rows(self.task.x_test), np.asarray(self.task.y_test)
        logits = np.empty((len(x), self.net.n_labels), np.float32)
        share = -(-len(x) // (self.task._workers * TEST_BATCH)) * TEST_BATCH

        def evaluate_from(first: int) -> None:
            last, room = min(first + share, len(x)), self._room()
            settings = self.layers, self.net, room, logits
            kernels.outputs(flat, x, first, last, TEST_BATCH, *settings)
            self._rooms.append(room)

        self._side_by_side(evaluate_from, range(0, len(x), share))
        logits -= logits.max(axis=1, keepdims=True)
        losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(y)), y]
        hits = y[logits.argmax(axis=1) == y]
        right, all_of = (np.bincount(labels, minlength=self.net.n_labels) for labels in (hits, y))
        with np.errstate(invalid="ignore"):
            label_accuracy = right / all_of
        loss, accuracy = float(losses.mean(dtype=np.float64)), len(hits) / len(y)
        return Evaluation(loss=loss, accuracy=accuracy, label_accuracy=label_accuracy)

    def _side_by_side(self, work: Callable[[int], Any], items: Iterable[int]) -> list[Any]:
        if self.task._workers == 1:
            return [work(item) for item in items]
        with ThreadPoolExecutor(self.task._workers) as threads:
            return list(threads.map(work, items))

    def _room(self) -> kernels.Work:
        """Return room for a batch that no thread is in; the caller appends it to _rooms again."""
        try:
            return self._rooms.pop()
        except IndexError:
            batch_size = min(self.task.local.batch_size, self.task.holdings.most)
            return _room(self.layers, self.net, max(batch_size, TEST_BATCH))

    def _named(self, flat: Floats) -> Params:
        """Return the layers of a model as views of its numbers."""
        net, named = self.net, {}
        for i, p in enumerate(self.layers, 1):
            kernel = flat[p.kernel : p.bias].reshape(3, 3, p.n_in, p.n_out)
            named[f"conv{i}"] = {"weight": kernel, "bias": flat[p.bias : p.bias + p.n_out]}
        dense = flat[net.dense :].reshape(net.width, net.n_features).T
        named["dense"] = {"weight": dense, "bias": flat[net.dense_bias : net.out]}
        out = flat[net.out : net.out_bias].reshape(net.width, net.n_labels)
        bias = flat[net.out_bias : net.out_bias + net.n_labels]
        return named | {"output": {"weight": out, "bias": bias}}

    def _flat(self, params: Params) -> Floats:
        """Return the numbers of a model in the order of the kernels."""
        flat: Floats = _aligned(1, self.net.size)[0]
        for layer, parts in self._named(flat).items():
            for name, part in parts.items():
                part[...] = params[layer][name]
        return flat


def _layout(
    shape: tuple[int, ...], channels: tuple[int, ...], width: int, n_labels: int
) -> tuple[tuple[kernels.Layer, ...], kernels.Net]:
    """Return where everything stands: in the parameters, in an image's record and in the rest."""
    (high, wide, n_in), layers = shape, []
    kernel = inputs = choice = spectrum = 0
    for i, n_out in enumerate(channels, 1):
        bias, target_row = kernel + 9 * n_in * n_out, wide // 2 * n_out
        target = start = inputs + _whole_vectors((high + 2) * (wide + 2) * n_in)
        if i < len(channels):
            target_row += 2 * n_out
            target += target_row + n_out
        first = -1 if i == 1 else spectrum
        sizes = high, wide, n_in, n_out, kernel, bias, inputs, choice, first, target, target_row
        layers.append(kernels.Layer(*sizes))
        spectrum += 0 if i == 1 else 16 * n_in * n_out
        kernel, inputs, high, wide, n_in = bias + n_out, start, high // 2, wide // 2, n_out
        choice += high * wide * n_out
    n_features, out = high * wide * n_in, kernel + width
    out_bias = out + width * n_labels
    dense = _whole_vectors(out_bias + n_labels)
    record, size = inputs + n_features, dense + n_features * width
    starts = kernel, out, out_bias, dense, size
    net = kernels.Net(record, choice, inputs, n_features, width, n_labels, *starts)
    return tuple(layers), net


def _room(layers: tuple[kernels.Layer, ...], net: kernels.Net, batch_size: int) -> kernels.Work:
    """Return room for a batch and whole blocks of products; what is not used costs no memory."""
    batch = -(-batch_size // kernels.BLOCK) * kernels.BLOCK
    beyond = 16 * kernels.BLOCK * max(p.n_out for p in layers)
    largest = max(batch * net.record + beyond, 2 * net.dense)
    return kernels.Work(*_aligned(len(kernels.Work._fields), largest))


def _by_rows(images: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return images as [image, row, column x channel]."""
    x = np.asarray(images)
    return x.reshape(*x.shape[:2], -1)


def _whole_vectors(n: int) -> int:
    return -(-n // LANES) * LANES


def _aligned(rows: int, columns: int) -> Floats:
    """Return an array whose rows start at lines of the cache."""
    length = _whole_vectors(columns)
    raw = np.zeros(rows * length + LINE_BYTES // 4, np.float32)
    start = -raw.ctypes.data % LINE_BYTES // 4
    aligned: Floats = raw[start : start + rows * length].reshape(rows, length)[:, :columns]
    return aligned
