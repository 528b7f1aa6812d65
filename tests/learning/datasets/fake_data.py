"""Small files in the layouts of the real data sets, and catalogue entries that describe them."""

import gzip
import hashlib
import io
import tarfile
from dataclasses import replace

import numpy as np

from bsfl.learning.datasets.catalogue import CIFAR10, FASHION_MNIST
from bsfl.learning.datasets.dataset import PARTS, sha256
from bsfl.learning.datasets.official_files import CIFAR_ARCHIVE, CIFAR_FILES, IDX_FILES


def fake_entry(entry, n_train, n_test, **changes):
    """Return an entry for drawn arrays of the same kind, without system folders, and the arrays."""
    rng = np.random.default_rng(0)
    counts = (n_train, n_train, n_test, n_test)
    arrays = {
        part: rng.integers(0, 256, (n, *entry.image_shape), dtype=np.uint8)
        if part.startswith("x")
        else rng.integers(0, 10, n, dtype=np.uint8)
        for part, n in zip(PARTS, counts, strict=True)
    }
    digests = {part: sha256(array) for part, array in arrays.items()}
    settings = {"n_train": n_train, "n_test": n_test, "sha256": digests, "system": (), **changes}
    return replace(entry, **settings), arrays


def fake_fashion(**changes):
    return fake_entry(FASHION_MNIST, 12, 4, **changes)


def fake_cifar(**changes):
    return fake_entry(CIFAR10, 10, 2, **changes)


def write_idx(folder, arrays, *, compress=True):
    folder.mkdir(parents=True, exist_ok=True)
    for part, name in IDX_FILES.items():
        values = arrays[part][..., 0] if part.startswith("x") else arrays[part]
        axes = b"".join(n.to_bytes(4, "big") for n in values.shape)
        content = bytes([0, 0, 8, values.ndim]) + axes + values.tobytes()
        path = folder / (f"{name}.gz" if compress else name)
        path.write_bytes(gzip.compress(content) if compress else content)


def write_cifar(folder, arrays):
    """Write the six binary files, one image at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    x = [*np.split(arrays["x_train"], 5), arrays["x_test"]]
    y = [*np.split(arrays["y_train"], 5), arrays["y_test"]]
    for name, images, labels in zip(CIFAR_FILES, x, y, strict=True):
        records = [
            bytes([label]) + b"".join(image[:, :, c].tobytes() for c in range(3))
            for image, label in zip(images, labels, strict=True)
        ]
        (folder / name).write_bytes(b"".join(records))


def write_cifar_archive(folder, arrays):
    """Write the official archive, and return its md5."""
    write_cifar(folder / "files", arrays)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in CIFAR_FILES:
            tar.add(folder / "files" / name, f"cifar-10-batches-bin/{name}")
    (folder / CIFAR_ARCHIVE).write_bytes(buffer.getvalue())
    return hashlib.md5(buffer.getvalue()).hexdigest()
