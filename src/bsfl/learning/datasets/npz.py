"""Our own layout: NAME.npz, the decoded arrays by name."""

import os
import tempfile
import zipfile
import zlib
from pathlib import Path

import numpy as np

from bsfl.errors import UnreadableData
from bsfl.learning.datasets.dataset import PARTS, Arrays, Dataset


def read_npz(path: Path) -> Arrays:
    """Return the arrays of a data set, or say what is wrong with the file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            return {part: content[part] for part in PARTS if part in content}
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, TypeError, AttributeError) as e:
        raise UnreadableData(f"{path} is not a whole .npz file ({str(e) or 'it is empty'})") from e


def write_npz(path: Path, dataset: Dataset) -> None:
    """Give the file at `path` the arrays of a data set in one step.

    The bytes go to a temporary file of its own beside it, which then takes the name: a reader
    sees the old file or the new one, and several processes may write at once.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **{part: getattr(dataset, part) for part in PARTS})
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
