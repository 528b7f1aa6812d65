"""The caller's clients: their ids, who belongs to the fleet, and what is known about each."""

import operator
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import compress, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl import checks
from bsfl.checks import LARGEST
from bsfl.errors import InvalidInput, UnknownClient
from bsfl.records import (
    LARGEST_FEATURE,
    MOST_FEATURES,
    NOBODY,
    BoolArray,
    FloatArray,
    IntArray,
    Roster,
)

ClientId = str | int
LONGEST_NAME = 1000
"""Most characters of an id."""
LARGEST_ID = 2**128 - 1


@dataclass(frozen=True, slots=True)
class Joined:
    """Who was named, and what it takes to undo their joining.

    Attributes:
        where: Sorted indices of all clients that were named.
        n_before: How many clients were known before.
        back: Indices of those that were not members before.
        t: The round from which they are.
        roster: The record of the fleet before, if there was one.
    """

    where: IntArray
    n_before: int
    back: IntArray
    t: int
    roster: Roster | None


class ClientTable:
    """Dense indices for opaque ids; a client keeps its index, even while it is away.

    Only when clients are forgotten do the others move up.
    """

    def __init__(self) -> None:
        self.ids: list[Any] = []
        self.n_members = 0
        self._index: dict[ClientId, int] = {}
        self._columns = {
            "member": np.zeros(0, dtype=bool),
            "since": np.zeros(0, dtype=np.int64),
            "left": np.zeros(0, dtype=np.int64),
            "seen": np.zeros(0, dtype=np.int64),
            "samples": np.zeros(0),
            "quality": np.zeros(0),
            "features": np.zeros((0, 0)),
        }
        self._roster: Roster | None = None

    def __len__(self) -> int:
        """Return how many clients were ever met."""
        return len(self.ids)

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return one array over all clients ever met; it may be written to."""
        return self._columns[name][: len(self.ids)]

    def index_of(self, client: ClientId) -> int:
        is_plain = type(client) is str or type(client) is int
        index = self._index.get(client if is_plain else clean_id(client))
        if index is None:
            raise UnknownClient(f"unknown client {checks.short(client)}; it never joined the fleet")
        return index

    def indices_of(self, clients: Iterable[ClientId]) -> IntArray:
        """Return the indices of distinct clients that are known."""
        return np.array([self.index_of(client) for client in self.clean(clients)], dtype=np.int64)

    def clean(self, clients: Iterable[ClientId]) -> list[Any]:
        """Return ids after checking that they are distinct and all str or all int."""
        ids = [clean_id(client) for client in _collection(clients)]
        first = (self.ids or ids or [""])[0]
        for client in ids:
            if type(client) is not type(first):
                both = f"{checks.short(first)} and {checks.short(client)}"
                raise InvalidInput(f"client ids must be all str or all int, got {both}")
        if len(set(ids)) < len(ids):
            twice, _ = Counter(ids).most_common(1)[0]
            raise InvalidInput(
                f"client ids must be distinct, got {checks.short(twice)} more than once"
            )
        return ids

    def join(
        self,
        clients: Iterable[ClientId],
        *,
        t: int,
        samples: Sequence[float] | None = None,
        quality: Sequence[float] | None = None,
        features: npt.ArrayLike | None = None,
    ) -> Joined:
        """Add clients to the fleet from round t on.

        A client that was away returns with all that is known of it; the rounds it missed do not
        count against its share.
        """
        ids = self.clean(clients)
        known = {
            "samples": _clean_numbers("samples", samples, len(ids), high=LARGEST),
            "quality": _clean_numbers("quality", quality, len(ids), high=1.0),
            "features": self._clean_features(features, len(ids)),
        }
        n_before, roster = len(self), self._roster
        self._append([client for client in ids if client not in self._index], t)
        where = np.fromiter((self._index[c] for c in ids), np.int64, len(ids))
        back = where[~self.column("member")[where]]
        self.column("since")[back] += t - self.column("left")[back]
        self.column("member")[back] = True
        if features is not None and not self._n_features:
            capacity, n_features = len(self._columns["member"]), np.shape(features)[1]
            self._columns["features"] = np.full((capacity, n_features), np.nan)
        for name, values in known.items():
            if values is not None:
                self.column(name)[where] = values
        self.n_members += len(back)
        self._roster = None
        return Joined(np.sort(where), n_before, back, t, roster)

    def undo(self, joined: Joined) -> None:
        """Take back the last `join`, provided that it told nothing new about its clients."""
        self.column("since")[joined.back] -= joined.t - self.column("left")[joined.back]
        self.column("member")[joined.back] = False
        for client in self.ids[joined.n_before :]:
            del self._index[client]
        del self.ids[joined.n_before :]
        self.n_members -= len(joined.back)
        self._roster = joined.roster

    def leave(self, clients: Iterable[ClientId], *, t: int) -> None:
        where = self.indices_of(clients)
        gone = where[self.column("member")[where]]
        self.column("member")[gone] = False
        self.column("left")[gone] = t
        self.n_members -= len(gone)
        self._roster = None

    def rename(self, client: ClientId, name: ClientId) -> bool:
        """Give a client a name that nobody ever had; return whether that is so."""
        (new,) = self.clean([name])
        index = self.index_of(client)
        if new in self._index:
            return False
        self.ids = [*self.ids[:index], new, *self.ids[index + 1 :]]  # anew: see forget
        del self._index[clean_id(client)]
        self._index[new] = index
        return True

    def forget(self, kept: BoolArray) -> None:
        """Drop all clients that are not kept."""
        self.ids = list(compress(self.ids, kept.tolist()))  # anew: a save may be reading the old
        self._index = {client: index for index, client in enumerate(self.ids)}
        self._columns = {name: self._columns[name][: len(kept)][kept] for name in self._columns}
        self.n_members = int(np.count_nonzero(self._columns["member"]))
        self._roster = None

    def members(self) -> IntArray:
        return np.flatnonzero(self.column("member"))

    def require(self, n_needed: int, n_joining: int = 0) -> None:
        """Check that the fleet, with those about to join, can fill a cohort."""
        checks.cohort_fits(n_needed, self.n_members + n_joining)

    def locate(self, clients: Iterable[ClientId], *, t: int, n_needed: int) -> Joined:
        """Find clients; those that are new or were away join, if that makes n_needed members."""
        clients = _collection(clients)
        if self.ids and set(map(type, clients)) <= {type(self.ids[0])}:
            found = map(self._index.get, clients, repeat(-1))
            where = np.fromiter(found, np.int64, len(clients))
            if (where >= 0).all() and self.column("member")[where].all():
                marked = np.zeros(len(self), dtype=bool)
                marked[where] = True
                if np.count_nonzero(marked) < len(where):
                    self.clean(clients)  # names the id that came twice
                return Joined(np.flatnonzero(marked), len(self), NOBODY, t, self._roster)
        ids = self.clean(clients)
        self.require(n_needed, sum(not self._is_member(client) for client in ids))
        return self.join(ids, t=t)

    def roster(self) -> Roster:
        """Return the record of the fleet that policies may see."""
        if self._roster is None:
            since, samples, quality = map(self.column, ("since", "samples", "quality"))
            self._roster = Roster(
                n_members=self.n_members,
                members=self.column("member").copy() if self.n_members < len(self) else None,
                since=since.copy() if np.any(since > 1) else None,
                samples=None if np.isnan(samples).all() else samples.copy(),
                quality=None if np.all(quality == 1.0) else quality.copy(),
                features=self.column("features").copy() if self._n_features else None,
            )
        return self._roster

    def _append(self, new: list[Any], t: int) -> None:
        start, stop = len(self), len(self) + len(new)
        capacity = len(self._columns["member"])
        if stop > capacity:
            for name, column in self._columns.items():
                longer = np.zeros((max(stop, 2 * capacity), *column.shape[1:]), column.dtype)
                longer[:capacity] = column
                self._columns[name] = longer
        unknown = {"samples": np.nan, "quality": 1.0, "features": np.nan}
        for name, value in {"member": False, "since": t, "left": t, "seen": t, **unknown}.items():
            self._columns[name][start:stop] = value
        self._index.update(zip(new, range(start, stop), strict=True))
        self.ids.extend(new)

    @property
    def _n_features(self) -> int:
        return int(self._columns["features"].shape[1])

    def _clean_features(self, features: npt.ArrayLike | None, n_clients: int) -> FloatArray | None:
        """Return features as [client, feature]; the first ones say how many there are."""
        if features is None:
            return None
        try:
            numbers = np.asarray(features, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(f"features must be rows of numbers, all as long: {error}") from None
        if numbers.ndim != 2 or len(numbers) != n_clients or numbers.shape[1] == 0:
            raise InvalidInput(
                f"features must hold one row of numbers for each of the {n_clients} clients, "
                f"got shape {numbers.shape}"
            )
        if numbers.shape[1] > MOST_FEATURES:
            raise InvalidInput(
                f"a client must have at most {MOST_FEATURES:,} features, got {numbers.shape[1]:,}"
            )
        wrong = np.abs(numbers) > LARGEST_FEATURE
        if wrong.any():
            raise InvalidInput(
                f"features must be numbers of at most {LARGEST_FEATURE:g}, or NaN where unknown, "
                f"got {numbers[wrong][0]:g}"
            )
        if numbers.shape[1] != (self._n_features or numbers.shape[1]):
            raise InvalidInput(
                f"every client must have the same {self._n_features} features, "
                f"got {numbers.shape[1]}"
            )
        return numbers

    def _is_member(self, client: ClientId) -> bool:
        return client in self._index and bool(self._columns["member"][self._index[client]])

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return everything but the ids as arrays, which change with the table."""
        return {name: self.column(name) for name in self._columns}

    @classmethod
    def from_arrays(cls, ids: list[Any], arrays: dict[str, npt.NDArray[Any]]) -> "ClientTable":
        """Return a table of what `to_arrays` and `id_arrays` gave, checked before."""
        table = cls()
        table.ids = ids
        table._index = {client: index for index, client in enumerate(ids)}
        table._columns = {name: arrays[name] for name in table._columns}
        table.n_members = int(np.count_nonzero(table._columns["member"]))
        return table


def id_arrays(ids: list[Any]) -> dict[str, npt.NDArray[Any]]:
    """Return ids as arrays."""
    if ids and isinstance(ids[0], int):
        try:
            return {"ids": np.array(ids, dtype=np.int64)}
        except OverflowError:
            return _as_bytes("number", [str(client).encode() for client in ids])
    return _as_bytes("text", [client.encode("utf-8", "surrogatepass") for client in ids])


def ids_of(arrays: dict[str, npt.NDArray[Any]]) -> list[Any]:
    """Return the ids that `id_arrays` stored, or raise ValueError."""
    if "ids" in arrays:
        ids: list[Any] = arrays["ids"].tolist()
    else:
        kind = "number" if "ids-number" in arrays else "text"
        blob, lengths = arrays[f"ids-{kind}"].tobytes(), arrays["ids-length"]
        if np.any(lengths < 0) or lengths.sum() != len(blob):
            raise InvalidInput("the lengths of the ids do not fit")
        ends = np.cumsum(lengths).tolist()
        texts = [
            blob[a:b].decode("utf-8", "surrogatepass")
            for a, b in zip([0, *ends], ends, strict=False)
        ]
        ids = list(map(int, texts)) if kind == "number" else texts
    if ids:
        clean_id(max(ids, key=len if isinstance(ids[0], str) else abs))  # no other is longer
    if len(set(ids)) < len(ids):
        raise InvalidInput("an id stands there twice")
    return ids


def _as_bytes(kind: str, texts: list[bytes]) -> dict[str, npt.NDArray[Any]]:
    return {
        f"ids-{kind}": np.frombuffer(b"".join(texts), dtype=np.uint8),
        "ids-length": np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)),
    }


def _collection(clients: Iterable[ClientId]) -> Sequence[Any]:
    """Return ids as a sequence; a set, whose order is an accident, comes sorted."""
    if isinstance(clients, str | bytes) or not isinstance(clients, Iterable):
        raise InvalidInput(f"clients must be a collection of ids, got {checks.short(clients)}")
    listed: list[Any] = list(clients)
    if isinstance(clients, Set) and len(set(map(type, listed))) == 1:
        listed.sort()
    return listed


def clean_id(client: ClientId) -> ClientId:
    """Return an id as a plain str or int, after checking that it is one."""
    if isinstance(client, str):
        if len(client) > LONGEST_NAME:
            raise InvalidInput(
                f"a client id must have at most {LONGEST_NAME:,} characters, got {len(client):,}"
            )
        return str.__str__(client)  # an Enum would print its own name
    try:
        if isinstance(client, bool):
            raise TypeError
        number = operator.index(client)
    except TypeError:
        raise InvalidInput(
            f"a client id must be a str or an int, got {checks.short(client)}"
        ) from None
    if abs(number) > LARGEST_ID:
        raise InvalidInput(f"a client id must be below 2^128, got {checks.short(number)}")
    return number


def _clean_numbers(
    name: str, values: Sequence[float] | None, n_clients: int, high: float
) -> FloatArray | None:
    if values is None:
        return None
    numbers = checks.numbers(name, values) if n_clients else np.zeros(0)
    if numbers.shape != (n_clients,):
        raise InvalidInput(
            f"{name} must hold one number for each of the {n_clients} clients, "
            f"got shape {numbers.shape}"
        )
    return checks.all_above_0(name, numbers, high)
