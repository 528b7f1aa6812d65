"""The caller's ids: their dense indices, and responses by id, validated one by one."""

import math
import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import compress, repeat
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from bsfl import validation
from bsfl._core.engine import Engine
from bsfl.errors import InvalidInput, NotSelected, UnknownClient
from bsfl.policy import LOSS, LOSSES_FROM_0, SAMPLES, Needs
from bsfl.types import BoolArray, ClientId, IntArray, Observation

Id = TypeVar("Id", bound=ClientId)
ByRound = dict[int, dict[int, Observation]]
"""Observations by dense index, by the round that the clients were invited to."""
MAX_ID_LENGTH = 1000
"""Largest number of characters of an id."""
MAX_ID = 2**128 - 1
MAX_FORGOTTEN = 10_000
"""Forgotten ids that are remembered, so that an error can say that they were forgotten."""


class ClientIds:
    """Dense indices for opaque ids, all str or all int; a client keeps its index.

    Only when clients are forgotten do the others move up. Lists of ids are replaced rather than
    changed, except for new ids at the end, so that a writer may go on reading an old one.

    >>> ids = ClientIds()
    >>> ids.append(["ann", "bob"])
    >>> ids.index_of("bob"), ids.find(["bob", "cem"])
    (1, (array([1]), ['cem']))
    """

    def __init__(self, ids: Sequence[Any] = ()) -> None:
        self.names: list[Any]
        self._index: dict[ClientId, int]
        self._last: tuple[list[Any], IntArray] | None  # the last list that was located
        self._replace(list(ids))
        self._forgotten: dict[ClientId, None] = {}  # the last ones, for a clear error

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, client: object) -> bool:
        return client in self._index

    def index_of(self, client: ClientId) -> int:
        """Return the dense index of a client that is known."""
        is_plain = type(client) is str or type(client) is int
        index = self._index.get(client if is_plain else clean_id(client))
        if index is None:
            why = "it never joined"
            if client in self._forgotten:
                why = "it was forgotten, and never joined again"
            raise UnknownClient(f"unknown client {validation.short(client)}; {why}")
        return index

    def indices_of(self, clients: Iterable[ClientId]) -> IntArray:
        """Return the dense indices of distinct clients that are known, in their order."""
        return np.array([self.index_of(client) for client in self.clean(clients)], dtype=np.int64)

    def clean(self, clients: Iterable[ClientId]) -> list[Any]:
        """Return ids after checking that they are distinct and all str or all int."""
        ids = [clean_id(client) for client in _as_list(clients)]
        first = (self.names or ids or [""])[0]
        for client in ids:
            if type(client) is not type(first):
                both = f"{validation.short(first)} and {validation.short(client)}"
                raise InvalidInput(f"client ids must be all str or all int, got {both}")
        if len(set(ids)) < len(ids):
            twice, _ = Counter(ids).most_common(1)[0]
            raise InvalidInput(f"duplicate client id {validation.short(twice)}")
        return ids

    def find(self, clients: Iterable[ClientId]) -> tuple[IntArray, list[Any]]:
        """Return the sorted indices of the known clients among distinct ones, and the new ids."""
        listed = _as_list(clients)
        if self._last is not None and self._last[0] == listed:
            return self._last[1], []
        if self.names and set(map(type, listed)) <= {type(self.names[0])}:
            found = map(self._index.get, listed, repeat(-1))
            at = np.fromiter(found, np.int64, len(listed))
            if (at >= 0).all():
                marked = np.zeros(len(self.names), dtype=bool)
                marked[at] = True
                where = np.flatnonzero(marked)
                if len(where) < len(at):
                    self.clean(listed)  # names the id that stands there twice
                self._last = listed.copy(), where
                return where, []
        ids = self.clean(listed)
        known = [self._index[client] for client in ids if client in self._index]
        return np.sort(np.array(known, dtype=np.int64)), [k for k in ids if k not in self._index]

    def append(self, new: list[Any]) -> None:
        """Give new ids the next indices."""
        start = len(self.names)
        self.names.extend(new)
        self._index.update(zip(new, range(start, start + len(new)), strict=True))

    def restore(self, names: list[Any], n: int) -> None:
        """Go back to the first n of the names that there were."""
        if self.names is not names or len(names) > n:
            self._replace(names[:n])

    def _replace(self, names: list[Any]) -> None:
        self.names, self._last = names, None
        self._index = {client: index for index, client in enumerate(names)}

    def rename(self, client: ClientId, name: ClientId) -> bool:
        """Give a client a name that no client has; return whether that was possible."""
        (new,) = self.clean([name])
        index = self.index_of(client)
        if new in self._index:
            return False
        was, names = self.names[index], self.names.copy()
        names[index] = new
        self.names, self._last = names, None
        self._index[new] = self._index.pop(was)
        return True

    def keep(self, kept: BoolArray) -> None:
        """Drop all clients that are not kept."""
        self._forgotten |= dict.fromkeys(compress(self.names, (~kept).tolist()))
        for client in list(self._forgotten)[:-MAX_FORGOTTEN]:
            del self._forgotten[client]
        self._replace(list(compress(self.names, kept.tolist())))


def id_arrays(ids: list[Any]) -> dict[str, npt.NDArray[Any]]:
    """Return ids as arrays."""
    is_number = bool(ids) and isinstance(ids[0], int)
    if is_number and max(map(abs, ids)) < 2**63:
        return {"ids": np.array(ids, dtype=np.int64)}
    texts = [str(client).encode("utf-8", "surrogatepass") for client in ids]
    return {
        f"ids-{'number' if is_number else 'text'}": np.frombuffer(b"".join(texts), dtype=np.uint8),
        "ids-length": np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)),
    }


def ids_of(arrays: Mapping[str, npt.NDArray[Any]]) -> list[Any]:
    """Return the ids that `id_arrays` stored, checked."""
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
        raise InvalidInput("duplicate client id")
    return ids


def _as_list(clients: Iterable[ClientId]) -> list[Any]:
    """Return ids as a list; a set, whose order is an accident, comes sorted."""
    if type(clients) is list:
        return clients
    if isinstance(clients, str | bytes) or not isinstance(clients, Iterable):
        raise InvalidInput(f"clients must be a collection of ids, got {validation.short(clients)}")
    listed: list[Any] = list(clients)
    if isinstance(clients, Set) and len(set(map(type, listed))) == 1:
        listed.sort()
    return listed


def clean_id(client: ClientId) -> ClientId:
    """Return an id as a plain str or int, after checking that it is one."""
    if isinstance(client, str):
        if len(client) > MAX_ID_LENGTH:
            raise InvalidInput(
                f"a client id must have at most {MAX_ID_LENGTH:,} characters, got {len(client):,}"
            )
        return str.__str__(client)  # an Enum would print its own name
    try:
        if isinstance(client, bool):
            raise TypeError
        number = operator.index(client)
    except TypeError:
        raise InvalidInput(
            f"a client id must be a str or an int, got {validation.short(client)}"
        ) from None
    if abs(number) > MAX_ID:
        raise InvalidInput(f"a client id must be below 2^128, got {validation.short(number)}")
    return number


def validate_responses(
    engine: Engine,
    ids: ClientIds,
    responses: Mapping[Id, float | Observation],
    number: int | None,
    *,
    strict: bool,
) -> tuple[ByRound, dict[Id, str]]:
    """Return responses by round, and for each that was rejected the reason.

    An impossible response counts as failed, and one from a client without a pending response in
    the round (None: in any) is ignored; if strict, either raises.
    """
    by_round: ByRound = {}
    rejected: dict[Id, str] = {}
    needs, pending_rounds = engine.policy.needs, engine.rounds.pending_rounds
    for client, response in responses.items():
        try:
            index = ids.index_of(client)
            pending = pending_rounds(index)
            own = pending[-1] if number is None and pending else number
            if own not in pending:
                raise _not_pending(client, number)
            if index in by_round.get(own, ()):
                raise InvalidInput("the same client responded above under an equal id")
        except InvalidInput as error:
            if strict:
                raise
            rejected[client] = f"ignored, because {error}"
            continue
        waited_s = None
        try:
            if isinstance(response, Observation):
                found = response
            else:
                found = Observation(latency_s=response)
            waited_s = found.latency_s
            if needs and found.outcome == "ok":
                _check_needs(engine, needs, found, index, own)
        except InvalidInput as error:
            if strict:
                raise InvalidInput(f"client {validation.short(client)}: {error}") from None
            rejected[client] = f"counts as failed, because {error}"
            found = Observation(outcome="failed", latency_s=waited_s)
        by_round.setdefault(own, {})[index] = found
    return by_round, rejected


def _not_pending(client: ClientId, number: int | None) -> NotSelected:
    where = "" if number is None else f" in round {number}"
    return NotSelected(
        f"client {validation.short(client)} has no pending response{where}: it was not selected, "
        "or was reported already"
    )


def _check_needs(
    engine: Engine, needs: Needs, response: Observation, index: int, number: int
) -> None:
    """Check that a response has what the policy needs, unless it is dropped anyway."""
    one = engine.rounds.get(number)
    if one and engine.is_dropped(one):
        return
    if needs >= LOSS and response.loss is None:
        raise InvalidInput("the policy needs its loss, which is missing")
    if needs >= LOSSES_FROM_0 and response.loss is not None and response.loss < 0:
        raise InvalidInput(f"the policy needs losses of at least 0, got {response.loss!r}")
    is_unknown = math.isnan(float(engine.pool.samples[index]))
    if needs >= SAMPLES and response.samples is None and is_unknown:
        raise InvalidInput("the policy needs its number of samples, which is unknown")
