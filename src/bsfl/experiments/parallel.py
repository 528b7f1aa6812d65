"""Calls in parallel: processes of this machine, or the workers of a Dask or Ray cluster."""

import re
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from typing import Any

from bsfl.errors import InvalidInput, WorkerDied
from bsfl.extras import optional_module

LOST = "workers died again and again: killed, or out of memory"
"""Why a call on a cluster has no result."""


def in_parallel(
    function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], *, jobs: int
) -> list[Any]:
    """Return the results of many calls in their order; see `unordered_results`."""
    calls = list(calls)
    found = dict(unordered_results(function, calls, jobs=jobs))
    return [found[i] for i in range(len(calls))]


def unordered_results(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], *, jobs: int
) -> Generator[tuple[int, Any], None, None]:
    """Yield the number and the result of each call as soon as it is finished.

    The processes are those of joblib (-1: one per core), or the workers of a cluster inside
    `on_cluster` or joblib.parallel_config. The first exception of a call cancels all others. If
    calls are lost with their worker, WorkerDied is raised after all other results.
    """
    joblib = optional_module("joblib")
    backend = joblib.parallel.get_active_backend()[0]
    if hasattr(backend, "client"):
        yield from _from_dask(backend.client, function, calls)
        return
    if type(backend).__module__.startswith("ray."):
        yield from _from_ray(function, calls)
        return
    numbered = (joblib.delayed(_numbered)(i, function, call) for i, call in enumerate(calls))
    # with larger batches, finished calls would wait for the last one and be lost with it
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
    """Yield as `unordered_results` from a Dask cluster, which repeats the calls of killed workers.

    joblib 1.6 would wait for ever for a call that has killed more workers than Dask allows.
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
        raise WorkerDied(LOST) from lost


def _from_ray(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, Any]]:
    """Yield as `unordered_results` from a Ray cluster, which repeats the calls of killed workers.

    Ray's backend for joblib returns all results at once, so its tasks are used instead.
    """
    ray = optional_module("ray")
    task = ray.remote(function)
    numbers = {task.remote(*call): i for i, call in enumerate(calls)}
    lost = None
    try:
        while numbers:
            [finished], _ = ray.wait(list(numbers))
            number = numbers.pop(finished)
            try:
                result = ray.get(finished)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
                lost = error
                continue
            yield number, result
    finally:
        for unfinished in numbers:
            ray.cancel(unfinished, force=True)
    if lost:
        raise WorkerDied(LOST) from lost


@contextmanager
def on_cluster(address: str | None) -> Iterator[None]:
    """Run calls on the workers of a Dask cluster; None: in processes of this machine.

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
