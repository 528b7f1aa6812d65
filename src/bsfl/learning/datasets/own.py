"""Custom data: an .npz file, a folder with one CSV for each client, or arrays from a function.

    x        [n, ...]   inputs: images [n, height, width(, channels)] or vectors [n, features]
    y        [n]        targets: whole numbers or texts are labels, other numbers a regression
    client   [n]        optional: the client of each sample, a number or a name
    x_test, y_test      optional: test data; by default a fifth of the samples is kept for it

In a folder, the file phone-7.csv holds the samples of client phone-7. Its first line names the
columns, of which `y` is the target and the others are numbers; test.csv, if there is one, is the
test data.
"""

import csv
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl.errors import InvalidInput, reason
from bsfl.learning.datasets.dataset import PARTS, Array, Dataset
from bsfl.persistence.regular_file import open_csv, read_arrays
from bsfl.random import stream
from bsfl.types import IntArray

TEST_SHARE = 5  # one sample in five is kept for the test, where no test data is given
MAX_LABELS = 10_000
TEST_FILE, TARGET = "test.csv", "y"
KEYS = ("x", "y", "client", "x_test", "y_test")


def is_own(name: str) -> bool:
    """Return whether a data set is named by its file or folder."""
    return name.endswith(".npz") or "/" in name or os.path.isdir(name)


def read_own(name: str) -> Dataset:
    """Return the data in an .npz file or in a folder of CSV files."""
    path = Path(name)
    try:
        arrays = read_folder(path) if os.path.isdir(path) else read_arrays(path, KEYS)
    except InvalidInput:
        raise
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read as an .npz file: {reason(error)}") from None
    return own_data(path.name, arrays)


def read_folder(folder: Path) -> dict[str, Array]:
    """Return the arrays of the CSV files in a folder."""
    files = sorted(path for path in folder.glob("*.csv") if path.name != TEST_FILE)
    if not files:
        raise InvalidInput(f"{folder} holds no CSV file of a client")
    header: list[str] = []
    parts = [_read_csv(path, header) for path in files]
    found = {
        "x": np.concatenate([x for x, _ in parts]),
        "y": _targets([y for _, own in parts for y in own]),
        "client": np.repeat([path.stem for path in files], [len(x) for x, _ in parts]),
    }
    if (folder / TEST_FILE).is_file():
        x_test, y_test = _read_csv(folder / TEST_FILE, header)
        found |= {"x_test": x_test, "y_test": _targets(y_test)}
    return found


def own_data(name: str, arrays: Mapping[str, npt.ArrayLike]) -> Dataset:
    """Return custom data from arrays by the names above, after checking them."""
    unknown = [key for key in arrays if key not in KEYS]
    if unknown:
        raise InvalidInput(f"{name}: unknown array {unknown[0]!r}; known are {', '.join(KEYS)}")
    given = {key: np.asarray(array) for key, array in arrays.items()}
    if missing := [key for key in ("x", "y") if key not in given]:
        raise InvalidInput(f"{name}: there is no array {missing[0]!r}; got {list(given)}")
    _check(name, given["x"], given["y"], "")
    if ("x_test" in given) != ("y_test" in given):
        raise InvalidInput(f"{name}: x_test and y_test belong together")
    client: IntArray | None = None
    ids: tuple[str, ...] = ()
    x, y = given["x"], given["y"]
    if "client" in given:
        if given["client"].shape != y.shape:
            raise InvalidInput(
                f"{name}: client must name the client of each of the {len(y)} samples, "
                f"got shape {given['client'].shape}"
            )
        names, client = np.unique(given["client"], return_inverse=True)
        ids = tuple(map(str, names.tolist()))
    if "x_test" in given:
        x_test, y_test = given["x_test"], given["y_test"]
        _check(name, x_test, y_test, "_test")
        if x_test.shape[1:] != x.shape[1:]:
            raise InvalidInput(
                f"{name}: x and x_test must hold inputs of one shape, got {x.shape[1:]} and "
                f"{x_test.shape[1:]}"
            )
    else:
        test = _held_out(name, len(x), client)
        x_test, y_test, x, y = x[test], y[test], x[~test], y[~test]
        client = None if client is None else client[~test]
    y, y_test, labels = _labelled(name, y, y_test)
    parts: Any = dict(zip(PARTS, (x, y, x_test, y_test), strict=True))
    return Dataset(name=name, labels=labels, client=client, ids=ids, **parts)


def _check(name: str, x: Array, y: Array, suffix: str) -> None:
    if x.ndim not in (2, 3, 4) or len(x) == 0 or x.dtype.kind not in "iufb":
        raise InvalidInput(
            f"{name}: x{suffix} must be numbers, [n, features] or [n, height, width(, channels)], "
            f"got {x.dtype} of shape {x.shape}"
        )
    if y.shape != (len(x),):
        raise InvalidInput(
            f"{name}: y{suffix} must have one target for each of the {len(x)} inputs, "
            f"got shape {y.shape}"
        )
    for key, array in ((f"x{suffix}", x), (f"y{suffix}", y)):
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InvalidInput(f"{name}: {key} must be finite numbers")


def _held_out(name: str, n: int, client: IntArray | None) -> npt.NDArray[np.bool_]:
    """Return which samples are kept for the test: a fifth of each client's, or of all."""
    rng, test = stream(0, "own-test-data"), np.zeros(n, dtype=bool)
    owner = np.zeros(n, dtype=np.int64) if client is None else client
    for k in range(int(owner.max()) + 1):
        own = np.flatnonzero(owner == k)
        test[rng.permutation(own)[: len(own) // TEST_SHARE]] = True
    if not test.any():
        raise InvalidInput(
            f"{name}: no client has {TEST_SHARE} samples, so none is left for the test; add x_test "
            "and y_test"
        )
    return test


def _labelled(name: str, y: Array, y_test: Array) -> tuple[Array, Array, tuple[str, ...] | None]:
    """Return targets as labels from 0, with their names, or as the numbers they are."""
    if "f" in (y.dtype.kind, y_test.dtype.kind):
        return y.astype(np.float64), y_test.astype(np.float64), None
    known = np.unique(np.concatenate([y, y_test]))
    if len(known) > MAX_LABELS:
        raise InvalidInput(
            f"{name}: y has {len(known):,} labels, more than {MAX_LABELS:,}; for a regression the "
            "targets must be floats"
        )
    places, test_places = np.searchsorted(known, y), np.searchsorted(known, y_test)
    return places, test_places, tuple(map(str, known.tolist()))


def _read_csv(path: Path, header: list[str]) -> tuple[Array, list[str]]:
    """Return the inputs of a file and its targets as texts; all files have one header."""
    rows, targets, line = [], [], 1
    try:
        with open_csv(path) as file:
            reader = csv.reader(file)
            columns = [name.strip() for name in next(reader, [])]
            header[:] = header or columns
            if columns != header or TARGET not in columns or len(columns) < 2:
                wanted = ",".join(header) if TARGET in header else "names of columns, one of them y"
                raise ValueError(f"must be {wanted}, got {','.join(columns)!r}")
            for row in filter(None, reader):
                line = reader.line_num
                if len(row) != len(columns):
                    raise ValueError(f"expected {len(columns)} values, got {len(row)}")
                targets.append(row.pop(columns.index(TARGET)).strip())
                rows.append([float(cell) for cell in row])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path} cannot be read: {reason(error)}") from None
    except ValueError as error:
        raise InvalidInput(f"{path}, line {line}: {error}") from None
    if not rows:
        raise InvalidInput(f"{path}: there is no sample in the file")
    return np.array(rows), targets


def _targets(texts: list[str]) -> Array:
    """Return targets as whole numbers, else as numbers, else as the texts they are."""
    for kind in (np.int64, np.float64):
        with suppress(ValueError):
            return np.array([kind(text) for text in texts])
    return np.array(texts)
