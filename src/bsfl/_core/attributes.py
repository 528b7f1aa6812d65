"""Attributes of clients as callers give them: samples, quality and features, checked."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl import validation
from bsfl._core.pool import MIN_SAMPLES
from bsfl.errors import InvalidInput
from bsfl.types import MAX_FEATURE, MAX_FEATURES, FloatArray


def clean_attributes(
    n_clients: int,
    *,
    samples: Sequence[float] | None,
    quality: Sequence[float] | None,
    features: Any,
) -> dict[str, FloatArray]:
    """Return the attributes that were given, checked, as arrays with one row a client."""
    attributes = {}
    if samples is not None:
        attributes["samples"] = _clean_numbers("samples", samples, n_clients, validation.LARGEST)
    if quality is not None:
        attributes["quality"] = _clean_numbers("quality", quality, n_clients, 1.0)
    if features is not None:
        attributes["features"] = _clean_features(features, n_clients)
    return attributes


def _clean_numbers(name: str, values: Sequence[float], n_clients: int, high: float) -> FloatArray:
    numbers = validation.numbers(name, values, min_length=min(n_clients, 1))
    if numbers.shape != (n_clients,):
        raise InvalidInput(
            f"{name} must hold one number for each of the {n_clients} clients, "
            f"got shape {numbers.shape}"
        )
    validation.all_above_0(name, numbers, high)
    if np.any(numbers < MIN_SAMPLES):
        raise InvalidInput(f"{name} must be at least {MIN_SAMPLES:g}, got {numbers.min():g}")
    return numbers


def _clean_features(features: npt.ArrayLike, n_clients: int) -> FloatArray:
    try:
        numbers = np.asarray(features, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"features must be rows of numbers, all as long: {error}") from None
    if n_clients == numbers.size == 0:
        return np.zeros((0, 0))
    if numbers.ndim != 2 or len(numbers) != n_clients or numbers.shape[1] == 0:
        raise InvalidInput(
            f"features must hold one row of numbers for each of the {n_clients} clients, "
            f"got shape {numbers.shape}"
        )
    if numbers.shape[1] > MAX_FEATURES:
        raise InvalidInput(
            f"a client must have at most {MAX_FEATURES:,} features, got {numbers.shape[1]:,}"
        )
    wrong = np.abs(numbers) > MAX_FEATURE
    if wrong.any():
        raise InvalidInput(
            f"features must be numbers of at most {MAX_FEATURE:g}, or NaN where unknown, "
            f"got {numbers[wrong][0]:g}"
        )
    return numbers


def encode_features(
    rows: Sequence[Mapping[str, Any]], columns: list[str]
) -> tuple[FloatArray, list[str]]:
    """Return features given as dicts as numbers, and the names of their columns.

    A number keeps its name; a text becomes a column "name=text" that is 1 for clients with it and
    0 for others (one-hot). A key that a client does not have is NaN.

    Args:
        rows: One dict a client.
        columns: Names of the columns so far; [] at first. Later a new text of a known key is 0 in
            all its columns, and a new key is an error.
    """
    for row in rows:
        if not isinstance(row, Mapping):
            raise InvalidInput(
                f"features must be dicts for all clients, got {validation.short(row)}"
            )
        if odd := [key for key in row if "=" in str(key)]:
            raise InvalidInput(
                f"the name of a feature must not hold '=', got {validation.short(odd[0])}"
            )
    if not columns:
        pairs = [pair for row in rows for pair in row.items()]
        columns = sorted({f"{k}={x}" if isinstance(x, str) else str(k) for k, x in pairs})
    places: dict[tuple[str, bool], list[int]] = {}  # of each key, with texts and with numbers
    for j, name in enumerate(columns):
        key, equals, _ = name.partition("=")
        places.setdefault((key, bool(equals)), []).append(j)
    keys = sorted({key for key, _ in places})
    numbers = np.full((len(rows), len(columns)), np.nan)
    for i, row in enumerate(rows):
        for key, value in row.items():
            is_text = isinstance(value, str)
            where = places.get((str(key), is_text))
            if str(key) not in keys:
                raise InvalidInput(
                    f"unknown feature {validation.short(key)}; known are {', '.join(keys)}"
                )
            if where is None:
                raise InvalidInput(
                    f"feature {key} must be a {'number' if is_text else 'text'}, as it was before, "
                    f"got {validation.short(value)}"
                )
            if is_text:
                numbers[i, where] = [columns[j] == f"{key}={value}" for j in where]
            else:
                numbers[i, where] = validation.finite(f"feature {key}", value)
    return numbers, columns
