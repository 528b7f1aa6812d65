"""A folder in memory: what is attacked here is not the disk."""

import tempfile
from pathlib import Path

import pytest

IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def fast_folder():
    """Return a folder whose files need not reach a disk, where there is one."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder:
        yield Path(folder)
