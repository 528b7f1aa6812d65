"""What a data set is: four arrays and the names of the labels."""

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bsfl.errors import InvalidInput

ByteArray = npt.NDArray[np.uint8]
Arrays = dict[str, ByteArray]

PARTS = ("x_train", "y_train", "x_test", "y_test")
"""The arrays of a data set, by their names in memory and in files."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """Labelled images, for training and for test. The arrays are read-only.

    Attributes:
        name: Name in the catalogue, or of custom data.
        x_train: uint8 [n, height, width, channels].
        y_train: uint8 [n], positions in `labels`.
        x_test, y_test: The same for the test.
        labels: Names of the classes.
    """

    name: str
    x_train: ByteArray
    y_train: ByteArray
    x_test: ByteArray
    y_test: ByteArray
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        for part in PARTS:
            array = getattr(self, part)
            n_axes = 4 if part.startswith("x") else 1
            if array.dtype != np.uint8 or array.ndim != n_axes:
                raise InvalidInput(
                    f"{self.name}: {part} must be uint8 with {n_axes} axes, "
                    f"got {array.dtype} with {array.ndim}"
                )
            view = array.view()
            view.flags.writeable = False
            object.__setattr__(self, part, view)
        shape = self.x_train.shape[1:]
        for x, y in ((self.x_train, self.y_train), (self.x_test, self.y_test)):
            if not 0 < len(x) == len(y) or x.shape[1:] != shape:
                raise InvalidInput(
                    f"{self.name}: there must be one label for each image of shape {shape}, "
                    f"got {x.shape} with {len(y)} labels"
                )
            if y.max() >= len(self.labels):
                raise InvalidInput(
                    f"{self.name}: labels must be below {len(self.labels)}, got {y.max()}"
                )

    @property
    def n_labels(self) -> int:
        return len(self.labels)


def sha256(array: ByteArray) -> str:
    """Return the digest of an array's bytes in C order.

    >>> sha256(np.array([], dtype=np.uint8))[:12]
    'e3b0c44298fc'
    """
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).data).hexdigest()
