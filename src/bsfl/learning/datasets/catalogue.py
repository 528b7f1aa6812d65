"""The data sets that bsfl knows: what each must be, and the places where it can be."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bsfl._core.registry import Registry
from bsfl.errors import UnreadableData, reason
from bsfl.learning.datasets import official_files
from bsfl.learning.datasets.dataset import PARTS, Arrays, Dataset, sha256
from bsfl.persistence.regular_file import read_arrays

EMBEDDED = Path(__file__).parent / "embedded"
"""Data that is part of the package."""
FASHION_FOLDER = "usr/share/datasets/fashion-mnist"
"""The folder of the Debian package dataset-fashion-mnist, below the root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A published data set.

    Attributes:
        name: Name in the catalogue.
        labels: Names of the classes.
        image_shape: Height, width and channels.
        n_train, n_test: Numbers of images.
        sha256: Digest of the bytes of each decoded array. Compressed files of the same data differ
            from publisher to publisher; the decoded arrays do not.
        licence: Terms of use.
        address: Web folder of the official files; "": the data is part of the package.
        downloads: Files below the address, with their published md5.
        read_official: Returns the arrays of the official files in a folder.
        official_names: Files of which any shows that a folder holds the official files.
        subfolders: Folders to look into below a folder that the user named.
        system: Folders of system packages.
    """

    name: str
    labels: tuple[str, ...]
    image_shape: tuple[int, int, int]
    n_train: int
    n_test: int
    sha256: Mapping[str, str]
    licence: str
    address: str = ""
    downloads: Mapping[str, str] = field(default_factory=dict)
    read_official: Callable[[Path, official_files.Shapes], Arrays] | None = None
    official_names: tuple[str, ...] = ()
    subfolders: tuple[str, ...] = ()
    system: tuple[Path, ...] = ()

    @property
    def file_name(self) -> str:
        """Name of the file that keeps the decoded arrays."""
        return f"{self.name}.npz"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each array."""
        x_train, x_test = ((n, *self.image_shape) for n in (self.n_train, self.n_test))
        shapes = x_train, x_train[:1], x_test, x_test[:1]
        return dict(zip(PARTS, shapes, strict=True))

    @property
    def size_bytes(self) -> int:
        return (self.n_train + self.n_test) * (math.prod(self.image_shape) + 1)

    def folder_in(self, folder: Path) -> Path | None:
        """Return the folder, or the one below it, that has files of the data set."""
        for place in (folder, *(folder / name for name in self.subfolders)):
            if any((place / name).is_file() for name in (self.file_name, *self.official_names)):
                return place
        return None

    def read(self, folder: Path) -> Dataset:
        """Return the data set in a folder or below it, after checking that it is this one."""
        place = self.folder_in(folder)
        if place is None:
            raise UnreadableData(f"{folder} is no folder that holds {self.name}")
        path = place / self.file_name
        arrays: Any
        if path.is_file() or self.read_official is None:
            try:
                arrays = read_arrays(path, PARTS, max_bytes=2 * self.size_bytes)
            except (OSError, ValueError) as error:
                raise UnreadableData(f"{path} cannot be read: {reason(error)}") from None
        else:
            arrays = self.read_official(place, self.shapes)
        for part, shape in self.shapes.items():
            array = arrays.get(part)
            is_alike = array is not None and (array.dtype, array.shape) == (np.uint8, shape)
            if not is_alike or sha256(array) != self.sha256[part]:
                raise UnreadableData(
                    f"{place}: {part} is not the published array, uint8 of shape {shape} with the "
                    f"sha256 {self.sha256[part][:12]}..."
                )
        return Dataset(name=self.name, labels=self.labels, **arrays)


FASHION_MNIST_SMALL = Entry(
    name="fashion-mnist-small",
    labels=(
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    image_shape=(28, 28, 1),
    n_train=6_000,
    n_test=1_000,
    sha256={
        "x_train": "2b17438af55637db62c122a92490b5b4275bed5719a838b5b0486ea2193a98a4",
        "y_train": "f16e201ddc15b401c509545575d23793b230f5735ae378c1ced3a6156cb72251",
        "x_test": "3d7f6d64869a3f2d1afe64ae33ffb9b20670a91b31e3bbf0657e3999ec7b35cf",
        "y_test": "6b25654537ff83dd6c40fe0a122c7778d8219b2a88ff02c36dbdd21152fdb075",
    },
    licence="MIT",
)
FASHION_MNIST = replace(
    FASHION_MNIST_SMALL,
    name="fashion-mnist",
    n_train=60_000,
    n_test=10_000,
    sha256={
        "x_train": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
        "y_train": "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
        "x_test": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
        "y_test": "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    },
    address="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    downloads={
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    read_official=official_files.read_idx_files,
    official_names=tuple(
        f"{name}{end}" for name in official_files.IDX_FILES.values() for end in (".gz", "")
    ),
    subfolders=("fashion-mnist", "FashionMNIST/raw"),
    system=(Path("/", FASHION_FOLDER),),
)
CIFAR10 = Entry(
    name="cifar10",
    labels=(
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    ),
    image_shape=(32, 32, 3),
    n_train=50_000,
    n_test=10_000,
    sha256={
        "x_train": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "y_train": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "x_test": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "y_test": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    },
    licence="none stated",
    address="https://www.cs.toronto.edu/~kriz/",
    downloads={official_files.CIFAR_ARCHIVE: official_files.CIFAR_MD5},
    read_official=official_files.read_cifar_files,
    official_names=(official_files.CIFAR_ARCHIVE, *official_files.CIFAR_FILES),
    subfolders=("cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"),
)

CATALOGUE: Registry[Any] = Registry(
    "data set",
    {entry.name: entry for entry in (FASHION_MNIST_SMALL, FASHION_MNIST, CIFAR10)},
    group="bsfl.datasets",
)
"""Data sets by name; a custom one is a function that returns arrays as in `own`."""
