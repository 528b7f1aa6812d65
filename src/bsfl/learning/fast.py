"""Image classification on processors: what `image_task` trains, by loops that numba compiles.

Order of samples, dropout and first parameters are those of JAX, so the results are, too, but for
the last digits of float32. JAX itself is not needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.extras import optional_imports
from bsfl.learning import array_task, networks
from bsfl.learning.networks import LayerShapes, Network, Params, Size
from bsfl.learning.task import Evaluation, Update, check_cohort
from bsfl.random import stream
from bsfl.types import FloatArray, IntArray

with optional_imports():
    from bsfl.learning import fast_kernels as kernels
    from bsfl.learning import winograd
    from bsfl.learning.numba_cache import recovering
    from bsfl.learning.winograd import VECTOR

    empty, train_model = recovering(winograd.empty), recovering(kernels.train)


def fast_image_task(
    *data: Any,
    network: Network = "cnn",
    size: Size = "small",
    dropout: float = 0.25,
    n_labels: int | None = None,
) -> "FastTask":
    """Return what `image_task` returns for the same arguments, trained by numba.

    It knows the small network "cnn" and optimizer "sgd", with or without momentum.
    """
    train, test, clients, local = data
    if (network, size, local.optimizer) != ("cnn", "small", "sgd"):
        raise InvalidInput(
            'engine "fast" trains the small "cnn" with "sgd", got the '
            f'{size} "{network}" with "{local.optimizer}"; engine "jax" trains all'
        )
    known = array_task.image_data(train, test, clients, n_labels)
    shapes = networks.layer_shapes(network, size, known["x"].shape[1:], known["n_labels"])
    return FastTask(shapes=shapes, dropout=networks.check_dropout(dropout), local=local, **known)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FastTask(array_task.ArrayTask):
    """A Task whose clients train in numba; build one with `fast_image_task`.

    Attributes:
        shapes: Of the weights of the layers.
        dropout: Share of the dense layer dropped while training.
    """

    shapes: LayerShapes
    dropout: float

    def init(self, seed: int) -> Params:
        return networks.first_params(self.shapes, stream(seed, "model"))

    def train(self, params: Params, clients: IntArray, *, t: int, seed: int) -> list[Update]:
        cohort, start = check_cohort(clients, self.n_clients), networks.flat(params)
        models = empty(len(cohort), -(-len(start) // VECTOR) * VECTOR)

        def train_one(i: int) -> Update:
            client, model = int(cohort[i]), models[i, : len(start)]
            model[:] = start
            rows, counts, n, own_seed = self._steps(client, t, seed)
            steps, seen = (rows[:n], counts[:n], own_seed), int(counts.sum())
            loss, _ = self._run(model, self.x, self.y, steps, keep=1 - self.dropout, learn=True)
            learned, samples = networks.views(model, self.shapes), seen // self.local.epochs
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
        slope = empty(1, len(model))[0]
        slope[:] = 0
        own, slopes = (networks.layers(networks.views(a, self.shapes)) for a in (model, slope))
        settings = tuple(map(np.float32, (keep, self.local.learning_rate, self.local.momentum)))
        data = x, np.float32(array_task.PIXEL_MAX if x.dtype == np.uint8 else 1), y
        return train_model(model, slope, own, slopes, data, steps, settings, learn)
