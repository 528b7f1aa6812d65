"""What a message holds, read without the copies and checks that Flower makes for every look."""

import math
from collections.abc import Mapping
from functools import lru_cache
from io import BytesIO
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from flwr.app import Array

NPY_1_0 = b"\x93NUMPY\x01\x00"
LONGEST_HEADER = 1000
"""Bytes of a header that is remembered; more than any array of numbers needs."""

Kind = TypeVar("Kind")


def held(content: Mapping[str, Any], kind: type[Kind]) -> dict[str, Kind]:
    """Return the records of one kind by their names; `content.metric_records` writes them all."""
    return {name: record for name, record in content.items() if isinstance(record, kind)}


def values(array: Array) -> tuple[tuple[int, ...], npt.NDArray[Any]]:
    """Return an array's shape and its values in any order; raises whatever `array.numpy()` does.

    Most of what that takes is its header, and in a round all have the same ones.
    """
    data = array.data
    if array.stype == "numpy.ndarray" and data[:8] == NPY_1_0:
        end = 10 + int.from_bytes(data[8:10], "little")
        layout = _layout(bytes(data[:end])) if end <= min(len(data), LONGEST_HEADER) else None
        if layout is not None:
            shape, dtype = layout
            n = math.prod(shape)
            if len(data) - end >= n * dtype.itemsize:
                return shape, np.frombuffer(data, dtype, n, end)
    numbers = array.numpy()
    return numbers.shape, numbers


@lru_cache(maxsize=1000)
def _layout(header: bytes) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Return shape and type that a header tells; None for anything out of the ordinary."""
    file = BytesIO(header)
    try:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    except Exception:  # whatever the bytes of a stranger do to numpy, which then says it itself
        return None
    is_plain = not dtype.hasobject and dtype.itemsize > 0 and min(shape, default=1) > 0
    return (shape, dtype) if is_plain else None
