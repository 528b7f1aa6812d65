"""Settings shared by all tests."""

import importlib.util
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("PJRT_NPROC", "1")  # as in runs: whole and cut ones are compared bit by bit
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", "")  # tests leave nothing in the user's cache

collect_ignore_glob = ["*conftest.py"]  # no doctests in them, and all have one name

settings.register_profile(
    "bsfl", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("bsfl")


@pytest.fixture(scope="session")
def load_example():
    """Return a function that imports a file of examples/ by its name."""

    def load(name):
        path = Path(__file__).parents[1] / "examples" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def fast_folder():
    """Return a folder in memory, where there is one: what is attacked there is not the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)
