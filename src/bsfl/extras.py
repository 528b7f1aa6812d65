"""Optional dependencies: which extra brings which package."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bsfl.errors import MissingExtra

EXTRA_OF = {
    "typer": "cli",
    "rich": "cli",
    "joblib": "sim",
    "jax": "sim",
    "jaxlib": "sim",
    "optax": "sim",
    "numba": "fast",
    "matplotlib": "plots",
    "plotly": "plots",
    "pooch": "data",
    "requests": "data",
    "platformdirs": "data",
    "PIL": "data",
    "flwr": "flower",
}


@contextmanager
def optional_imports() -> Iterator[None]:
    """Turn a missing optional package into an error that holds the pip line."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        extra = EXTRA_OF[package]
        raise MissingExtra(
            f"this needs {package}, which is not installed; run: pip install 'bsfl[{extra}]'"
        ) from None


def optional_module(name: str) -> Any:
    """Return an optional package that is needed only now."""
    with optional_imports():
        return importlib.import_module(name)
