"""States: trees of dataclasses whose leaves are arrays and plain numbers.

A policy that is made of components has a state that is made of their states. Arrays whose first
axis is the clients grow when clients join and shrink when clients are forgotten; everything else
stays as it is.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bsfl.errors import InvalidInput
from bsfl.types import State
from bsfl.validation import LARGEST, LARGEST_FLOAT

MAX_ROUNDS = 2**30
"""Largest round, and largest number in a narrow column: far below the limit of four bytes."""
STORABLE = {np.dtype(name) for name in ("f8", "f4", "i8", "i4", "u4", "?", "u1")}
"""Types of arrays that a state file holds."""
ROUNDS = "rounds"
"""As an upper limit of a field: the number of the next round, as of counts of one a round."""
COPIED_WHOLE = 1024
"""Arrays of at most this size are copied whole in a snapshot, larger ones by row."""


Limit = float | str | None
"""Of a number in a file: a number, ROUNDS or none."""


def per_client(
    start: float, low: float | None = None, high: Limit = None, *, narrow: bool = False
) -> Any:
    """Return a field that holds one number for every client, `start` for an unseen one.

    A narrow one takes four bytes a client instead of eight.

    A file that holds a number below `low` or above `high` is rejected. None: counts are not below
    0 (or `start`), and everything is finite but where `start` is not.
    """
    return field(metadata={"start": start, "low": low, "high": high, "narrow": narrow})


def number(start: float, low: float | None = None, high: Limit = None) -> Any:
    """Return a field that holds one number, with the same limits."""
    return field(default=start, metadata={"low": low, "high": high})


@dataclass(slots=True, kw_only=True)
class ClientState:
    """A state with columns, one number for every client; see `per_client`."""

    @classmethod
    def of(cls, n_clients: int, **others: Any) -> Self:
        """Return the state before the first round, with the fields that are given."""
        columns: dict[str, Any] = {}
        for one in fields(cls):
            if "start" in one.metadata and one.name not in others:
                start = one.metadata["start"]
                kind: Any = np.int64 if type(start) is int else None
                if one.metadata["narrow"]:
                    kind = np.int32 if type(start) is int else np.float32
                columns[one.name] = np.full(n_clients, start, dtype=kind)
        return cls(**columns, **others)


@dataclass(slots=True, kw_only=True)
class EmptyState(ClientState):
    """The state of a policy, or of a component, that learns nothing."""


class StateView:
    """Read-only columns of a state over its first n rows; subclasses name them with `Column`."""

    def __init__(self, state: State, n: int) -> None:
        self._state, self._n = state, n

    def __len__(self) -> int:
        return self._n

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a read-only view of a column."""
        column: npt.NDArray[Any] = getattr(self._state, name)[: self._n]
        column.flags.writeable = False
        return column


class Column:
    """A column of a StateView, under the name of the column in the state."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, view: StateView, owner: type) -> Any:
        return view.column(self._name)


def leaves(state: State, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of every leaf, such as "memory.mean".

    >>> @dataclass
    ... class Inner:
    ...     mean: float
    >>> @dataclass
    ... class Outer:
    ...     t: int
    ...     memory: Inner
    >>> list(leaves(Outer(3, Inner(0.5))))
    [('t', 3), ('memory.mean', 0.5)]
    """
    for name in _field_names(state.__class__) or ():
        value = getattr(state, name)
        if _field_names(value.__class__) is not None:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


@cache
def _field_names(kind: Any) -> tuple[str, ...] | None:
    """Return the names of the fields of a dataclass; None of anything else."""
    return tuple(one.name for one in fields(kind)) if is_dataclass(kind) else None


def set_leaf(state: State, name: str, value: Any) -> None:
    """Set the leaf with a name."""
    *path, last = name.split(".")
    for step in path:
        state = getattr(state, step)
    setattr(state, last, value)


def client_leaves(init: Callable[[int], State]) -> set[str]:
    """Return the names of the arrays that have a row for each client."""
    nobody, somebody = dict(leaves(init(0))), dict(leaves(init(1)))
    return {name for name, value in somebody.items() if np.shape(value) != np.shape(nobody[name])}


def restore_state(
    init: Callable[[int], State],
    n_clients: int,
    arrays: Mapping[str, npt.NDArray[Any]],
    name: str,
    *,
    last_round: int = MAX_ROUNDS,
) -> State:
    """Return a state of which `init` makes a fresh one, with what is stored of it, checked."""
    state, of_clients = init(n_clients), client_leaves(init)
    if state is None:
        return None
    for leaf, fresh in list(leaves(state)):
        stored = arrays.get(f"{name}/{leaf}")
        if stored is None:
            raise InvalidInput(f"{leaf} is missing")
        known = np.asarray(fresh)
        may_grow = known.size == 0 and leaf not in of_clients  # such as the effects of features
        if stored.dtype.kind != known.dtype.kind or stored.ndim != known.ndim:
            raise InvalidInput(f"{leaf} has numbers of another kind")
        if stored.shape != known.shape and not may_grow:
            raise InvalidInput(f"{leaf} has the shape {stored.shape}, {known.shape} was expected")
        if known.dtype == np.int32:  # what is too large for it is rejected below
            stored = np.clip(stored, -1, MAX_ROUNDS + 1)
        with np.errstate(over="ignore"):  # infinite then, which is rejected below
            exact = stored.astype(known.dtype, copy=False)  # a smaller kind would run over
        set_leaf(state, leaf, exact if stored.ndim else exact.item())
    validate(state, last_round)
    return state


def validate(state: State, last_round: int = MAX_ROUNDS) -> None:
    """Check that a state that was stored holds nothing that a policy could not have learned.

    Fields say their limits, see `per_client`. A state with rules between its fields has a method
    `check` that raises InvalidInput. Limits are such that learning stays within them: a state that
    is read, used and stored can be read again.
    """
    for one in fields(state):
        value = getattr(state, one.name)
        if is_dataclass(value):
            validate(value, last_round)
        else:
            check_limits(one.name, one, np.asarray(value), last_round)
    if hasattr(state, "check"):
        state.check()


def check_limits(
    name: str, of: "Field[Any]", values: npt.NDArray[Any], last_round: int = MAX_ROUNDS
) -> None:
    """Check that the numbers of a field, stored under a name, are within its limits."""
    if values.dtype.kind == "b":
        return
    is_whole = values.dtype.kind == "i"
    start = of.metadata.get("start", of.default if isinstance(of.default, int | float) else 0)
    low, high = of.metadata.get("low"), of.metadata.get("high")
    if low is None:
        low = min(0, start) if is_whole else -LARGEST_FLOAT
    if high is None:
        high = LARGEST if is_whole else LARGEST_FLOAT
        high = MAX_ROUNDS if values.dtype == np.int32 else high
    elif high == ROUNDS:
        high = last_round + 1
    values = values.astype(np.int64 if is_whole else np.float64, copy=False)
    fine = (values >= low) & (values <= high)
    if not np.isfinite(start):  # as it is before anything was learned
        fine |= np.isnan(values) if np.isnan(start) else values == start
    if not fine.all():
        raise InvalidInput(f"{name} holds {values[~fine].flat[0]!s}, which cannot be")


def copy_rows(old: State, new: State) -> None:
    """Copy an old state into a fresh one that has rows for more clients."""
    before = dict(leaves(old))
    for name, fresh in list(leaves(new)):
        known = before[name]
        if isinstance(fresh, np.ndarray) and fresh.shape != known.shape and len(fresh):
            fresh[: len(known)] = known
        else:  # a number, or an array that has no rows for clients
            set_leaf(new, name, known)


def drop_rows(state: State, kept: npt.NDArray[np.bool_], init: Callable[[int], State]) -> State:
    """Return a state of which `init` makes a fresh one, with the rows of kept clients alone."""
    rows = np.flatnonzero(kept)
    smaller, of_clients = init(len(rows)), client_leaves(init)
    for name, known in leaves(state):
        set_leaf(smaller, name, known[rows] if name in of_clients else known)
    if hasattr(smaller, "recount"):
        smaller.recount()
    return smaller


def snapshot(state: State, rows: npt.NDArray[np.int64], n_rows: int) -> Callable[[], None]:
    """Snapshot everything but other clients' rows; calling the result restores it.

    Large arrays with n_rows rows, one for each client, are copied by row, all others whole.
    """
    saved: list[tuple[State, str, Any, Any, Any]] = []
    parts = [state]
    for part in parts:
        for name in _field_names(part.__class__) or ():
            value, where, numbers = getattr(part, name), None, None
            if isinstance(value, np.ndarray):
                by_row = value.size > COPIED_WHOLE and len(value) == n_rows
                where = rows if by_row else ...
                numbers = value[rows] if by_row else value.copy()
            elif _field_names(value.__class__) is not None:
                parts.append(value)
            saved.append((part, name, value, where, numbers))

    def restore() -> None:
        for part, name, value, where, numbers in saved:
            if numbers is not None:
                value[where] = numbers
            setattr(part, name, value)

    return restore


def check_storable(init: Callable[[int], State]) -> None:
    """Check that a state can be saved: a tree of dataclasses of arrays of numbers, and numbers."""
    state = init(1)
    if state is None:
        return
    if not is_dataclass(state):
        raise InvalidInput(
            "the state of a policy must be a dataclass of arrays and numbers, "
            f"got {type(state).__name__}"
        )
    for name, value in leaves(state):
        is_array = isinstance(value, np.ndarray) and value.dtype in STORABLE
        if not (is_array or isinstance(value, bool | int | float | np.number)):
            kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else None
            raise InvalidInput(
                f"{name} of the state of a policy must be an array of numbers or a number, so "
                f"that it can be saved, got {kind or type(value).__name__}"
            )
