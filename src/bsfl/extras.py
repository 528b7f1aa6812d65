"""Optional dependencies: which extra brings which package."""

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bsfl.errors import InvalidInput, MissingExtra

PACKAGES = {
    "cli": ("typer", "rich", "pydantic"),
    "sim": ("joblib", "jax", "jaxlib", "optax", "pydantic"),
    "fast": ("numba",),
    "plots": ("matplotlib", "plotly"),
    "data": ("pooch", "requests", "urllib3", "platformdirs", "PIL"),
    "flower": ("flwr",),
    "cluster": ("distributed",),
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


def in_parallel(
    function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], *, jobs: int
) -> Any:
    """Return what a function gives for many calls, in processes of joblib; -1: one per core.

    Inside `on_cluster` they are the workers of a cluster.
    """
    joblib = optional_module("joblib")
    return joblib.Parallel(n_jobs=jobs)(joblib.delayed(function)(*call) for call in calls)


def as_they_come(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], *, jobs: int
) -> Iterator[tuple[int, Any]]:
    """Yield the number of each call and what it gave, as soon as it is done, as `in_parallel`."""
    joblib = optional_module("joblib")
    numbered = (joblib.delayed(_numbered)(i, function, call) for i, call in enumerate(calls))
    yield from joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(numbered)


def _numbered(i: int, function: Callable[..., Any], call: tuple[Any, ...]) -> tuple[int, Any]:
    return i, function(*call)


@contextmanager
def on_cluster(address: str | None) -> Iterator[None]:
    """Let the workers of a Dask cluster do what is done in parallel; None: this machine's own.

    Args:
        address: "dask://host:port", the scheduler of a cluster whose workers share the folder of
            the results and have the same bsfl installed.
    """
    if address is None:
        yield
        return
    found = re.fullmatch(r"dask://([^/\s:]+:\d+)", address)
    if not found:
        raise InvalidInput(f"backend must be dask://host:port, got {address!r}")
    joblib, distributed = optional_module("joblib"), optional_module("distributed")
    try:
        client = distributed.Client(f"tcp://{found[1]}", timeout="10s")
    except OSError:
        raise InvalidInput(f"no Dask scheduler answers at {found[1]}") from None
    with client, joblib.parallel_config(backend="dask"):
        yield
