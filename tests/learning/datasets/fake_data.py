"""Small files in the layouts of the real data sets, and catalogue entries that describe them."""

import gzip
import io
import json
import tarfile
from dataclasses import replace

import numpy as np
from PIL import Image

from bsfl.learning.datasets import cifar
from bsfl.learning.datasets.catalogue import CIFAR10, FASHION_MNIST
from bsfl.learning.datasets.dataset import PARTS, sha256
from bsfl.learning.datasets.idx import IDX_FILES
from bsfl.learning.datasets.load import obtain
from bsfl.learning.datasets.sources import from_folder

N_BATCHES = 5


def read(entry, folder):
    """Return the data set in a folder."""
    return obtain(entry, [from_folder("folder", folder)]).dataset


def fake_entry(entry, arrays, **changes):
    """Return a catalogue entry that describes the arrays; without sources, unless given."""
    published = replace(
        entry.published,
        n_train=len(arrays["y_train"]),
        n_test=len(arrays["y_test"]),
        sha256={part: sha256(arrays[part]) for part in PARTS},
    )
    return replace(entry, published=published, **{"system": (), "remote": ()} | changes)


def fake_arrays(image_shape, n_train, n_test, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x_train": rng.integers(0, 256, (n_train, *image_shape), dtype=np.uint8),
        "y_train": rng.integers(0, 10, n_train, dtype=np.uint8),
        "x_test": rng.integers(0, 256, (n_test, *image_shape), dtype=np.uint8),
        "y_test": rng.integers(0, 10, n_test, dtype=np.uint8),
    }


def fake_fashion(**changes):
    arrays = fake_arrays((28, 28, 1), 12, 4)
    return fake_entry(FASHION_MNIST, arrays, **changes), arrays


def fake_cifar(**changes):
    arrays = fake_arrays((32, 32, 3), 2 * N_BATCHES, 2)
    return fake_entry(CIFAR10, arrays, **changes), arrays


def write_idx(folder, arrays, *, compress=True):
    folder.mkdir(parents=True, exist_ok=True)
    for part, name in IDX_FILES.items():
        values = arrays[part][..., 0] if part.startswith("x") else arrays[part]
        axes = b"".join(n.to_bytes(4, "big") for n in values.shape)
        content = bytes([0, 0, 8, values.ndim]) + axes + values.tobytes()
        path = folder / (f"{name}.gz" if compress else name)
        path.write_bytes(gzip.compress(content) if compress else content)


def cifar_batches(arrays):
    """Return images and labels of every file, by the file's name without its ending."""
    x, y = np.split(arrays["x_train"], N_BATCHES), np.split(arrays["y_train"], N_BATCHES)
    batches = dict(zip(cifar.TRAIN_BATCHES, zip(x, y, strict=True), strict=True))
    return batches | {cifar.TEST_BATCH: (arrays["x_test"], arrays["y_test"])}


def cifar_binary(arrays):
    """Return the content of the official binary files, written one image at a time."""
    return {
        f"{name}.bin": b"".join(
            bytes([label]) + b"".join(image[:, :, c].tobytes() for c in range(3))
            for image, label in zip(x, y, strict=True)
        )
        for name, (x, y) in cifar_batches(arrays).items()
    }


def cifar_npm(arrays):
    """Return the content of the npm package."""
    files = {}
    for name, (x, _) in cifar_batches(arrays).items():
        buffer = io.BytesIO()
        Image.fromarray(x.reshape(len(x), 1024, 3)).save(buffer, format="PNG")
        files[f"{name}.png"] = buffer.getvalue()
    files["train_lables.json"] = json.dumps(arrays["y_train"].tolist()).encode()
    files["test_lables.json"] = json.dumps(arrays["y_test"].tolist()).encode()
    return files


def write_files(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def write_archive(path, folder, files):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
