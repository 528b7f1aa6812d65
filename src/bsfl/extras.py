"""Optional dependencies: which extra brings which package."""

import importlib
import re
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bsfl.errors import InvalidInput, MissingExtra, WorkerDied

PACKAGES = {
    "cli": ("typer", "rich", "pydantic"),
    "sim": ("joblib", "jax", "jaxlib", "optax", "pydantic", "scipy"),
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
) -> list[Any]:
    """Return what a function gives for many calls, in their order; see `as_they_come`."""
    calls = list(calls)
    found = dict(as_they_come(function, calls, jobs=jobs))
    return [found[i] for i in range(len(calls))]


def as_they_come(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], *, jobs: int
) -> Generator[tuple[int, Any], None, None]:
    """Yield the number of each call and what it gave, as soon as it is done.

    The processes are those of joblib (-1: one per core), or the workers of a cluster inside
    `on_cluster` or joblib.parallel_config. The first error of a call ends all others. Calls that
    are lost with the process that worked on them end in WorkerDied, after everything that could be
    had.
    """
    joblib = optional_module("joblib")
    cluster = getattr(joblib.parallel.get_active_backend()[0], "client", None)
    if cluster is not None:
        yield from _from_dask(cluster, function, calls)
        return
    numbered = (joblib.delayed(_numbered)(i, function, call) for i, call in enumerate(calls))
    # a batch would come back when its last call is done, and be lost as one
    done = joblib.Parallel(n_jobs=jobs, batch_size=1, return_as="generator_unordered")(numbered)
    try:
        for one in done:  # noqa: UP028, as it would be closed where its warning is shown
            yield one
    except BrokenExecutor as error:
        raise WorkerDied("a worker process died: killed, or out of memory") from error
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that calls were not waited for
            done.close()


def _numbered(i: int, function: Callable[..., Any], call: tuple[Any, ...]) -> tuple[int, Any]:
    return i, function(*call)


def _from_dask(
    cluster: Any, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, Any]]:
    """Yield as `as_they_come` from a Dask cluster, which repeats the calls of killed workers.

    joblib 1.6 waits for ever for a call that has killed more workers than Dask allows.
    """
    distributed = optional_module("distributed")
    numbers = {cluster.submit(function, *call, pure=False): i for i, call in enumerate(calls)}
    lost = None
    try:
        for future in distributed.as_completed(list(numbers)):
            number = numbers.pop(future)  # so that workers need not keep the result
            try:
                result = future.result()
            except distributed.KilledWorker as error:
                lost = error
                continue
            yield number, result
    finally:
        cluster.cancel(list(numbers))
    if lost:
        raise WorkerDied("workers died again and again: killed, or out of memory") from lost


@contextmanager
def on_cluster(address: str | None) -> Iterator[None]:
    """Let the workers of a Dask cluster do what is done in parallel; None: this machine's own.

    Args:
        address: "dask://host:port", the scheduler of a cluster whose workers have the same bsfl
            installed, and the files that a scenario names under the same paths.
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
