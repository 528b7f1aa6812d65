"""What a data set is: inputs and targets for training and for the test."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl.types import IntArray

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

PARTS = ("x_train", "y_train", "x_test", "y_test")
"""The arrays of a data set, by their names in memory and in files."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Dataset:
    """Data for training and for the test. The arrays are read-only.

    Attributes:
        name: Name in the catalogue, or the file, folder or function of custom data.
        x_train: Images [n, height, width, channels] or vectors [n, features]; pixels are uint8.
        y_train: Labels [n], positions in `labels`, or the numbers of a regression.
        x_test, y_test: The same for the test.
        labels: Names of the labels; None: the targets are numbers.
        client: Number of the client of each sample for training; None: the data names no clients.
        ids: Names of these clients.
    """

    name: str
    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    labels: tuple[str, ...] | None
    client: IntArray | None = None
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for part in PARTS:
            view = getattr(self, part).view()
            view.flags.writeable = False
            object.__setattr__(self, part, view)

    @property
    def n_labels(self) -> int | None:
        return None if self.labels is None else len(self.labels)


def sha256(array: Array) -> str:
    """Return the digest of an array's bytes in C order."""
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).data).hexdigest()
