r"""The life of a round: open, responses, closed or discarded.

target reached, all reported, close(), or the limit of open rounds
open ──────────────────────────────────────────────▶ closed ──── close(aggregated=, discard=)
│ responses are fresh                                 │ responses are late     replaces the
▼                                                     ▼                        credit, once
latency, reliability and loss are learned          the same; credited if late = "apply"
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.types import (
    FAILED,
    MAX_LOSS,
    NO_CLIENTS,
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
class Round:
    """One round and what became of its cohort so far.

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

    number: int
    cohort: IntArray
    n_invited: int
    target_responses: int
    n_available: int
    deadline_s: float
    opened_s: float
    is_timed: bool = False
    status: int = OPEN
    is_discarded: bool = False
    is_reported: bool = False
    measured_s: float = float("nan")
    outcome: npt.NDArray[np.int8]
    latency_s: FloatArray
    loss: FloatArray
    late: BoolArray
    aggregated: BoolArray

    @classmethod
    def open(cls, cohort: IntArray, **numbers: Any) -> "Round":
        """Return a round that has just been opened."""
        n = len(cohort)
        return cls(
            cohort=cohort,
            **numbers,
            outcome=np.full(n, PENDING, dtype=np.int8),
            latency_s=np.full(n, np.nan),
            loss=np.full(n, np.nan),
            late=np.zeros(n, dtype=bool),
            aggregated=np.zeros(n, dtype=bool),
        )

    @property
    def is_open(self) -> bool:
        return self.status == OPEN

    def positions(self, clients: IntArray) -> IntArray:
        """Return where clients of the cohort stand in it; -1 for any other client."""
        if not len(self.cohort):
            return np.full(len(clients), -1)
        at = np.minimum(np.searchsorted(self.cohort, clients), len(self.cohort) - 1)
        return np.where(self.cohort[at] == clients, at, -1)

    def is_pending(self, client: int) -> bool:
        """Return whether a client is in the cohort and has not been reported."""
        at = int(np.searchsorted(self.cohort, client))
        return (
            at < len(self.cohort)
            and int(self.cohort[at]) == client
            and int(self.outcome[at]) == PENDING
        )

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
        fresh = self.fresh
        if np.count_nonzero(fresh) >= self.target_responses:
            waited = fresh
        else:
            waited = (self.outcome >= 0) & ~self.late
        latency = self.latency_s[waited]
        latency = latency[~np.isnan(latency)]
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

    def copy(self) -> "Round":
        """Return a copy whose arrays are its own; the cohort never changes."""
        columns = {name: getattr(self, name).copy() for name in COLUMNS}
        return replace(self, **columns)

    def restore(self, copy: "Round") -> None:
        """Take over everything that can change from a copy."""
        for name in (*COLUMNS, *NUMBERS):
            setattr(self, name, getattr(copy, name))

    def reindexed(self, place: IntArray) -> "Round":
        """Return the round with client k as place[k]; a client without a place is left out."""
        kept = place[self.cohort] >= 0
        columns = {name: getattr(self, name)[kept] for name in COLUMNS}
        return replace(self, cohort=place[self.cohort[kept]], **columns)


COLUMNS = ("outcome", "latency_s", "loss", "late", "aggregated")
"""Fields of a round that hold one value for each client of the cohort."""
NUMBERS = tuple(one.name for one in fields(Round) if one.name not in (*COLUMNS, "cohort"))
"""Fields of a round that hold one value."""


class Rounds:
    """The rounds that are open, or have pending responses, and the latest one; oldest first."""

    MAX_PENDING = 100_000
    """Pending responses at most; beyond it, those of the oldest rounds are abandoned."""

    def __init__(self, rounds: Iterable[Round] = ()) -> None:
        self._by_number = {one.number: one for one in rounds}
        self._of_client: dict[int, list[int]] = {}  # rounds in which a client is pending
        self.n_pending = 0  # in all rounds
        for one in self._by_number.values():
            self._add_pending(one)

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

    def pending_rounds(self, client: int) -> list[int]:
        """Return the rounds in which a client is pending, oldest first."""
        return list(self._of_client.get(client, ()))

    def add(self, round: Round, *, keep: int) -> None:  # noqa: A002
        """Add a round that was opened; older ones that need nothing more are dropped."""
        self._by_number[round.number] = round
        self._add_pending(round)
        if aged := self._by_number.get(round.number - keep):
            self.release(aged, keep=keep)
        self._abandon_oldest(keep)

    def _abandon_oldest(self, keep: int) -> None:
        for one in list(self._by_number.values())[:-1]:
            if self.n_pending <= self.MAX_PENDING:
                break
            pending = one.pending
            one.outcome[one.outcome == PENDING] = ABANDONED
            self.settle(one, pending.tolist())
            self.release(one, keep=keep)

    def _add_pending(self, round: Round) -> None:  # noqa: A002
        pending = round.pending.tolist()
        for client in pending:
            self._of_client.setdefault(client, []).append(round.number)
        self.n_pending += len(pending)

    def settle(self, round: Round, clients: Iterable[int]) -> None:  # noqa: A002
        """Note that clients are not pending in a round any more."""
        for client in clients:
            numbers = self._of_client[client]
            numbers.remove(round.number)
            if not numbers:
                del self._of_client[client]
            self.n_pending -= 1

    def release(self, round: Round, *, keep: int) -> None:  # noqa: A002
        """Drop a closed round without pending responses, unless it is one of the last few."""
        latest = self.latest
        is_recent = latest is not None and round.number > latest.number - keep
        if not round.is_open and not is_recent and not len(round.pending):
            self._by_number.pop(round.number, None)

    def snapshot(self, numbers: Iterable[int], clients: Iterable[int]) -> Callable[[], None]:
        """Snapshot these rounds, what is pending of clients, and which rounds there are."""
        by_number, n_pending = dict(self._by_number), self.n_pending
        copies = {number: by_number[number].copy() for number in numbers}
        of_client = {k: list(self._of_client.get(k, ())) for k in clients}

        def restore() -> None:
            for number, copy in copies.items():
                by_number[number].restore(copy)  # in place: older snapshots refer to this object
            self._by_number, self.n_pending = by_number, n_pending
            for client, rounds in of_client.items():
                if rounds:
                    self._of_client[client] = rounds
                else:
                    self._of_client.pop(client, None)

        return restore

    def reindexed(self, place: IntArray) -> "Rounds":
        """Return the same rounds with client k as place[k]."""
        return Rounds(one.reindexed(place) for one in self._by_number.values())

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
        rounds = list(self._by_number.values())
        arrays: dict[str, npt.NDArray[Any]] = {
            "size": np.array([len(one.cohort) for one in rounds], dtype=np.int64),
        }
        for name in NUMBERS:
            values = np.array([getattr(one, name) for one in rounds])
            arrays[name] = values.astype(KINDS[name])
        for name in ("cohort", *COLUMNS):
            parts = [getattr(one, name) for one in rounds]
            whole = np.concatenate(parts) if parts else NO_CLIENTS
            arrays[name] = whole.astype(KINDS[name])
        return arrays

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, npt.NDArray[Any]], *, n_clients: int, last_round: int
    ) -> "Rounds":
        """Return what `to_arrays` stored, checked."""
        _check_arrays(arrays, n_clients, last_round)
        ends = np.cumsum(arrays["size"]).tolist()
        rounds = []
        for i, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            numbers = {name: arrays[name][i].item() for name in NUMBERS}
            columns: dict[str, Any] = {
                name: arrays[name][start:end].copy() for name in ("cohort", *COLUMNS)
            }
            columns["outcome"] = columns["outcome"].astype(np.int8)
            rounds.append(Round(**numbers, **columns))
        return cls(rounds)


KINDS: dict[str, Any] = {
    **dict.fromkeys(("cohort", "size", "number", "n_invited", "target_responses"), np.int64),
    **dict.fromkeys(("n_available", "status", "outcome"), np.int64),
    **dict.fromkeys(("is_timed", "is_discarded", "is_reported", "late", "aggregated"), np.bool_),
    **dict.fromkeys(("deadline_s", "opened_s", "measured_s", "latency_s", "loss"), np.float64),
}
"""Types of the arrays in a file."""
RANGES: dict[str, tuple[float, float]] = {
    "outcome": (ABANDONED, len(OUTCOMES) - 1),
    "status": (OPEN, CONFIRMED),
    "latency_s": validation.LATENCY_RANGE,
    "loss": (-MAX_LOSS, MAX_LOSS),
    "n_available": (0, validation.LARGEST),
    "n_invited": (1, validation.LARGEST),
    "target_responses": (1, validation.LARGEST),
    "deadline_s": (0.0, validation.LARGEST_FLOAT),
    "measured_s": (0.0, validation.LARGEST_FLOAT),
    "opened_s": (-validation.LARGEST_FLOAT, validation.LARGEST_FLOAT),
}
"""Limits of numbers in a file; NaN stands for what is not known."""


def _check_arrays(arrays: Mapping[str, npt.NDArray[Any]], n_clients: int, last_round: int) -> None:
    """Check that arrays of a file are those of rounds."""
    n_rounds, size = len(arrays["size"]), arrays["size"]
    if np.any((size < 0) | (size > len(arrays["cohort"]))):
        raise InvalidInput("rounds/size must count the clients of each cohort")
    for name, kind in KINDS.items():
        array = arrays[name]
        of_clients = name in ("cohort", *COLUMNS)
        length = int(size.sum()) if of_clients else n_rounds
        if array.dtype != kind or array.shape != (length,):
            raise InvalidInput(f"rounds/{name} must hold {length:,} values of type {kind.__name__}")
        low, high = RANGES.get(name, (-np.inf, np.inf))
        wrong = (array < low) | (array > high)
        if wrong.any():
            raise InvalidInput(f"rounds/{name} holds {array[wrong][0]!s}, which cannot be")
    if np.isnan(arrays["opened_s"]).any():
        raise InvalidInput("rounds/opened_s must be numbers")
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
    ends = np.cumsum(size).tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        cohort = arrays["cohort"][start:end]
        if np.any(np.diff(cohort) <= 0) or np.any(cohort < 0) or np.any(cohort >= n_clients):
            raise InvalidInput("a cohort must hold distinct clients, sorted")
