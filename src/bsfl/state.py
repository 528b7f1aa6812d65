"""What a policy has learned: a tree of dataclasses whose leaves are arrays and plain numbers.

A policy that is made of parts has a state that is made of their states. Arrays whose first axis is
the clients grow when clients join and shrink when clients are forgotten; everything else stays as
it is.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bsfl.checks import LARGEST, LARGEST_FLOAT
from bsfl.errors import InvalidInput

State = Any
"""A dataclass of arrays (first axis: clients), plain numbers and further states."""
MOST_ROUNDS = 2**30
"""Largest round, and largest number in a narrow column: far from where four bytes end."""
FEW = 1024
"""Numbers of an array that are copied whole rather than by client."""


def per_client(
    start: float, low: float | None = None, high: float | None = None, *, narrow: bool = False
) -> Any:
    """Return a field that holds one number for every client, `start` for one never met.

    A narrow one takes four bytes a client instead of eight.

    A file that holds a number below `low` or above `high` is refused. None: counts are not below
    0 (or `start`), and everything is finite but where `start` is not.
    """
    return field(metadata={"start": start, "low": low, "high": high, "narrow": narrow})


def number(start: float, low: float | None = None, high: float | None = None) -> Any:
    """Return a field that holds one number, with the same limits."""
    return field(default=start, metadata={"low": low, "high": high})


@dataclass(slots=True, kw_only=True)
class ClientState:
    """A state with columns, one number for every client; see `per_client`."""

    @classmethod
    def of(cls, n_clients: int, **others: Any) -> Self:
        """Return the state before the first round."""
        columns = {}
        for one in fields(cls):
            if "start" in one.metadata:
                start = one.metadata["start"]
                kind: Any = np.int64 if type(start) is int else None
                if one.metadata["narrow"]:
                    kind = np.int32 if type(start) is int else np.float32
                columns[one.name] = np.full(n_clients, start, dtype=kind)
        return cls(**columns, **others)


@dataclass(slots=True, kw_only=True)
class NothingLearned(ClientState):
    """The state of a policy, or of a part, that learns nothing."""


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
    for name in _names(state.__class__) or ():
        value = getattr(state, name)
        if _names(value.__class__) is not None:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


@cache
def _names(kind: Any) -> tuple[str, ...] | None:
    """Return the names of the fields of a dataclass; None of anything else."""
    return tuple(one.name for one in fields(kind)) if is_dataclass(kind) else None


def put(state: State, name: str, value: Any) -> None:
    """Set the leaf with a name."""
    *path, last = name.split(".")
    for step in path:
        state = getattr(state, step)
    setattr(state, last, value)


def client_leaves(init: Callable[[int], State]) -> set[str]:
    """Return the names of the arrays that have a row for each client."""
    nobody, somebody = dict(leaves(init(0))), dict(leaves(init(1)))
    return {name for name, value in somebody.items() if np.shape(value) != np.shape(nobody[name])}


def restored(
    init: Callable[[int], State],
    n_clients: int,
    arrays: Mapping[str, npt.NDArray[Any]],
    name: str,
    *,
    in_part: bool = True,
) -> State:
    """Return a state with what is stored of it, checked.

    Args:
        init: Returns a fresh state for so many clients.
        n_clients: How many it knows.
        arrays: What is stored.
        name: What it is stored under.
        in_part: Whether a part may be missing, as an older file or another policy knows less.
    """
    state, of_clients = init(n_clients), client_leaves(init)
    for leaf, fresh in list(leaves(state)):
        stored = arrays.get(f"{name}/{leaf}")
        if stored is None:
            if not in_part:
                raise InvalidInput(f"{leaf} is missing")
            continue
        known = np.asarray(fresh)
        may_grow = known.size == 0 and leaf not in of_clients  # such as the effects of features
        if stored.dtype.kind != known.dtype.kind or stored.ndim != known.ndim:
            raise InvalidInput(f"{leaf} has numbers of another kind")
        if stored.shape != known.shape and not may_grow:
            raise InvalidInput(f"{leaf} has the shape {stored.shape}, {known.shape} was expected")
        if known.dtype == np.int32:  # what is too large for it is refused below
            stored = np.clip(stored, -1, MOST_ROUNDS + 1)
        with np.errstate(over="ignore"):  # infinite then, which is refused below
            exact = stored.astype(known.dtype, copy=False)  # a smaller kind would run over
        put(state, leaf, exact if stored.ndim else exact.item())
    check(state)
    return state


def check(state: State) -> None:
    """Check that a state that was stored holds nothing that a policy could not have learned.

    Fields say their limits, see `per_client`. A state with rules between its fields has a method
    `check` that raises InvalidInput.
    """
    for one in fields(state):
        value = getattr(state, one.name)
        if is_dataclass(value):
            check(value)
        else:
            _check_limits(one, np.asarray(value))
    if hasattr(state, "check"):
        state.check()


def _check_limits(one: "Field[Any]", values: npt.NDArray[Any]) -> None:
    if values.dtype.kind == "b":
        return
    most = MOST_ROUNDS if values.dtype == np.int32 else LARGEST
    values = values.astype(np.int64 if values.dtype.kind == "i" else np.float64, copy=False)
    start = one.metadata.get("start", one.default if isinstance(one.default, int | float) else 0)
    low, high = one.metadata.get("low"), one.metadata.get("high")
    if values.dtype.kind == "i":
        fine = (values >= (min(0, start) if low is None else low)) & (
            values <= (most if high is None else high)
        )
    else:
        fine = (values >= (-LARGEST_FLOAT if low is None else low)) & (
            values <= (LARGEST_FLOAT if high is None else high)
        )
        if not np.isfinite(start):  # as it is before anything was learned
            fine |= np.isnan(values) if np.isnan(start) else values == start
    if not fine.all():
        raise InvalidInput(f"{one.name} holds {values[~fine].flat[0]!s}, which cannot be")


def take_over(old: State, new: State, n_clients: int) -> None:
    """Give a fresh state for more clients what an old one holds."""
    before = dict(leaves(old))
    for name, fresh in list(leaves(new)):
        known = before[name]
        if isinstance(fresh, np.ndarray) and len(fresh) == n_clients:
            fresh[: len(known)] = known
        else:  # a number, or an array that belongs to no client
            put(new, name, known)


def without(state: State, kept: npt.NDArray[np.bool_], init: Callable[[int], State]) -> State:
    """Return a state without the clients that are not kept.

    Args:
        state: What is known of all clients.
        kept: Whether each of them is.
        init: Returns a fresh state for so many clients.
    """
    smaller, of_clients = init(int(np.count_nonzero(kept))), client_leaves(init)
    for name, known in leaves(state):
        put(smaller, name, known[kept] if name in of_clients else known)
    if hasattr(smaller, "recount"):
        smaller.recount()
    return smaller


def reminder(state: State, clients: npt.NDArray[np.int64]) -> Callable[[], None]:
    """Return a function that puts everything back as it is now: a refused report changes nothing.

    What may change until then are the numbers of some clients, and all that belongs to no client.
    """
    saved: list[tuple[State, str, Any, Any, Any]] = []
    last = clients.max(initial=0)
    states = [state]
    for part in states:
        for name in _names(part.__class__) or ():
            value, where, numbers = getattr(part, name), None, None
            if isinstance(value, np.ndarray):
                by_client = value.size > FEW and len(value) > last
                where = clients if by_client else ...
                numbers = value[where] if by_client else value.copy()
            elif _names(value.__class__) is not None:
                states.append(value)
            saved.append((part, name, value, where, numbers))

    def put_back() -> None:
        for part, name, value, where, numbers in saved:
            if numbers is not None:
                value[where] = numbers
            setattr(part, name, value)

    return put_back
