"""Optional dependencies: which extra brings which package."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bsfl.errors import MissingExtra

PACKAGES = {
    "cli": ("typer", "rich"),
    "sim": ("joblib", "jax", "jaxlib", "optax"),
    "plots": ("matplotlib", "plotly"),
    "data": ("pooch", "requests", "platformdirs", "PIL"),
    "flower": ("flwr",),
}
EXTRA_OF = {package: extra for extra, packages in PACKAGES.items() for package in packages}


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
