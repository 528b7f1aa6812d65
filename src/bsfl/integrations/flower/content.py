"""The content of replies: read without copies, and checked before it is aggregated."""

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from functools import lru_cache
from io import BytesIO
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, FedXgbBagging, FedXgbCyclic

NPY_1_0 = b"\x93NUMPY\x01\x00"
MAX_HEADER = 1000
"""Bytes of a header that is cached; more than any array of numbers needs."""

Kind = TypeVar("Kind")

MAX_SAMPLES = 10**12
"""Largest number of samples that a client may report."""

Key = TypeVar("Key", bound=Hashable)


def records_of(content: Mapping[str, Any], kind: type[Kind]) -> dict[str, Kind]:
    """Return the records of one kind by name; `content.metric_records` would copy them."""
    return {name: record for name, record in content.items() if isinstance(record, kind)}


def values(array: Array) -> tuple[tuple[int, ...], npt.NDArray[Any]]:
    """Return an array's shape and its values in any order; raise what `array.numpy()` raises.

    Most of the time of `array.numpy()` goes into the header, and the headers of a round are equal.
    """
    data = array.data
    if array.stype == "numpy.ndarray" and data[:8] == NPY_1_0:
        end = 10 + int.from_bytes(data[8:10], "little")
        layout = _layout(bytes(data[:end])) if end <= min(len(data), MAX_HEADER) else None
        if layout is not None:
            shape, dtype = layout
            n = math.prod(shape)
            if len(data) - end >= n * dtype.itemsize:
                return shape, np.frombuffer(data, dtype, n, end)
    numbers = array.numpy()
    return numbers.shape, numbers


@lru_cache(maxsize=1000)
def _layout(header: bytes) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Return the shape and the type in a header; None for anything unusual."""
    file = BytesIO(header)
    try:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    except Exception:  # any error that malformed bytes cause in numpy; array.numpy() raises it
        return None
    is_plain = not dtype.hasobject and dtype.itemsize > 0 and min(shape, default=1) > 0
    return (shape, dtype) if is_plain else None


class ContentCheck:
    """Finds replies that would corrupt an aggregation, or end it with an error.

    Strategies that aggregate as Flower's own do need one record of arrays, one of metrics, and a
    weight; a NaN in one reply would be in every later model. For a strategy with its own
    aggregation, only replies that differ from most others are found.

    Attributes:
        weight_key: The metric that weighs replies; None: the strategy has its own aggregation.
    """

    def __init__(self, strategy: Any = None, method: str = "aggregate_train") -> None:
        """Read what a strategy needs.

        Args:
            strategy: The strategy; None: it is not known what is done with replies.
            method: The method of the strategy that gets the replies.
        """
        is_standard = isinstance(strategy, FedAvg) and aggregates_as_flower(type(strategy), method)
        self.weight_key: str | None = strategy.weighted_by_key if is_standard else None
        self._is_train = method == "aggregate_train"
        self._are_arrays = not isinstance(strategy, FedXgbBagging | FedXgbCyclic)
        self._usual: Hashable = None

    def fault(self, reply: Message) -> str | None:
        """Return what is wrong with a reply; None: nothing."""
        if not reply.has_content():
            return "it has no content"
        return None if self.weight_key is None else self._fault(reply.content, self.weight_key)

    def _fault(self, content: RecordDict, weight_key: str) -> str | None:
        records = list(records_of(content, ArrayRecord).values())
        metrics = list(records_of(content, MetricRecord).values())
        if self._is_train and len(records) != 1:
            return f"it has {len(records)} ArrayRecords instead of one"
        if len(metrics) != 1:
            return f"it has {len(metrics)} MetricRecords instead of one"
        weight: Any = metrics[0].get(weight_key)
        if not isinstance(weight, int | float) or not 0 < weight <= MAX_SAMPLES:
            return f"its {weight_key} is {weight!r}"
        is_checked = self._is_train and self._are_arrays
        return self._fault_of(records[0]) if is_checked else None

    @staticmethod
    def _fault_of(arrays: Mapping[str, Any]) -> str | None:
        for name, array in arrays.items():
            try:
                shape, numbers = values(array)
            except Exception as error:  # any error that malformed bytes cause in numpy
                return f"array {name!r} cannot be read: {error}"
            if shape != tuple(array.shape):
                return f"array {name!r} has shape {shape} and claims {tuple(array.shape)}"
            if np.issubdtype(numbers.dtype, np.inexact) and not np.isfinite(numbers).all():
                return f"array {name!r} holds values that are not finite"
        return None

    def outliers(self, replies: Mapping[Key, Message]) -> dict[Key, str]:
        """Return the keys of replies with other records or shapes than most, and the reason.

        Among equally frequent shapes, that of earlier replies is right, or else that of the first
        reply.
        """
        shapes = {key: self._shape(reply.content) for key, reply in replies.items()}
        counts = Counter(shapes.values())
        if not counts:
            return {}
        usual = max(counts, key=lambda shape: (counts[shape], shape == self._usual))
        self._usual = usual
        return {
            key: "its records differ from those of the others"
            for key, shape in shapes.items()
            if shape != usual
        }

    def _shape(self, content: RecordDict) -> Hashable:
        shapes = {
            (record, name, tuple(array.shape) if self._are_arrays else None)
            for record, arrays in records_of(content, ArrayRecord).items()
            for name, array in arrays.items()
            if self._is_train
        }
        metrics = {
            (record, name, len(value) if isinstance(value, list) else None)
            for record, reported in records_of(content, MetricRecord).items()
            for name, value in reported.items()
        }
        return frozenset(shapes), frozenset(metrics)


def aggregates_as_flower(strategy: type, method: str = "aggregate_train") -> bool:
    """Return whether a strategy's aggregation is Flower's own, or calls it in the end."""
    for cls in strategy.__mro__:
        function = vars(cls).get(method)
        if function is None:
            continue
        if cls.__module__.startswith("flwr."):
            return True
        names = getattr(getattr(function, "__code__", None), "co_names", ())
        if not {"super", method} <= set(names):
            return False
    return False


def number(value: Any, low: float, high: float) -> float | None:
    """Return a number within limits as a float; None for anything else.

    >>> number(0.5, 0.0, 1.0), number(float("nan"), 0.0, 1.0), number([1.0], 0.0, 1.0)
    (0.5, None, None)
    """
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if is_number and low <= value <= high else None
