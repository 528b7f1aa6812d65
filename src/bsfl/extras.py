"""Optional dependencies: which extra brings which package."""

import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bsfl.errors import MissingExtra

PACKAGES = {
    "cli": ("typer", "rich", "pydantic"),
    "sim": ("joblib", "jax", "jaxlib", "optax", "pydantic", "scipy"),
    "fast": ("numba",),
    "dashboard": ("jinja2", "markupsafe"),
    "plots": ("matplotlib", "plotly"),
    "data": ("pooch", "requests", "tqdm", "platformdirs"),
    "flower": ("flwr",),
    "cluster": ("distributed", "ray"),
    "metrics": ("prometheus_client",),
}
EXTRA_OF = {package: extra for extra, packages in PACKAGES.items() for package in packages}


def pip_line(extra: str) -> str:
    """Return the command that installs an extra, or "one,other", from the clone if this is one."""
    clone = Path(__file__).parents[2]
    is_clone = (clone / "pyproject.toml").is_file()
    return f"pip install -e '{clone}[{extra}]'" if is_clone else f"pip install 'bsfl[{extra}]'"


def require(*packages: str) -> None:
    """Check that optional packages are there, before one of them is missed in the middle.

    All extras that are missing are named at once.
    """
    if missing := [one for one in packages if find_spec(one) is None]:
        extras = dict.fromkeys(EXTRA_OF[one] for one in missing)
        raise MissingExtra(
            f"this needs {missing[0]}, which is not installed; run: {pip_line(','.join(extras))}"
        )


@contextmanager
def optional_imports() -> Iterator[None]:
    """Turn a missing optional package into an error that holds the pip line."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        raise MissingExtra(
            f"this needs {package}, which is not installed; run: {pip_line(EXTRA_OF[package])}"
        ) from None


def optional_module(name: str) -> Any:
    """Return an optional package that is needed only now."""
    with optional_imports():
        return importlib.import_module(name)


def data_frame(rows: Any, columns: Iterable[str] | None = None) -> Any:
    """Return rows (dicts, or columns by name) as a pandas DataFrame."""
    try:
        pandas = importlib.import_module("pandas")
    except ModuleNotFoundError:
        raise MissingExtra(
            "a data frame needs pandas, which is not installed; run: pip install pandas"
        ) from None
    return pandas.DataFrame(rows, columns=None if columns is None else list(columns))
