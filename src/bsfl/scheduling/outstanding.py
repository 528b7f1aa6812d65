"""Invitations that nobody has answered yet, and how large their rounds were."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl.records import IntArray

MOST_AWAITED = 100_000
"""Answers that are waited for at most; beyond, those to the oldest rounds are given up."""

Size = tuple[int, int]
"""How many were asked in a round, and how many answers are enough."""


class Outstanding:
    """Who owes an answer to which rounds.

    >>> open = Outstanding()
    >>> open.invite(1, [4, 9], size=(2, 2))
    >>> open.invite(2, [4], size=(1, 1))
    >>> list(open), open.oldest(4), open.oldest(7)
    ([4, 9], 1, None)
    >>> open.settle(4, 1)
    >>> open.oldest(4), open.size(1), open.size(3)
    (2, (2, 2), None)
    """

    def __init__(self) -> None:
        self._rounds: dict[int, list[int]] = {}  # by client, oldest first
        self._clients: dict[int, set[int]] = {}  # by round, oldest first; the last one is there
        self._sizes: dict[int, Size] = {}
        self._n = 0

    def __iter__(self) -> Any:
        """Yield the clients that owe an answer."""
        return iter(self._rounds)

    def invite(self, t: int, clients: Iterable[int], size: Size) -> None:
        """Book the invitations of the next round."""
        before = next(reversed(self._clients), None)
        self._clients[t], self._sizes[t] = set(clients), size
        if before is not None and not self._clients[before]:
            self._close(before)
        for client in clients:
            self._rounds.setdefault(client, []).append(t)
        self._n += len(self._clients[t])
        while self._n > MOST_AWAITED and len(self._clients) > 1:
            oldest = next(iter(self._clients))
            for client in list(self._clients[oldest]):
                self.settle(client, oldest)

    def oldest(self, client: int) -> int | None:
        """Return the round that a client owes an answer to, the oldest if there are several."""
        rounds = self._rounds.get(client)
        return rounds[0] if rounds else None

    def n_owed(self, client: int) -> int:
        """Return how many answers a client owes."""
        return len(self._rounds.get(client, ()))

    def settle(self, client: int, t: int) -> None:
        """Stop waiting for a client's answer to a round."""
        rounds = self._rounds[client]
        rounds.remove(t)
        if not rounds:
            del self._rounds[client]
        self._clients[t].discard(client)
        self._n -= 1
        if not self._clients[t] and t != next(reversed(self._clients)):
            self._close(t)

    def drop(self, clients: Iterable[int]) -> None:
        """Stop waiting for clients."""
        for client in list(clients):
            for t in list(self._rounds.get(client, ())):
                self.settle(client, t)

    def size(self, t: int) -> Size | None:
        """Return how large a round is that is the last, or still waited for."""
        return self._sizes.get(t)

    def moved(self, place: IntArray) -> "Outstanding":
        """Return the same for clients with other numbers: client k is now place[k], none below 0.

        Whoever has none is no longer waited for.
        """
        other = Outstanding()
        for t, clients in self._clients.items():
            places = (int(place[k]) for k in clients)
            other.invite(t, sorted(k for k in places if k >= 0), self._sizes[t])
        order = [int(place[k]) for k in self._rounds if place[k] >= 0]
        other._rounds = {k: other._rounds[k] for k in order}
        return other

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        clients = np.array(list(self._rounds), dtype=np.int64)
        lengths = [len(rounds) for rounds in self._rounds.values()]
        rounds = np.fromiter(chain.from_iterable(self._rounds.values()), np.int64, self._n)
        sizes = [(t, *size) for t, size in self._sizes.items()]
        return {
            "waiting": np.stack([np.repeat(clients, lengths), rounds], axis=1),
            "sizes": np.array(sizes, dtype=np.int64).reshape(-1, 3),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> "Outstanding":
        """Return what `to_arrays` gave, checked before."""
        open_, waiting = cls(), arrays["waiting"].tolist()
        by_round: dict[int, list[int]] = {}
        for client, t in waiting:
            by_round.setdefault(t, []).append(client)
        for t, n, enough in sorted(arrays["sizes"].tolist()):
            open_.invite(t, by_round.get(t, []), (n, enough))
        open_._rounds = {client: open_._rounds[client] for client, _ in waiting}
        return open_

    def _close(self, t: int) -> None:
        del self._clients[t], self._sizes[t]
