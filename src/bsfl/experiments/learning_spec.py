"""From the settings in a scenario file to a task: data, their partition, and what is trained."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.experiments.toml_tables import at
from bsfl.learning import Task
from bsfl.learning.datasets import CATALOGUE, Dataset, Entry, OwnData, load_any
from bsfl.learning.datasets.own import is_own
from bsfl.learning.networks import NETWORKS
from bsfl.learning.partition import PARTITIONS, Partition, client_images, make_partition
from bsfl.random import stream
from bsfl.types import FloatArray, IntArray

LINEAR = "linear"
ENGINES = ("jax", "fast")
N_TRAIN, N_TEST, N_FEATURES, NOISE = 2240, 560, 10, 0.1
"""The synthetic regression: points, features, standard deviation of noise."""


class Known(NamedTuple):
    """What is known of the clients from the data that they train on."""

    samples: FloatArray
    quality: FloatArray | None = None
    ids: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSpec:
    """What is trained, on which data, and how.

    Attributes:
        dataset: A name from `bsfl data list`, "linear" for synthetic regression, or custom
            data: an .npz file, a folder of CSV files, "mine.py:function" or an entry point.
        network: "cnn" or "vgg", for images; None: "cnn". Vectors are trained by a linear model.
        size: "small" or "paper", for images.
        dropout: Share of the dense layer dropped while training, for images.
        split: Name of a split and its settings, as `kind` and further keys; without a kind, by
            the data's own clients where it says so, else "iid".
        batch_size, epochs, optimizer, learning_rate, momentum, weighting: How a client trains and
            its weight in the average.
        evaluate_every_s: Virtual seconds between two evaluations; 0: after every round.
        target_accuracy: Accuracy to which time is measured; None: a little less than the lowest
            accuracy that a policy ends with.
        engine: "jax", or "fast" for numba on processors: images, the small "cnn", optimizer "sgd".
    """

    dataset: str
    network: str | None = None
    size: str = "small"
    dropout: float = 0.25
    split: dict[str, Any] = field(default_factory=dict)
    batch_size: int = 32
    epochs: int = 1
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.0
    weighting: str = "samples"
    evaluate_every_s: float = 0.0
    target_accuracy: float | None = None
    engine: str = "jax"

    def __post_init__(self) -> None:
        validation.one_of("engine", self.engine, ENGINES)
        if self.network is not None:
            validation.one_of("network", self.network, NETWORKS)
        validation.at_least("evaluate_every_s", self.evaluate_every_s, 0.0)
        if self.target_accuracy is not None:
            validation.between("target_accuracy", self.target_accuracy, 0.0, 1.0)
        if not isinstance(self.dataset, str):
            raise InvalidInput(f"dataset must be a name or a file, got {self.dataset!r}")
        if self.dataset == LINEAR:
            self._must_fit(None, 2)
        elif not is_own(self.dataset) and isinstance(CATALOGUE.find(self.dataset), Entry):
            self._must_fit(1, 4)
        else:
            data = _data(self.dataset)
            self._must_fit(data.n_labels, data.x_train.ndim)
        PARTITIONS.find(self.kind)

    def _must_fit(self, n_labels: int | None, n_axes: int) -> None:
        """Check the settings that belong to some data alone; images have more than two axes."""
        if n_labels is None and self.target_accuracy is not None:
            raise InvalidInput("target_accuracy belongs to labels; a regression has a loss")
        if n_axes == 2 and (self.engine == "fast" or self.network is not None):
            word = 'engine "fast"' if self.engine == "fast" else f"network {self.network!r}"
            raise InvalidInput(f"{word} is for images; vectors are trained by a linear model")

    @property
    def kind(self) -> str:
        """The name of the split: as given, else by the data's own clients, else iid."""
        return str(self.split.get("kind", "iid" if self._clients() is None else "client"))

    def _clients(self) -> IntArray | None:
        """Return the client of each sample, where the data names them."""
        is_published = self.dataset == LINEAR or self.dataset in CATALOGUE.known
        return None if is_published else getattr(_data(self.dataset), "client", None)

    def partition(self, n_clients: int, seed: int) -> Partition:
        """Return the partition of the samples among the clients, with one seed."""
        settings = {key: value for key, value in self.split.items() if key != "kind"}
        for key in ("label_noise", "quality"):
            if key in settings:
                settings[key] = tuple(settings[key])
        clients = self._clients()
        if clients is not None and "client" in PARTITIONS.settings(self.kind):
            settings.setdefault("client", clients)
        data = None if self.dataset == LINEAR else _data(self.dataset)
        alike = np.zeros(len(data.y_train) if data else N_TRAIN, dtype=np.uint8)
        labels = data.y_train if data and data.n_labels is not None else alike
        with at("[learning.split]"):
            return make_partition(self.kind, labels, n_clients, seed=seed, **settings)

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages that the numbers depend on."""
        return ("jax", "jaxlib", "optax", *(("numba",) if self.engine == "fast" else ()))

    def data(self, n_clients: int, seed: int) -> Known:
        """Return the sizes, quality and names of the clients' data, with one seed."""
        split = self.partition(n_clients, seed)
        ids = None
        if split.chosen is not None:
            names = _data(self.dataset).ids  # type: ignore[union-attr]
            ids = [names[k] for k in split.chosen.tolist()]
        return Known(split.sizes.astype(np.float64), split.quality, ids)

    def task(self, n_clients: int, seed: int, *, workers: int | None = None) -> Task:
        """Return the task with one seed.

        Args:
            n_clients: How many clients hold the data.
            seed: Root of the partition, of synthetic data and of noise in images of low quality.
            workers: Clients that train at the same time; None: one per core.
        """
        from bsfl.learning.array_task import Local

        split = self.partition(n_clients, seed)
        clients = [split.of(k) for k in range(split.n_clients)]
        own = {one.name for one in fields(self)} & {one.name for one in fields(Local)}
        local = Local(workers=workers, **{name: getattr(self, name) for name in own})
        data = linear_data(seed) if self.dataset == LINEAR else _data(self.dataset)
        test = data.x_test, data.y_test
        if data.n_labels is None:
            from bsfl.learning.tasks import linear_task

            noisy = _noisy_targets(data.y_train, split, seed)
            return linear_task((data.x_train, noisy), test, clients, local)
        seen = _as_seen(data, split, seed)
        if data.x_train.ndim == 2:
            from bsfl.learning.tasks import vector_task

            return vector_task(seen, test, clients, local, n_labels=data.n_labels)
        build: Callable[..., Task]
        if self.engine == "fast":
            from bsfl.learning.fast import fast_image_task as build  # which needs no JAX
        else:
            from bsfl.learning.tasks import image_task as build
        return build(
            seen,
            test,
            clients,
            local,
            network=self.network or "cnn",
            size=self.size,
            dropout=self.dropout,
            n_labels=data.n_labels,
        )


def linear_data(seed: int) -> OwnData:
    """Return training and test data of y = w x + noise with standard normal w and x."""
    rng = stream(seed, "linear-data")
    x = rng.normal(size=(N_TRAIN + N_TEST, N_FEATURES))
    y = x @ rng.normal(size=N_FEATURES) + NOISE * rng.normal(size=len(x))
    train, test = slice(N_TRAIN), slice(N_TRAIN, None)
    return OwnData(
        name=LINEAR, x_train=x[train], y_train=y[train], x_test=x[test], y_test=y[test], labels=None
    )


def _noisy_targets(y: FloatArray, split: Partition, seed: int) -> FloatArray:
    """Return targets with noise of standard deviation 1 - q where their client's quality is q."""
    if not np.any(split.quality < 1):
        return y
    _must_not_share(split)
    noise = stream(seed, "target-noise").normal(size=len(split.indices))
    seen = y.copy()
    seen[split.indices] += (1.0 - split.quality[split.owner]) * noise
    return seen


def _as_seen(data: Dataset | OwnData, split: Partition, seed: int) -> tuple[Any, Any]:
    """Return inputs and labels as their clients see them: images are noisy where quality is low."""
    if not np.any(split.quality < 1) and not np.any(split.label_noise > 0):
        return data.x_train, data.y_train
    _must_not_share(split)
    if np.any(split.quality < 1) and data.x_train.dtype != np.uint8:
        raise InvalidInput("quality is for images of bytes (uint8)")
    x, y = data.x_train.copy(), data.y_train.copy()
    y[split.indices] = split.labels
    for client in np.flatnonzero(split.quality < 1).tolist():
        x[split.of(client)] = client_images(split, data.x_train, client, seed=seed)
    return x, y


def _must_not_share(split: Partition) -> None:
    if len(np.unique(split.indices)) < len(split.indices):
        raise InvalidInput("noise needs a split in which no two clients share a sample")


def _data(name: str) -> Dataset | OwnData:
    """Return a data set, which is read again when its file has changed."""
    path = Path(name)
    files = [path, *path.glob("*.csv")] if is_own(name) and os.path.exists(path) else []
    return _read(name, tuple(file.stat().st_mtime_ns for file in files))


@lru_cache(maxsize=2)
def _read(name: str, _: tuple[int, ...]) -> Dataset | OwnData:
    return load_any(name)
