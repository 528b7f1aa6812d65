"""Timing shared by the benchmarks: medians, and ratios taken in one run."""

import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path


def seconds(work: Callable[[], object], repeats: int = 7) -> float:
    """Return the median time of one call."""
    return statistics.median(_once(work) for _ in range(repeats))


def ratio(work: Callable[[], object], unit: Callable[[], object], repeats: int = 9) -> float:
    """Return how many times longer `work` takes than `unit`, measured in turns.

    A neighbour on a shared machine slows both alike, so the median of the pairwise ratios is far
    steadier than either time.
    """
    work(), unit()
    return statistics.median(_once(work) / _once(unit) for _ in range(repeats))


def machine() -> str:
    """Return the processor and the versions that matter, for the head of a table."""
    import numpy as np

    info = Path("/proc/cpuinfo")
    names = [x for x in info.read_text().splitlines() if "model name" in x] if info.exists() else []
    name = names[0].partition(":")[2].strip() if names else platform.processor()
    cores = f"{len(names)} cores" if names else platform.machine()
    return f"{name}, {cores}, Python {platform.python_version()}, numpy {np.__version__}"


def _once(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
