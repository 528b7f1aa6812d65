r"""The life of a round: open, responses, closed or discarded.

target reached, all reported, close(), or the limit of open rounds
open ──────────────────────────────────────────────▶ closed ──── close(aggregated=, discard=)
│ responses are fresh                                 │ responses are late     replaces the
▼                                                     ▼                        credit, once
latency, reliability and loss are learned          the same; credited if late = "apply"
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl._core import state
from bsfl._core.state import ClientState, leaves, per_client
from bsfl.errors import InvalidInput
from bsfl.types import (
    FAILED,
    LATENCY_RANGE,
    MAX_LOSS,
    OK,
    OUTCOMES,
    TIMEOUT,
    BoolArray,
    FloatArray,
    IntArray,
    RoundRecord,
)

PENDING, ABANDONED = -1, -2
"""Outcomes of a client that has not been reported, and of one that is not waited for any more."""
OPEN, CLOSED, CONFIRMED = range(3)
"""A round is open, closed by itself, or closed for good: its credit cannot be replaced."""


@dataclass(slots=True, kw_only=True, eq=False)
class Round(ClientState):
    """One round and what became of its cohort so far.

    A state with columns over its cohort; fields say what a file may hold, as in other states.

    Attributes:
        number: Round number.
        cohort: Sorted dense indices of the invited clients.
        n_invited, target_responses, n_available: As in RoundRecord.
        deadline_s: Seconds after which it closes without the missing responses; NaN: none.
        opened_s: Time at which it was opened.
        is_timed: Whether the caller gave that time, so that a difference of times is a duration.
        status: OPEN, CLOSED or CONFIRMED.
        is_discarded: Whether it changed no model.
        is_reported: Whether the policy has had its first report.
        measured_s: Duration by the caller's clock; NaN: it was not measured.
        outcome: Positions in OUTCOMES, PENDING or ABANDONED.
        latency_s, loss: What clients reported, NaN where nothing.
        late: Whether a response came after the round had closed.
        aggregated: Whether a client's response is credited as a participation.
    """

    cohort: IntArray = per_client(0)
    number: int = 1
    n_invited: int = state.number(1, low=1)
    target_responses: int = state.number(1, low=1)
    n_available: int = 0
    deadline_s: float = state.number(np.nan, low=0.0)
    opened_s: float = 0.0
    is_timed: bool = False
    status: int = state.number(OPEN, high=CONFIRMED)
    is_discarded: bool = False
    is_reported: bool = False
    measured_s: float = state.number(np.nan, low=0.0)
    outcome: IntArray = per_client(PENDING, low=ABANDONED, high=len(OUTCOMES) - 1)
    latency_s: FloatArray = per_client(np.nan, *LATENCY_RANGE)
    loss: FloatArray = per_client(np.nan, -MAX_LOSS, MAX_LOSS)
    late: BoolArray = per_client(False)
    aggregated: BoolArray = per_client(False)

    @property
    def is_open(self) -> bool:
        return self.status == OPEN

    def positions(self, clients: IntArray) -> IntArray:
        """Return where clients of the cohort stand in it."""
        return np.searchsorted(self.cohort, clients)

    @property
    def pending(self) -> IntArray:
        """The clients that have not been reported."""
        return np.asarray(self.cohort[self.outcome == PENDING])

    @property
    def fresh(self) -> BoolArray:
        """Which clients responded before the round closed."""
        return np.asarray((self.outcome == OK) & ~self.late)

    @property
    def is_complete(self) -> bool:
        """Whether the target is reached or no client is pending, so that the round closes."""
        n_fresh = int(np.count_nonzero(self.fresh))
        return n_fresh >= self.target_responses or not np.any(self.outcome == PENDING)

    @property
    def duration_s(self) -> float | None:
        """The longest latency that was waited for; None where no client reported one.

        With the target reached these are the latencies of fresh responses, else of all clients
        that were reported before the round closed.
        """
        if not np.isnan(self.measured_s):
            return self.measured_s
        waited = self.fresh
        if np.count_nonzero(waited) < self.target_responses:
            waited = (self.outcome >= 0) & ~self.late
        latency = self.latency_s[waited & ~np.isnan(self.latency_s)]
        return float(latency.max()) if len(latency) else None

    def record(self, ids: list[Any]) -> RoundRecord:
        """Return what is known of the round now, with the caller's ids."""
        reported = self.outcome >= 0
        fresh, late = self.fresh, self.late & (self.outcome == OK)
        loss = self.loss[fresh & ~np.isnan(self.loss)]

        def count(which: BoolArray) -> int | None:
            return int(np.count_nonzero(which)) if reported.any() else None

        return RoundRecord(
            round=self.number,
            cohort=tuple(ids[k] for k in self.cohort.tolist()),
            n_invited=self.n_invited,
            target_responses=self.target_responses,
            n_available=self.n_available,
            duration_s=self.duration_s,
            n_fresh=count(fresh),
            n_timeouts=count(self.outcome == TIMEOUT),
            n_failed=count(self.outcome == FAILED),
            n_late=count(late),
            is_discarded=self.is_discarded,
            train_loss=float(loss.mean()) if len(loss) else None,
        )

    def reindexed(self, place: IntArray) -> "Round":
        """Return the round with client k as place[k]; a client without a place is left out."""
        kept = place[self.cohort] >= 0
        columns = {name: getattr(self, name)[kept] for name in COLUMNS}
        columns["cohort"] = place[columns["cohort"]]
        return replace(self, **columns)


class Rounds:
    """The rounds that are open, or have pending responses, and the latest one; oldest first.

    A round is replaced when it changes, so a list of all rounds is a snapshot of them.
    """

    MAX_PENDING = 100_000
    """Pending responses at most; beyond it, those of the oldest rounds are abandoned."""

    def __init__(self, rounds: Iterable[Round] = ()) -> None:
        self._by_number: dict[int, Round] = {}
        self._of_client: dict[int, tuple[int, ...]] = {}  # rounds in which a client is pending
        self.n_pending = 0  # in all rounds
        for one in rounds:
            self._append(one)

    def __iter__(self) -> Iterator[Round]:
        return iter(list(self._by_number.values()))

    def __len__(self) -> int:
        return len(self._by_number)

    def get(self, number: int) -> Round | None:
        """Return a round that is open, has pending responses, or is the latest."""
        return self._by_number.get(number)

    @property
    def latest(self) -> Round | None:
        """The round that was opened last; None before the first."""
        return next(reversed(self._by_number.values()), None)

    def open(self) -> list[Round]:
        """Return the open rounds, oldest first."""
        return [one for one in self._by_number.values() if one.is_open]

    @property
    def in_flight(self) -> list[int]:
        """The clients with a pending response, those of the oldest round first."""
        pending = (one.pending.tolist() for one in self._by_number.values())
        return list(dict.fromkeys(chain.from_iterable(pending)))

    def pending_rounds(self, client: int) -> tuple[int, ...]:
        """Return the rounds in which a client is pending, oldest first."""
        return self._of_client.get(client, ())

    def add(self, round: Round, *, keep: int) -> None:  # noqa: A002
        """Add a round that was opened; older ones that need nothing more are dropped."""
        self._append(round)
        if aged := self._by_number.get(round.number - keep):
            self.release(aged, keep=keep)
        if self.n_pending > self.MAX_PENDING:
            for one in list(self)[:-1]:
                self.abandon(one.number, one.pending, keep=keep)
                if self.n_pending <= self.MAX_PENDING:
                    break

    def _append(self, round: Round) -> None:  # noqa: A002
        self._by_number[round.number] = round
        pending = round.pending.tolist()
        for client in pending:
            self._of_client[client] = (*self._of_client.get(client, ()), round.number)
        self.n_pending += len(pending)

    def change(self, number: int) -> Round:
        """Return a copy of a round that can be changed, and stands in its place from now on."""
        one = self._by_number[number]
        columns = {name: getattr(one, name).copy() for name in COLUMNS}
        self._by_number[number] = changed = replace(one, **columns)
        return changed

    def settle(self, round: Round, clients: IntArray) -> None:  # noqa: A002
        """Note that clients are not pending in a round any more."""
        for client in clients.tolist():
            others = tuple(n for n in self._of_client.pop(client) if n != round.number)
            if others:
                self._of_client[client] = others
            self.n_pending -= 1

    def abandon(self, number: int, clients: IntArray, *, keep: int) -> None:
        """Stop waiting for pending responses of clients to a round."""
        one = self.change(number)
        one.outcome[one.positions(clients)] = ABANDONED
        self.settle(one, clients)
        self.release(one, keep=keep)

    def release(self, round: Round, *, keep: int) -> None:  # noqa: A002
        """Drop a closed round without pending responses, unless it is one of the last few."""
        latest = self.latest
        is_recent = latest is not None and round.number > latest.number - keep
        if not round.is_open and not is_recent and not len(round.pending):
            self._by_number.pop(round.number, None)

    def release_all(self, *, keep: int) -> None:
        """Drop all rounds that need nothing more, as when fewer are kept from now on."""
        for one in self:
            self.release(one, keep=keep)

    def reindexed(self, place: IntArray, *, keep: int) -> "Rounds":
        """Return the rounds with client k as place[k]; those that need nothing more are dropped."""
        moved = Rounds(one.reindexed(place) for one in self)
        moved.release_all(keep=keep)
        return moved

    def counts(self, n_clients: int) -> tuple[IntArray, IntArray, IntArray]:
        """Return for each client the rounds in which it is pending, creditable and credited.

        It is creditable while it is pending, and with a fresh response as long as the credit of
        the round can be replaced.
        """
        pending, creditable, credited = np.zeros((3, n_clients), dtype=np.int64)
        for one in self._by_number.values():
            is_pending = one.outcome == PENDING
            is_replaceable = one.fresh & ~one.aggregated & (one.status != CONFIRMED)
            pending[one.cohort[is_pending]] += 1
            creditable[one.cohort[is_pending | is_replaceable]] += 1
            credited[one.cohort[one.aggregated]] += 1
        return pending, creditable, credited

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all rounds as arrays; rounds follow each other in those with a value a client."""
        rounds = list(self)
        arrays = {"size": np.array([len(one.cohort) for one in rounds], dtype=np.int64)}
        for name, start in leaves(Round.of(0)):
            values = [getattr(one, name) for one in rounds]
            is_column = isinstance(start, np.ndarray)
            joined = np.concatenate([start, *values]) if is_column else np.array(values)
            arrays[name] = joined.astype(np.asarray(start).dtype)
        return arrays

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, npt.NDArray[Any]], *, n_clients: int, last_round: int
    ) -> "Rounds":
        """Return what `to_arrays` stored, checked."""
        _check_arrays(arrays, n_clients, last_round)
        ends = np.cumsum(arrays["size"])
        values: dict[str, Any] = {
            name: np.split(arrays[name], ends) if name in COLUMNS else arrays[name].tolist()
            for name in FIELDS
        }
        rows = zip(*values.values(), strict=False)  # the last part after a split is empty
        return cls(Round(**dict(zip(values, row, strict=True))) for row in rows)


FIELDS = {one.name: one for one in fields(Round)}
COLUMNS = tuple(name for name, start in leaves(Round.of(0)) if isinstance(start, np.ndarray))
"""Fields of a round that hold one value for each client of the cohort."""


def _check_arrays(arrays: Mapping[str, npt.NDArray[Any]], n_clients: int, last_round: int) -> None:
    """Check that arrays of a file are those of rounds."""
    n_rounds, size = len(arrays["size"]), arrays["size"]
    if size.dtype != np.int64 or np.any((size < 0) | (size > len(arrays["cohort"]))):
        raise InvalidInput("rounds/size must count the clients of each cohort")
    for name, start in leaves(Round.of(0)):
        array, kind = arrays[name], np.asarray(start).dtype
        length = int(size.sum()) if name in COLUMNS else n_rounds
        if array.dtype != kind or array.shape != (length,):
            raise InvalidInput(f"rounds/{name} must hold {length:,} values of type {kind}")
        state.check_limits(f"rounds/{name}", FIELDS[name], array)
    numbers = arrays["number"]
    if np.any(np.diff(numbers) <= 0) or np.any(numbers < 1) or np.any(numbers > last_round):
        raise InvalidInput("rounds must be numbered in their order, up to the last round")
    if (n_rounds == 0) != (last_round == 0) or (n_rounds and numbers[-1] != last_round):
        raise InvalidInput("the last round is missing")
    is_open = np.repeat(arrays["status"] == OPEN, size)
    late, aggregated, outcome = (arrays[name] for name in ("late", "aggregated", "outcome"))
    if np.any((late | aggregated) & is_open):
        raise InvalidInput("a round is open that has late or aggregated responses")
    if np.any(late & (outcome < OK)) or np.any(aggregated & (outcome != OK)):
        raise InvalidInput("a client is late, or aggregated, that has not responded")
    cohort, of_round = arrays["cohort"], np.repeat(np.arange(n_rounds), size)
    is_same_round = np.diff(of_round) == 0
    if np.any(is_same_round & (np.diff(cohort) <= 0)) or np.any(cohort >= n_clients):
        raise InvalidInput("a cohort must hold distinct clients, sorted")
