"""The official files of Fashion-MNIST and CIFAR-10, decoded into arrays of the published shapes.

Fashion-MNIST: four IDX files. An IDX file of bytes starts with 0, 0, 8 and the number of axes, then
the length of every axis as four big-endian bytes, then the values.

CIFAR-10: five binary files for training and one for the test. An image is one byte of label and
3,072 bytes of pixels, all red, then all green, then all blue.
"""

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bsfl.errors import UnreadableData
from bsfl.learning.datasets.dataset import Arrays
from bsfl.persistence.regular_file import open_regular

Shapes = Mapping[str, tuple[int, ...]]
"""The published shape of each array."""

IDX_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
CIFAR_FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
CIFAR_ARCHIVE, CIFAR_FOLDER = "cifar-10-binary.tar.gz", "cifar-10-batches-bin"
CIFAR_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
RECORD_BYTES = 1 + 3 * 32 * 32


def read_idx_files(folder: Path, shapes: Shapes) -> Arrays:
    """Return the arrays of four IDX files, each compressed or not; grey images get one channel."""
    arrays = {}
    for part, name in IDX_FILES.items():
        path = folder / f"{name}.gz"
        axes = np.array(shapes[part][:3], dtype=">u4")
        header = bytes([0, 0, 8, len(axes)]) + axes.tobytes()
        n_bytes = int(np.prod(shapes[part]))
        content = _content(path if path.is_file() else folder / name, len(header) + n_bytes)
        if not content.startswith(header):
            raise UnreadableData(f"{path} must be an IDX file of bytes with axes {axes.tolist()}")
        arrays[part] = np.frombuffer(content, np.uint8, offset=len(header)).reshape(shapes[part])
    return arrays


def read_cifar_files(folder: Path, shapes: Shapes) -> Arrays:
    """Return the arrays of the six binary files, which are in the folder or in its archive."""
    n_images = [shapes["y_train"][0] // 5] * 5 + [shapes["y_test"][0]]
    sizes = dict(zip(CIFAR_FILES, (RECORD_BYTES * n for n in n_images), strict=True))
    if (folder / CIFAR_ARCHIVE).is_file():
        contents = _members(folder / CIFAR_ARCHIVE)
    else:
        contents = {name: _content(folder / name, n_bytes) for name, n_bytes in sizes.items()}
    arrays = {}
    for part, names in (("train", CIFAR_FILES[:5]), ("test", CIFAR_FILES[5:])):
        records = np.frombuffer(b"".join(contents[name] for name in names), np.uint8)
        records = records.reshape(-1, RECORD_BYTES)
        planes = records[:, 1:].reshape(-1, 3, 32, 32)
        arrays[f"x_{part}"] = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
        arrays[f"y_{part}"] = records[:, 0].copy()
    return arrays


def _members(archive: Path) -> dict[str, bytes]:
    """Return the files of the official archive; it is read only if it is the published one."""
    with open_regular(archive) as file:
        digest = hashlib.file_digest(file, "md5").hexdigest()
        if digest != CIFAR_MD5:
            raise UnreadableData(
                f"{archive} is not the published archive (md5 {CIFAR_MD5} expected, {digest} found)"
            )
        file.seek(0)
        with tarfile.open(fileobj=file) as tar:
            members: Any = {name: tar.extractfile(f"{CIFAR_FOLDER}/{name}") for name in CIFAR_FILES}
            return {name: member.read() for name, member in members.items()}


def _content(path: Path, n_bytes: int) -> bytes:
    """Return the bytes of a file, which must be so many; it is decompressed if it is gzip.

    Some servers decompress a file and keep its name, so its first bytes decide.
    """
    with open_regular(path) as raw:
        is_gzip = raw.peek(2)[:2] == b"\x1f\x8b"
        try:
            file = gzip.GzipFile(fileobj=raw) if is_gzip else raw
            content = file.read(n_bytes + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UnreadableData(f"{path} cannot be decompressed: {error}") from None
    if len(content) != n_bytes:
        found = "more" if len(content) > n_bytes else f"{len(content):,}"
        raise UnreadableData(f"{path} must hold {n_bytes:,} bytes, got {found}")
    return content
