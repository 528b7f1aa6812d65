"""What a data set is, how a folder holds it, and the proof that it is the published one."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl.errors import InvalidInput, UnreadableData
from bsfl.learning import npy

ByteArray = npt.NDArray[np.uint8]
Arrays = dict[str, ByteArray]

PARTS = ("x_train", "y_train", "x_test", "y_test")
"""The arrays of a data set, by the names they have in memory and in files."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One way in which a folder can hold a data set.

    Attributes:
        names: Files, below the folder, of which any shows that the data set is there.
        read: Returns the arrays in the folder, or says what is wrong. It gets what they must
            be, and makes no room for anything larger.
    """

    names: tuple[str, ...]
    read: Callable[[Path, "Published"], Arrays]

    def present(self, folder: Path) -> bool:
        return any((folder / name).is_file() for name in self.names)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """Labelled images, for training and for test. The arrays cannot be written to.

    Attributes:
        name: Name in the catalogue, or a user's own.
        x_train: uint8 [n, height, width, channels].
        y_train: uint8 [n], positions in `labels`.
        x_test, y_test: As for training.
        labels: What the classes are called.
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
        for x, y in (("x_train", "y_train"), ("x_test", "y_test")):
            n_images, n_classes = len(getattr(self, x)), len(getattr(self, y))
            if n_images != n_classes:
                raise InvalidInput(f"{self.name}: {x} has {n_images} images, {y} {n_classes}")
            top = getattr(self, y).max(initial=0)
            if n_images == 0 or top >= len(self.labels):
                raise InvalidInput(
                    f"{self.name}: {y} must hold positions in the {len(self.labels)} labels, "
                    f"got {top if n_images else 'nothing'}"
                )
        if self.x_train.shape[1:] != self.x_test.shape[1:]:
            raise InvalidInput(
                f"{self.name}: images for training and for test must have one shape, "
                f"got {self.x_train.shape[1:]} and {self.x_test.shape[1:]}"
            )

    @property
    def image_shape(self) -> tuple[int, ...]:
        return self.x_train.shape[1:]

    @property
    def n_labels(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What is known of a published data set before any of it is here.

    Attributes:
        name: Name in the catalogue.
        labels: What the classes are called.
        image_shape: Height, width and channels.
        n_train: Images for training.
        n_test: Images for test.
        sha256: Digest of the bytes of every decoded array. Compressed files of the same data
            differ from publisher to publisher; the decoded arrays do not.
    """

    name: str
    labels: tuple[str, ...]
    image_shape: tuple[int, int, int]
    n_train: int
    n_test: int
    sha256: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        height, width, channels = self.image_shape
        return (self.n_train + self.n_test) * (height * width * channels + 1)

    def verified(self, arrays: Arrays) -> Dataset:
        """Return the data set that the arrays are, after checking that they are this one."""
        for part in PARTS:
            if part not in arrays:
                raise UnreadableData(f"{part} is missing")
            self.check(part, arrays[part].dtype, arrays[part].shape)
        for part in PARTS:
            digest = sha256(arrays[part])
            if digest != self.sha256[part]:
                raise UnreadableData(
                    f"{part} is not the published one (sha256 {self.sha256[part][:12]}... "
                    f"expected, {digest[:12]}... found)"
                )
        return Dataset(name=self.name, labels=self.labels, **{part: arrays[part] for part in PARTS})

    def check(self, part: str, dtype: "np.dtype[Any]", shape: tuple[int, ...]) -> None:
        """Check type and shape of an array, before there is one perhaps."""
        if dtype != np.uint8 or shape != self.shape(part):
            raise UnreadableData(
                f"{part} must be uint8 of shape {self.shape(part)}, got {dtype} of {shape}"
            )

    def shape(self, part: str) -> tuple[int, ...]:
        n = self.n_train if part.endswith("train") else self.n_test
        return (n, *self.image_shape) if part.startswith("x") else (n,)


def sha256(array: ByteArray) -> str:
    """Return the digest of an array's bytes in C order.

    >>> sha256(np.array([], dtype=np.uint8))[:12]
    'e3b0c44298fc'
    """
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).data).hexdigest()


def read_npz(path: Path, published: Published) -> Arrays:
    """Return the arrays of a file in our own layout, NAME.npz, or say what is wrong with it."""
    arrays: Arrays = {}
    try:
        with path.open("rb") as file, npy.open_npz(file) as content:
            for part in PARTS:
                array = npy.read_member(content, part, partial(published.check, part))
                if array is not None:
                    arrays[part] = array
    except npy.FAULTS as error:
        raise UnreadableData(f"{path} is not a whole .npz file ({error})") from None
    return arrays


def write_npz(path: Path, dataset: Dataset) -> None:
    """Give the file at `path` the arrays of a data set in one step.

    The bytes go to a temporary file of its own beside it, which then takes the name: a reader
    sees the old file or the new one, and several processes may write at once.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **{part: getattr(dataset, part) for part in PARTS})
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
