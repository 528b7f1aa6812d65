"""The official layout of Fashion-MNIST: four IDX files, each compressed or not.

An IDX file of bytes starts with 0, 0, 8 and the number of axes, then the length of every axis as
four big-endian bytes, then the values.
"""

import gzip
import zlib
from pathlib import Path

import numpy as np

from bsfl.errors import UnreadableData
from bsfl.learning.datasets.dataset import Arrays, ByteArray, Layout

IDX_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
ENDINGS = (".gz", "")
_GZIP_MAGIC = b"\x1f\x8b"


def read_idx_folder(folder: Path) -> Arrays:
    """Return the arrays of the four files; grey images get an axis for their one channel."""
    arrays: Arrays = {}
    for part, name in IDX_FILES.items():
        found = [path for end in ENDINGS if (path := folder / f"{name}{end}").is_file()]
        if not found:
            raise UnreadableData(f"{folder} has neither {name}.gz nor {name}")
        values = read_idx(found[0])
        arrays[part] = values[..., np.newaxis] if values.ndim == 3 else values
    return arrays


def read_idx(path: Path) -> ByteArray:
    """Return the values of one IDX file, or say what is wrong with it."""
    content = path.read_bytes()
    if content.startswith(_GZIP_MAGIC):  # whatever its name: some servers unpack on the way
        try:
            content = gzip.decompress(content)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UnreadableData(f"{path} cannot be decompressed: {error}") from None
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise UnreadableData(f"{path} is not an IDX file of bytes")
    n_axes = content[3]
    header = 4 + 4 * n_axes
    shape = tuple(
        int.from_bytes(content[at : at + 4], "big") for at in range(4, min(header, len(content)), 4)
    )
    expected = header + int(np.prod(shape, dtype=object))
    if len(content) != expected:
        raise UnreadableData(
            f"{path} has the wrong length (expected {expected:,} bytes, found {len(content):,})"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


LAYOUT = Layout(
    tuple(f"{name}{end}" for name in IDX_FILES.values() for end in ENDINGS), read_idx_folder
)
