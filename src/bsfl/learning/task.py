"""What the simulator asks of a model: start, train a cohort, aggregate, evaluate.

One round of federated averaging is

    params = task.init(seed)
    updates = task.train(params, cohort, t=t, seed=seed)
    params = task.aggregate(params, updates, shares([update.samples for update in updates]))
    task.evaluate(params)

`params` may be anything (a pytree, a state dict, a list of arrays), as only the task reads it. A
task holds the data of all clients, and a client is a number from 0 to n_clients - 1. A task may
have an attribute `ids`, the names of its clients in this order: simulated clients that have names
are then matched by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.types import FloatArray, IntArray

Params = Any
"""The parameters of a model, in a form that the task chooses."""

Weighting = Literal["samples", "equal"]
WEIGHTINGS: tuple[Weighting, ...] = get_args(Weighting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What one client learned.

    Attributes:
        client: Its number.
        params: Its own model.
        loss: Mean loss over the samples that it trained on, each before its step.
        samples: Number of samples that it holds.
    """

    client: int
    params: Params
    loss: float
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How good a model is on the test data.

    Attributes:
        loss: Mean loss.
        accuracy: Share of right answers; None where there are no labels.
        label_accuracy: The same for each label, nan for a label that the test data do not have.
    """

    loss: float
    accuracy: float | None = None
    label_accuracy: FloatArray | None = None

    @property
    def worst_label_accuracy(self) -> float | None:
        """The lowest accuracy among the labels."""
        return None if self.label_accuracy is None else float(np.nanmin(self.label_accuracy))


class Task(Protocol):
    """A model, the data of all clients and the test data.

    Equal arguments give equal results on one machine. No method changes its arguments, and what a
    client learns depends on (params, client, t, seed) alone, never on who else is in the cohort.
    """

    @property
    def n_clients(self) -> int:
        """K, the number of clients that hold data."""

    @property
    def samples(self) -> IntArray:
        """The number of samples that each client holds."""

    def init(self, seed: int) -> Params:
        """Return the parameters of an untrained model."""

    def train(self, params: Params, clients: IntArray, *, t: int, seed: int) -> Sequence[Update]:
        """Train every client of a cohort from `params`; return what each one learned, in order.

        Args:
            params: The global model, which is not changed.
            clients: The clients that train; distinct.
            t: The round, from 1.
            seed: Root of the shuffling and of the model's own noise, such as dropout.
        """

    def aggregate(self, params: Params, updates: Sequence[Update], weights: FloatArray) -> Params:
        """Return the weighted sum of the clients' models: the next global model.

        Args:
            params: The global model they started from; returned itself if there are no updates.
            updates: What the clients learned.
            weights: Weight of each update; their sum is 1.
        """

    def evaluate(self, params: Params) -> Evaluation:
        """Return how good a model is on the test data."""


def shares(samples: npt.ArrayLike, weighting: Weighting = "samples") -> FloatArray:
    """Return each client's share in the average: n_k / sum n ("samples") or 1 / m ("equal").

    >>> shares([1, 3]), shares([1, 3], "equal")
    (array([0.25, 0.75]), array([0.5, 0.5]))
    """
    validation.one_of("weighting", weighting, WEIGHTINGS)
    counts = np.asarray(samples, dtype=np.float64)
    weight = counts if weighting == "samples" else np.ones(len(counts))
    return np.asarray(weight / weight.sum())


def check_cohort(clients: npt.ArrayLike, n_clients: int) -> IntArray:
    """Return a cohort as an array of distinct clients of the task."""
    cohort = np.asarray(clients)
    if cohort.ndim != 1 or (len(cohort) and not np.issubdtype(cohort.dtype, np.integer)):
        raise InvalidInput(f"clients must be a list of whole numbers, got {clients!r}")
    if outside := [int(k) for k in cohort if not 0 <= k < n_clients]:
        raise InvalidInput(f"clients must be between 0 and {n_clients - 1}, got {outside[0]}")
    if len(np.unique(cohort)) < len(cohort):
        raise InvalidInput(f"clients must be distinct, got {cohort.tolist()}")
    return cohort.astype(np.int64)
