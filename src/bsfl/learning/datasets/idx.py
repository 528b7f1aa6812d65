"""The official layout of Fashion-MNIST: four IDX files, each compressed or not.

An IDX file of bytes starts with 0, 0, 8 and the number of axes, then the length of every axis as
four big-endian bytes, then the values.
"""

import math
from pathlib import Path

import numpy as np

from bsfl.errors import UnreadableData
from bsfl.learning.datasets.bounded import opened
from bsfl.learning.datasets.dataset import Arrays, ByteArray, Layout, Published

IDX_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
ENDINGS = (".gz", "")
_START = b"\x00\x00\x08"


def read_idx_folder(folder: Path, published: Published) -> Arrays:
    """Return the arrays of the four files; grey images get an axis for their one channel."""
    arrays: Arrays = {}
    for part, name in IDX_FILES.items():
        found = [path for end in ENDINGS if (path := folder / f"{name}{end}").is_file()]
        if not found:
            raise UnreadableData(f"{folder} has neither {name}.gz nor {name}")
        arrays[part] = read_idx(found[0], part, published)
    return arrays


def read_idx(path: Path, part: str, published: Published) -> ByteArray:
    """Return one array from its IDX file, or say what is wrong with it."""
    with opened(path) as file:
        start = file.read(len(_START) + 1)
        if len(start) <= len(_START) or not start.startswith(_START):
            raise UnreadableData(f"{path} is not an IDX file of bytes")
        n_axes = start[-1]
        axes = file.read(4 * n_axes)
        expected = math.prod(published.shape(part))
        content = b""
        if len(axes) == 4 * n_axes:
            shape = tuple(np.frombuffer(axes, ">u4").tolist())
            shape = (*shape, 1) if n_axes == 3 else shape
            published.check(part, np.dtype(np.uint8), shape)
            content = file.read(expected + 1)
        if len(content) != expected:
            header = len(start) + 4 * n_axes
            n_found = len(start) + len(axes) + len(content)
            found = "more" if len(content) > expected else f"{n_found:,}"
            raise UnreadableData(
                f"{path} has the wrong length (expected {header + expected:,} bytes, found {found})"
            )
    return np.frombuffer(content, np.uint8).reshape(shape)


LAYOUT = Layout(
    tuple(f"{name}{end}" for name in IDX_FILES.values() for end in ENDINGS), read_idx_folder
)
