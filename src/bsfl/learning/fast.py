"""Image classification on processors: what `image_task` trains, by loops that numba compiles.

Order of samples, dropout and first parameters are those of JAX, so the results are, too, but for
the last digits of float32.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl.errors import InvalidInput
from bsfl.extras import optional_imports
from bsfl.learning.task import Update, check_cohort
from bsfl.learning.tasks import JaxTask, image_task
from bsfl.records import FloatArray, IntArray

with optional_imports():
    from bsfl.learning import fast_kernels as kernels
    from bsfl.learning.local import PIXEL_MAX, on_every_core

Array = npt.NDArray[Any]
Params = Mapping[str, Mapping[str, Any]]


def fast_image_task(*data: Any, dropout: float = 0.25, **settings: Any) -> "FastTask":
    """Return what `image_task` returns for the same arguments, trained by numba.

    It knows the small network "cnn" and optimizer "sgd", with or without momentum.
    """
    task = image_task(*data, dropout=dropout, **settings)
    network, size = settings.get("network", "cnn"), settings.get("size", "small")
    if (network, size, task.local.optimizer) != ("cnn", "small", "sgd"):
        raise InvalidInput(
            'engine "fast" trains the small "cnn" with "sgd", got the '
            f'{size} "{network}" with "{task.local.optimizer}"; engine "jax" trains all'
        )
    values = {part.name: getattr(task, part.name) for part in fields(task) if part.init}
    return FastTask(**values, dropout=dropout)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FastTask(JaxTask):
    """A JaxTask whose clients train in numba; build one with `fast_image_task`.

    Attributes:
        dropout: Share of the dense layer dropped while training.
    """

    dropout: float

    def train(self, params: Params, clients: IntArray, *, t: int, seed: int) -> list[Update]:
        cohort, start = check_cohort(clients, self.n_clients), _flat(params)
        models = np.empty((len(cohort), len(start)), np.float32)  # one block, few page faults
        x, y = np.asarray(self.x), np.asarray(self.y)
        rates = 1 - self.dropout, self.local.learning_rate, self.local.momentum
        keep, rate, momentum = map(np.float32, rates)
        scale = np.float32(PIXEL_MAX if x.dtype == np.uint8 else 1)

        def train_one(i: int) -> Update:
            rows, counts, n, own_seed = self._steps(int(cohort[i]), t, seed)
            model, slope, samples = models[i], np.zeros_like(start), int(self.samples[cohort[i]])
            model[:] = start
            learned = _views(model, params)
            layers, slopes = _layers(learned), _layers(_views(slope, params))
            steps, settings = (rows[:n], counts[:n], own_seed), (keep, rate, momentum)
            loss = kernels.train(model, slope, layers, slopes, (x, scale, y), steps, settings)
            return Update(client=int(cohort[i]), params=learned, loss=loss, samples=samples)

        return list(on_every_core(train_one, range(len(cohort)), self._workers))

    def aggregate(self, params: Params, updates: Sequence[Update], weights: FloatArray) -> Any:
        pairs = zip(updates, weights.astype(np.float32), strict=True)
        total = sum(_flat(update.params) * weight for update, weight in pairs)
        return _views(total, params) if updates else params


def _layers(params: Params) -> tuple[tuple[Any, Any], ...]:
    """Return weight and bias of each layer, from the first to the last."""
    return tuple((params[k]["weight"], params[k]["bias"]) for k in sorted(params))


def _flat(params: Params) -> Array:
    """Return all numbers of a model in a new array."""
    return np.concatenate([np.ravel(part) for layer in _layers(params) for part in layer])


def _views(flat: Any, like: Params) -> dict[str, dict[str, Array]]:
    """Return the layers of a model as views of its numbers."""
    named: dict[str, dict[str, Array]] = {name: {} for name in sorted(like)}
    end = 0
    for name, layer in named.items():
        for part in ("weight", "bias"):
            first, end = end, end + math.prod(like[name][part].shape)
            layer[part] = flat[first:end].reshape(like[name][part].shape)
    return named
