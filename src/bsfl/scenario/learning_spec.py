"""From the settings in a scenario file to a task: data, how it is dealt, and what is trained."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.fleet.split import SPLITS, Split, client_images, make_split
from bsfl.learning import Task
from bsfl.learning.datasets import CATALOGUE, Dataset, load_dataset
from bsfl.randomness import stream
from bsfl.records import FloatArray

LINEAR = "linear"
ENGINES = ("jax", "fast")
N_TRAIN, N_TEST, N_FEATURES, NOISE = 2240, 560, 10, 0.1
"""The synthetic regression: points, features, standard deviation of noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSpec:
    """What is trained, on whose data, and how.

    Attributes:
        dataset: A name from `bsfl data list`, or "linear" for synthetic regression.
        network: "cnn" or "vgg", for images.
        size: "small" or "paper", for images.
        dropout: Share of the dense layer dropped while training, for images.
        split: Name of a split and its settings, as `kind` and further keys.
        batch_size, epochs, optimizer, learning_rate, momentum, weighting: How a client trains and
            what it weighs in the average.
        evaluate_every_s: Virtual seconds between two evaluations; 0: after every round.
        target_accuracy: Accuracy to which time is measured; None: a little less than the worst
            policy ends with.
        engine: "jax", or "fast" for numba on processors: images, the small "cnn", optimizer "sgd".
    """

    dataset: str
    network: str = "cnn"
    size: str = "small"
    dropout: float = 0.25
    split: dict[str, Any] = field(default_factory=lambda: {"kind": "iid"})
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
        checks.one_of("dataset", self.dataset, (*CATALOGUE, LINEAR))
        checks.one_of("engine", self.engine, ENGINES)
        if self.engine == "fast" and self.dataset == LINEAR:
            raise InvalidInput('engine "fast" trains images; a regression needs engine "jax"')
        SPLITS.find(self.split.get("kind", ""))
        checks.at_least("evaluate_every_s", self.evaluate_every_s, 0.0)
        if self.target_accuracy is not None:
            if self.dataset == LINEAR:
                raise InvalidInput("target_accuracy belongs to images; a regression has a loss")
            checks.between("target_accuracy", self.target_accuracy, 0.0, 1.0)

    def deal(self, n_clients: int, seed: int) -> Split:
        """Return who holds which samples in one world."""
        settings = {key: value for key, value in self.split.items() if key != "kind"}
        for key in ("label_noise", "quality"):
            if key in settings:
                settings[key] = tuple(settings[key])
        alike = np.zeros(N_TRAIN, dtype=np.uint8)
        labels = alike if self.dataset == LINEAR else _data(self.dataset).y_train
        return make_split(self.split["kind"], labels, n_clients, seed=seed, **settings)

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages that the numbers depend on."""
        return ("jax", "jaxlib", "optax", *(("numba",) if self.engine == "fast" else ()))

    def data(self, n_clients: int, seed: int) -> tuple[FloatArray, FloatArray]:
        """Return how many samples every client of one world holds, and of which quality."""
        split = self.deal(n_clients, seed)
        return split.sizes.astype(np.float64), split.quality

    def task(self, n_clients: int, seed: int, *, workers: int | None = None) -> Task:
        """Return the task of one world.

        Args:
            n_clients: Who hold the data.
            seed: Deals it, and draws synthetic data and the noise in images of low quality.
            workers: Clients that train at the same time; None: one per core.
        """
        from bsfl.learning.array_task import Local

        split = self.deal(n_clients, seed)
        clients = [split.of(k) for k in range(split.n_clients)]
        own = {one.name for one in fields(self)} & {one.name for one in fields(Local)}
        local = Local(workers=workers, **{name: getattr(self, name) for name in own})
        if self.dataset == LINEAR:
            from bsfl.learning.tasks import linear_task

            (x, y), test = linear_data(seed)
            return linear_task((x, _noisy_targets(y, split, seed)), test, clients, local)
        data = _data(self.dataset)
        x, y = _as_seen(data, split, seed)
        build: Callable[..., Task]
        if self.engine == "fast":
            from bsfl.learning.fast import fast_image_task as build  # which needs no JAX
        else:
            from bsfl.learning.tasks import image_task as build
        return build(
            (x, y),
            (data.x_test, data.y_test),
            clients,
            local,
            network=self.network,
            size=self.size,
            dropout=self.dropout,
            n_labels=data.n_labels,
        )


Pairs = tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]


def linear_data(seed: int) -> Pairs:
    """Return training and test data of y = w x + noise with standard normal w and x."""
    rng = stream(seed, "linear-data")
    x = rng.normal(size=(N_TRAIN + N_TEST, N_FEATURES))
    y = x @ rng.normal(size=N_FEATURES) + NOISE * rng.normal(size=len(x))
    return (x[:N_TRAIN], y[:N_TRAIN]), (x[N_TRAIN:], y[N_TRAIN:])


def _noisy_targets(y: FloatArray, split: Split, seed: int) -> FloatArray:
    """Return targets with noise of standard deviation 1 - q where their holder's quality is q."""
    if not np.any(split.quality < 1):
        return y
    _must_not_share(split)
    noise = stream(seed, "target-noise").normal(size=len(split.indices))
    seen = y.copy()
    seen[split.indices] += (1.0 - split.quality[split.owner]) * noise
    return seen


def _as_seen(data: Dataset, split: Split, seed: int) -> tuple[Any, Any]:
    """Return images and labels as their holders see them: noisy where quality is low."""
    if not np.any(split.quality < 1) and not np.any(split.label_noise > 0):
        return data.x_train, data.y_train
    _must_not_share(split)
    x, y = data.x_train.copy(), data.y_train.copy()
    y[split.indices] = split.labels
    for client in np.flatnonzero(split.quality < 1).tolist():
        x[split.of(client)] = client_images(split, data.x_train, client, seed=seed)
    return x, y


def _must_not_share(split: Split) -> None:
    if len(np.unique(split.indices)) < len(split.indices):
        raise InvalidInput("noise needs a split in which no two clients share a sample")


@lru_cache(maxsize=2)
def _data(name: str) -> Dataset:
    return load_dataset(name)
