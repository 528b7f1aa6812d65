"""What a policy has learned: a tree of dataclasses whose leaves are arrays and plain numbers.

A policy that is made of parts has a state that is made of their states. Arrays whose first axis is
the clients grow when clients join; everything else stays as it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

State = Any
"""A dataclass of arrays (first axis: clients), plain numbers and further states."""


def per_client(start: float) -> Any:
    """Return a field that holds one number for every client, `start` for one never met."""
    return field(metadata={"start": start})


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
                kind = np.int64 if type(start) is int else None
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
    for one in fields(state):
        value = getattr(state, one.name)
        if is_dataclass(value):
            yield from leaves(value, f"{prefix}{one.name}.")
        else:
            yield prefix + one.name, value


def put(state: State, name: str, value: Any) -> None:
    """Set the leaf with a name."""
    *path, last = name.split(".")
    for step in path:
        state = getattr(state, step)
    setattr(state, last, value)


def restored(state: State, arrays: Mapping[str, npt.NDArray[Any]], name: str) -> State:
    """Return a fresh state with what is stored of it; a file of an older bsfl may know less."""
    for leaf, _ in list(leaves(state)):
        stored = arrays.get(f"{name}/{leaf}")
        if stored is not None:
            put(state, leaf, stored if stored.ndim else stored.item())
    return state


def take_over(old: State, new: State, n_clients: int) -> None:
    """Give a fresh state for more clients what an old one holds."""
    before = dict(leaves(old))
    for name, fresh in list(leaves(new)):
        known = before[name]
        if isinstance(fresh, np.ndarray) and len(fresh) == n_clients:
            fresh[: len(known)] = known
        else:  # a number, or an array that belongs to no client
            put(new, name, known)
