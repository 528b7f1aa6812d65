"""The tables [learning...] of a scenario: data, their partition, and what is trained."""

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import Tag, ValidationInfo, model_validator

from bsfl import validation
from bsfl._core.registry import Registry, check_kind, is_reference
from bsfl.errors import InvalidInput
from bsfl.experiments.parts import Given, Named, Part, at, by_key, check_files, is_opened, rule
from bsfl.learning import Task
from bsfl.learning.array_task import Local, Optimizer
from bsfl.learning.datasets import CATALOGUE, Dataset, Entry, load_dataset
from bsfl.learning.datasets.own import is_own
from bsfl.learning.partition import PARTITIONS, Partition, client_images, make_partition
from bsfl.random import stream
from bsfl.types import FloatArray, IntArray

LINEAR = "linear"
N_TRAIN, N_TEST, N_FEATURES, NOISE = 2240, 560, 10, 0.1
"""The synthetic regression: points, features, standard deviation of noise."""
TASKS: Registry[Callable[..., Task]] = Registry(
    "task", {}, group="bsfl.tasks", given=("n_clients", "rng")
)
"""Tasks by name: functions or classes (n_clients, rng, settings), all of them custom."""
TASK_METHODS = ("n_clients", "samples", "init", "train", "aggregate", "evaluate")

Range = Annotated[tuple[float, float], rule(validation.span)]


Names = Callable[[], Sequence[str] | None]
"""Returns the names of the clients; None: they have none."""


def unnamed() -> None:
    """Return None: clients without names."""


class Known(NamedTuple):
    """What is known of the clients from the data that they train on."""

    samples: FloatArray
    quality: FloatArray | None = None
    ids: Sequence[str] | None = None


class Trained(Part):
    """Keys of everything that is trained.

    Attributes:
        weighting: How the average weighs clients: by "samples", "equal" or "fedau".
        evaluate_every_s: Virtual seconds between two evaluations; 0: after every round.
        target_accuracy: Accuracy to which time is measured; None: a little less than the lowest
            accuracy that a policy ends with.
    """

    weighting: Literal["samples", "equal", "fedau"] = "samples"
    evaluate_every_s: Annotated[float, rule(validation.at_least, 0.0)] = 0.0
    target_accuracy: Annotated[float, rule(validation.between, 0.0, 1.0)] | None = None

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages that the numbers depend on; unknown for a custom task."""
        return ()


class Partitioned(Named):
    """How samples are partitioned among clients; further keys are settings of the kind.

    Attributes:
        kind: Name of a partition; None: by the data's own clients where it has them, else "iid".
        label_noise: Range of the share of a client's labels that are wrong.
        quality: Range of the quality of a client's images.
    """

    registry = PARTITIONS
    kind: str | None = None
    label_noise: Range = (0.0, 0.0)
    quality: Range = (1.0, 1.0)


class Learning(Trained):
    """What is trained, on which data, and how.

    Attributes:
        dataset: A name from `bsfl data list`, "linear" for synthetic regression, or custom
            data: an .npz file, a folder of CSV files, "mine.py:function" or an entry point.
        network, size, dropout: Of models of images; vectors are trained by a linear model.
        batch_size, epochs, optimizer, learning_rate, momentum: How a client trains.
        engine: "jax", or "fast" for numba on processors: images, the small "cnn", optimizer "sgd".
    """

    dataset: str
    network: Literal["cnn", "vgg"] | None = None
    size: Literal["small", "paper"] = "small"
    dropout: Annotated[float, rule(validation.finite)] = 0.25
    partition: Partitioned = Partitioned()
    batch_size: Annotated[int, rule(validation.natural)] = 32
    epochs: Annotated[int, rule(validation.natural)] = 1
    optimizer: Optimizer = "sgd"
    learning_rate: Annotated[float, rule(validation.positive)] = 0.1
    momentum: Annotated[float, rule(validation.finite)] = 0.0
    engine: Literal["jax", "fast"] = "jax"

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        if not is_opened(info):
            self.local()
            check_files(self.dataset)
            if not is_reference(self.dataset):
                self._check_data()
        return self

    def local(self, workers: int | None = None) -> Local:
        """Return how a client trains."""
        keys = ("batch_size", "epochs", "optimizer", "learning_rate", "momentum")
        return Local(workers=workers, **{key: getattr(self, key) for key in keys})

    def _check_data(self) -> None:
        """Check the keys that belong to some data alone."""
        has_labels, is_vectors = True, False  # published data need not be there yet
        if not self._is_published:
            data = self._data()
            has_labels, is_vectors = data.n_labels is not None, data.x_train.ndim == 2
        if not has_labels and self.target_accuracy is not None:
            raise InvalidInput("target_accuracy belongs to labels; a regression has a loss")
        if is_vectors and (self.engine == "fast" or self.network is not None):
            word = 'engine "fast"' if self.engine == "fast" else f"network {self.network!r}"
            raise InvalidInput(f"{word} is for images; vectors are trained by a linear model")
        with at("[learning.partition]"):
            self.partition.check_settings(self.partition_kind)

    @property
    def is_custom(self) -> bool:
        """Whether making the task executes a file of the user's own."""
        return is_reference(self.dataset) or self.partition.is_custom

    @property
    def packages(self) -> tuple[str, ...]:
        return ("jax", "jaxlib", "optax", *(("numba",) if self.engine == "fast" else ()))

    @property
    def partition_kind(self) -> str:
        """The name of the partition: as given, else by the data's own clients, else iid."""
        return self.partition.kind or ("iid" if self._clients() is None else "client")

    @property
    def _is_published(self) -> bool:
        """Whether the data is that of the catalogue: images with labels, without clients."""
        is_named = self.dataset != LINEAR and not is_own(self.dataset)
        return is_named and isinstance(CATALOGUE.find(self.dataset), Entry)

    def _data(self, seed: int = 0) -> Dataset:
        """Return the data, read again when its file has changed; the seed is of synthetic data."""
        if self.dataset == LINEAR:
            return linear_data(seed)
        path = Path(self.dataset)
        is_there = is_own(self.dataset) and os.path.exists(path)
        files = [path, *path.glob("*.csv")] if is_there else []
        return _read(self.dataset, tuple(file.stat().st_mtime_ns for file in files))

    def _clients(self) -> IntArray | None:
        """Return the client of each sample, where the data names them."""
        return None if self._is_published else self._data().client

    def n_recorded(self) -> int | None:
        """Return how many clients the data has; None: it names none, or its file must run."""
        clients = None if is_reference(self.dataset) else self._clients()
        return None if clients is None else len(np.unique(clients))

    def make_partition(self, n_clients: int, seed: int) -> Partition:
        """Return the partition of the samples among the clients, with one seed."""
        table, kind = self.partition, self.partition_kind
        settings = table.settings
        clients = self._clients()
        if clients is not None and "client" in PARTITIONS.settings(kind):
            settings.setdefault("client", clients)
        data = self._data()
        alike = np.zeros(len(data.y_train), dtype=np.uint8)
        labels = alike if data.n_labels is None else data.y_train
        noise: Any = {"label_noise": table.label_noise, "quality": table.quality}
        with at("[learning.partition]"):
            return make_partition(kind, labels, n_clients, seed=seed, **noise, **settings)

    def client_data(self, n_clients: int, seed: int, *, names: Names = unnamed) -> Known:
        """Return the sizes, quality and names of the clients' data, with one seed."""
        split, ids = self.make_partition(n_clients, seed), None
        if split.chosen is not None:
            ids = [self._data().ids[k] for k in split.chosen.tolist()]
        return Known(split.sizes.astype(np.float64), split.quality, ids)

    def make_task(
        self, n_clients: int, seed: int, *, workers: int | None = None, names: Names = unnamed
    ) -> Task:
        """Return the task with one seed.

        Args:
            n_clients: How many clients hold the data.
            seed: Root of the partition, of synthetic data and of noise in images of low quality.
            workers: Clients that train at the same time; None: one per core.
            names: Ignored: the data names its clients itself.
        """
        self._check_data()
        split = self.make_partition(n_clients, seed)
        clients = [split.of(k) for k in range(split.n_clients)]
        local = self.local(workers)
        data = self._data(seed)
        seen, test = _as_seen(data, split, seed), (data.x_test, data.y_test)
        if data.n_labels is None:
            from bsfl.learning.tasks import linear_task

            return linear_task(seen, test, clients, local)
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


class OwnTask(Trained):
    """A custom task, which says how much data its clients hold and may name them.

    A function or class that makes tasks gets the names of the clients, in their order, if it has a
    parameter `ids`. A task may have an attribute `ids`; clients with names are then put in its
    order.
    """

    def _make(self, n_clients: int, seed: int, names: Names) -> Any:
        raise NotImplementedError

    def make_task(
        self, n_clients: int, seed: int, *, workers: int | None = None, names: Names = unnamed
    ) -> Task:
        """Return the task with one seed.

        Args:
            n_clients: How many clients hold the data.
            seed: Root of the task's randomness.
            workers: Ignored: a custom task says itself how it trains.
            names: Returns the names of the clients; None: they have none.
        """
        task = self._make(n_clients, seed, names)
        check_kind("a task", task, TASK_METHODS)
        if task.n_clients != n_clients:
            raise InvalidInput(f"the task must have the {n_clients} clients, got {task.n_clients}")
        validation.numbers("samples of a task", task.samples)
        ids = getattr(task, "ids", None)
        if ids is not None and (len(ids) != n_clients or len(set(ids)) != n_clients):
            raise InvalidInput(
                f"ids of a task must be {n_clients} different names, got {len(ids)} names, "
                f"{len(set(ids))} of them different"
            )
        return task  # type: ignore[no-any-return]

    def client_data(self, n_clients: int, seed: int, *, names: Names = unnamed) -> Known:
        """Return the samples of every client and, where the task has names, those."""
        task = self.make_task(n_clients, seed, names=names)
        return Known(np.asarray(task.samples, dtype=np.float64), ids=getattr(task, "ids", None))


def _called(make: Any, n_clients: int, seed: int, names: Names, **settings: Any) -> Any:
    """Return the task that a function or class makes, which gets `ids` if it has the parameter."""
    known = {"ids": names()} if "ids" in TASKS.settings(make) else {}
    return TASKS.call(make, n_clients, stream(seed, "task"), **known | settings)


class NamedTask(OwnTask, Named):
    """A task by name: "mine.py:MyTask" or an entry point; further keys are its settings."""

    registry, key = TASKS, "task"
    provided = ("ids",)
    task: str

    def _make(self, n_clients: int, seed: int, names: Names) -> Any:
        return _called(self.task, n_clients, seed, names, **self.settings)


class GivenTask(OwnTask, Given):
    """A task given as an object, or a function (n_clients, rng) that makes one for each seed."""

    def _make(self, n_clients: int, seed: int, names: Names) -> Any:
        task = self.get()
        is_task = hasattr(task, "aggregate") and not isinstance(task, type)
        return task if is_task else _called(task, n_clients, seed, names)


AnyLearning = Annotated[
    Annotated[GivenTask, Tag("<object>")]
    | Annotated[NamedTask, Tag("<task>")]
    | Annotated[Learning, Tag("<dataset>")],
    by_key("object", "task", "dataset"),
]
"""What is trained: a data set, or a task by name or as an object."""


def linear_data(seed: int) -> Dataset:
    """Return training and test data of y = w x + noise with standard normal w and x."""
    rng = stream(seed, "linear-data")
    x = rng.normal(size=(N_TRAIN + N_TEST, N_FEATURES))
    y = x @ rng.normal(size=N_FEATURES) + NOISE * rng.normal(size=len(x))
    train, test = slice(N_TRAIN), slice(N_TRAIN, None)
    return Dataset(
        name=LINEAR, x_train=x[train], y_train=y[train], x_test=x[test], y_test=y[test], labels=None
    )


def _as_seen(data: Dataset, split: Partition, seed: int) -> tuple[Any, Any]:
    """Return inputs and targets as their clients see them: noisy where quality is q < 1.

    The noise of a regression has standard deviation 1 - q, that of images as in `client_images`.
    """
    x, y, is_noisy = data.x_train, data.y_train, split.quality < 1
    if not is_noisy.any() and not np.any(split.label_noise > 0):
        return x, y
    if len(np.unique(split.indices)) < len(split.indices):
        raise InvalidInput("noise needs a partition in which no two clients share a sample")
    y = y.copy()
    if data.n_labels is None:
        noise = stream(seed, "target-noise").normal(size=len(split.indices))
        y[split.indices] += (1.0 - split.quality[split.owner]) * noise
        return x, y
    if is_noisy.any() and x.dtype != np.uint8:
        raise InvalidInput("quality is for images of bytes (uint8)")
    y[split.indices] = split.labels
    x = x.copy()
    for client in np.flatnonzero(is_noisy).tolist():
        x[split.of(client)] = client_images(split, data.x_train, client, seed=seed)
    return x, y


@lru_cache(maxsize=2)
def _read(name: str, _: tuple[int, ...]) -> Dataset:
    return load_dataset(name)
