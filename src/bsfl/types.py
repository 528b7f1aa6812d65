"""The records that cross module borders: observations, reports, contexts, plans, cohorts.

A policy sees arrays over dense indices (RoundContext, RoundReport); the caller of a Scheduler sees
their own ids (Cohort, Observation, RoundRecord).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.validation import LATENCY_RANGE as LATENCY_RANGE

if TYPE_CHECKING:
    from bsfl._core.pool import PoolView
    from bsfl._core.task import TaskView

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Rng = np.random.Generator
ClientId = str | int
State = Any
"""A dataclass of arrays (first axis: clients), plain numbers and further states; None: nothing."""
OverSelection = float | Literal["auto"]
"""How many clients are invited per target response; "auto": by how reliable clients have been."""

NO_CLIENTS: IntArray = np.zeros(0, dtype=np.int64)
NO_NUMBERS: FloatArray = np.zeros(0)

Outcome = Literal["ok", "timeout", "failed"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
OK, TIMEOUT, FAILED = range(3)
"""Positions in OUTCOMES, which is how the outcomes of a whole cohort are stored."""

MAX_LOSS = 1e12
"""Largest size of a loss; a model whose loss is larger has diverged."""
MAX_FEATURE = 1e12
"""Largest size of a feature of a client."""
MAX_FEATURES = 10_000
"""Largest number of features of a client."""
MAX_SAMPLES = 10**12
"""Largest number of samples that a client may report."""

MIN_OVER_SELECTION, MAX_OVER_SELECTION = 1.3, 2.0
"""Limits of over-selection "auto"."""

Numbers = TypeVar("Numbers", bound=npt.NDArray[Any])


def pick(array: Numbers, clients: IntArray) -> Numbers:
    """Return array[clients] for sorted distinct clients, without a copy when that is everyone."""
    if len(clients) == len(array):
        return array
    return array[clients]  # type: ignore[return-value]


def without(clients: IntArray, group: IntArray) -> IntArray:
    """Return the clients that are not in a sorted group; O(clients log group)."""
    first, after = (group.searchsorted(clients, side) for side in ("left", "right"))
    return np.asarray(clients[first == after])


CHUNK = 32768
"""Clients that are computed in one go: intermediate results stay in a core's cache."""


def in_chunks(compute: Callable[..., FloatArray], *arrays: npt.NDArray[Any]) -> FloatArray:
    """Return compute(*arrays), an elementwise function, evaluated chunk by chunk.

    With many clients most of the time would go into memory for intermediate results.
    """
    result = np.empty(len(arrays[0]))
    for start in range(0, len(result), CHUNK):
        part = slice(start, start + CHUNK)
        result[part] = compute(*(array[part] for array in arrays))
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The result of one invitation.

    Whether a response is fresh or late follows from its round and is not part of it.

    >>> Observation(latency_s=3.2, loss=0.7).outcome
    'ok'

    Attributes:
        latency_s: Seconds from the invitation to the response; for a timeout, the seconds waited.
            It may be left out only when the client failed.
        outcome: "ok" (the client responded), "timeout" (no response before the deadline) or
            "failed" (an error, a client known to be gone, or a response that cannot be used).
        loss: Local loss of the model as received, for policies that use it; at most 1e12.
        samples: Number of samples trained on, for policies that use it; at most 1e12.
    """

    latency_s: float | None = None
    outcome: Outcome = "ok"
    loss: float | None = None
    samples: int | None = None

    def __post_init__(self) -> None:
        if self.outcome != "ok":  # as most are
            validation.one_of("outcome", self.outcome, OUTCOMES)
        if self.latency_s is not None:
            validation.seconds("latency_s", self.latency_s)
        elif self.outcome != "failed":
            raise InvalidInput(
                f"latency_s is required when the outcome is {self.outcome!r}, got None"
            )
        if self.loss is not None:
            validation.between("loss", validation.finite("loss", self.loss), -MAX_LOSS, MAX_LOSS)
        if self.samples is not None:
            validation.natural("samples", self.samples, high=MAX_SAMPLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """What a policy learns from: results of invitations to one round, as arrays over clients.

    Attributes:
        round: The round that the clients were invited to.
        staleness: How many rounds were opened after it.
        clients: Distinct dense indices of the clients that are reported.
        outcome: Positions in OUTCOMES: 0 ok, 1 timeout, 2 failed.
        latency_s: Seconds, NaN for a failure without a time.
        loss: Local losses, NaN where none was reported.
        samples: Sample counts, NaN where none is known.
        invited: The whole cohort in the first report of a round (an empty one at the close if no
            response came), no client in later ones.
        dropped: Whether the responses came late and are not applied to the model.
    """

    round: int = 0
    staleness: int = 0
    clients: IntArray
    outcome: npt.NDArray[np.int8]
    latency_s: FloatArray
    loss: FloatArray
    samples: FloatArray
    invited: IntArray
    dropped: bool = False

    @property
    def responded(self) -> BoolArray:
        """Whether each client responded, in time or late."""
        return np.asarray(self.outcome == OK)

    @property
    def usable(self) -> BoolArray:
        """Whether each client sent a response that may enter the model."""
        return np.asarray((self.outcome == OK) & (not self.dropped))

    @classmethod
    def of(
        cls,
        observations: Mapping[int, Observation],
        *,
        invited: npt.ArrayLike = (),
        round: int = 0,  # noqa: A002
        staleness: int = 0,
        dropped: bool = False,
    ) -> Self:
        """Return the report of single observations keyed by dense index.

        >>> RoundReport.of({4: Observation(latency_s=2.5)}, invited=[4, 9]).latency_s
        array([2.5])
        """
        values = list(observations.values())

        def column(numbers: list[float | int | None]) -> FloatArray:
            return np.array([np.nan if x is None else x for x in numbers], dtype=np.float64)

        return cls(
            round=round,
            staleness=staleness,
            clients=np.fromiter(observations, dtype=np.int64, count=len(observations)),
            outcome=np.array([OUTCOMES.index(o.outcome) for o in values], dtype=np.int8),
            latency_s=column([o.latency_s for o in values]),
            loss=column([o.loss for o in values]),
            samples=column([o.samples for o in values]),
            invited=np.asarray(invited, dtype=np.int64),
            dropped=dropped,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundContext:
    """What a policy may know about a round; it never holds what only a simulator can know.

    Attributes:
        round: Round number, starting at 1.
        kind: "synchronous" (a round waits for its responses) or "buffered" (clients are invited
            one at a time and responses are applied in batches).
        now_s: Time on the caller's clock when the round was opened.
        available: Sorted distinct dense indices of the clients that can be selected; empty in
            `observe` and `close`.
        n_invited: How many clients to select; all available ones when there are fewer.
        target_responses: m, how many responses the round needs; fewer than are invited under
            over-selection.
        pool: Statistics and attributes of the clients.
        task: Statistics of this training job: invitations, participations, fair counts.
        online_s: For how many seconds each available client has been online; None: not known.
    """

    round: int
    kind: Literal["synchronous", "buffered"] = "synchronous"
    now_s: float = 0.0
    available: IntArray
    n_invited: int
    target_responses: int
    pool: "PoolView"
    task: "TaskView"
    online_s: FloatArray | None = None

    @property
    def n_clients(self) -> int:
        """K, the number of clients that are members now."""
        return self.pool.n_members

    def rounds(self, clients: IntArray) -> int | IntArray:
        """Return for how many rounds, this one included, each client has been a member.

        0 for a client that has come back since, whose rounds count from later than this one.
        """
        joined = self.task.joined_round
        return self.round if joined is None else np.maximum(self.round - joined[clients] + 1, 0)

    def served(self, clients: IntArray) -> IntArray:
        """Return how often clients had their chance: invitations without dropped responses.

        A timeout or a failure counts as a chance: a client that never responds would otherwise be
        selected in every round.
        """
        return pick(self.task.invitations, clients) - pick(self.task.dropped, clients)

    def fair_count(self, clients: IntArray) -> FloatArray:
        """Return e_k of clients: their fair number of participations in the rounds so far."""
        return pick(self.task.fair_count, clients)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedRound:
    """How a round ended, as a policy's `close` sees it.

    Attributes:
        round: Round number.
        aggregated: Dense indices of the clients whose fresh responses entered the model.
        late: Those of its clients that have not been reported yet.
        discarded: Whether the round changed no model.
        duration_s: How long it took; None where nothing was measured.
        closed_s: Time on the caller's clock.
    """

    round: int
    aggregated: IntArray
    late: IntArray
    discarded: bool
    duration_s: float | None
    closed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """The numbers of a round.

    >>> plan = RoundPlan(target_responses=10, over_selection=1.25, deadline_s=60.0)
    >>> plan.max_invited, plan.due_s(), plan.expiry_s()
    (13, 60.0, 120.0)

    Attributes:
        target_responses: m, how many responses a round needs; the round closes with the m-th.
        over_selection: How many clients are invited per target response, or "auto": as many as it
            takes, given how reliable the clients have been.
        deadline_s: Seconds after which a round closes without the missing responses. None: it
            waits for every client, or for as long as the caller says.
        min_responses: Responses without which the deadline does not close a round.
        late: What becomes of a response to a closed round: "apply" it when it comes, or "drop" it.
            Its latency is learned in either case.
        max_staleness: Rounds after which a late response is dropped; None: no limit.
        lifetime_s: Seconds until an invitation expires; until then its client is not selected
            again. None: twice the deadline for rounds that are followed in real time.
        max_wait_s: Seconds after which any response is overdue, with or without a deadline; None:
            no limit.
    """

    target_responses: int
    over_selection: OverSelection = 1.0
    deadline_s: float | None = None
    min_responses: int = 0
    late: Literal["apply", "drop"] = "apply"
    max_staleness: int | None = None
    lifetime_s: float | None = None
    max_wait_s: float | None = None

    def __post_init__(self) -> None:
        validation.one_of("late", self.late, ("apply", "drop"))
        m, least = self.target_responses, self.min_responses
        numbers: dict[str, Any] = {
            "target_responses": validation.natural("target_responses", m),
            "over_selection": validation.over_selection(self.over_selection),
            "min_responses": validation.natural("min_responses", least, low=0),
        }
        if least > m:
            raise InvalidInput(f"min_responses must not exceed the cohort_size of {m}, got {least}")
        if least and self.deadline_s is None:
            raise InvalidInput(
                f"min_responses={least} needs a deadline_s, or a policy with tau_max"
            )
        for name in ("deadline_s", "lifetime_s", "max_wait_s"):
            if (value := getattr(self, name)) is not None:
                numbers[name] = validation.positive(name, value)
        if self.lifetime_s is not None:
            validation.at_least("lifetime_s", self.lifetime_s, self.deadline_s or 0.0)
        if self.max_staleness is not None:
            numbers["max_staleness"] = validation.natural(
                "max_staleness", self.max_staleness, low=0
            )
        for name, number in numbers.items():  # numbers of numpy become plain ones
            object.__setattr__(self, name, number)

    @property
    def max_invited(self) -> int:
        """The largest number of clients that a round invites."""
        return max_invited(self.over_selection, self.target_responses)

    def due_s(self, timeout_s: float | None = None) -> float:
        """Return after how many seconds a response is overdue, given the caller's own timeout."""
        limits = self.deadline_s, timeout_s, self.max_wait_s
        return min(limit or math.inf for limit in limits)

    def expiry_s(self, timeout_s: float | None = None) -> float:
        """Return after how many seconds an invitation expires."""
        due_s = self.due_s(timeout_s)
        return max(self.lifetime_s or 2.0 * due_s, due_s)

    def limit_s(self, timeout_s: float | None = None) -> float:
        """Return after how many seconds a round closes even without its min_responses."""
        return min(self.expiry_s(timeout_s), timeout_s or math.inf)


def max_invited(over_selection: OverSelection, target_responses: int) -> int:
    """Return how many clients are invited at most.

    >>> max_invited(1.25, 10), max_invited("auto", 10)
    (13, 20)
    """
    factor = MAX_OVER_SELECTION if over_selection == "auto" else over_selection
    return math.ceil(round(factor * target_responses, 6))


class Cohort(list[Any]):
    """The clients that were selected for a round: a list of the caller's own ids.

    Attributes:
        round: Round number, to pass to `observe` and `close`.
        n_invited: How many clients were to be invited.
        target_responses: How many responses close the round.
        deadline_s: Seconds after which the round closes without the missing responses, if set.
        opened_s: Time on the caller's clock.
        pending: The clients that had not been reported when this object was made.
        work: Amount of work per client; empty: every client does the same.
    """

    def __init__(
        self,
        clients: Iterable[ClientId],
        *,
        round: int,  # noqa: A002
        n_invited: int,
        target_responses: int,
        deadline_s: float | None = None,
        opened_s: float = 0.0,
        pending: Iterable[ClientId] | None = None,
    ) -> None:
        super().__init__(clients)
        self.round = round
        self.n_invited = n_invited
        self.target_responses = target_responses
        self.deadline_s = deadline_s
        self.opened_s = opened_s
        self.pending: list[Any] = list(self if pending is None else pending)
        self.work: dict[ClientId, float] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """What happened in one round.

    Attributes:
        round: Round number, starting at 1.
        cohort: The invited clients: the caller's own ids in a Scheduler, dense indices in a
            simulation. In buffered rounds: those whose responses were applied.
        kept: Those whose responses entered the model; None outside a simulation.
        n_invited: How many clients were to be invited.
        target_responses: How many responses close the round.
        n_available: How many clients could be selected.
        duration_s: How long the round took: the longest latency that was waited for; None where
            nothing was measured.
        clock_s: Virtual time at the end of the round; None outside a simulation.
        n_fresh: Responses that came before the round closed, as far as they were reported; None
            where no client was reported, and in a simulation.
        n_timeouts, n_failed, n_late: Timeouts, failures and late responses, likewise.
        is_discarded: Whether the round changed no model.
        regret: What the oracle's cohort would have earned more; None where it is not computed.
        train_loss: Mean loss that clients reported whose responses entered the model; None where
            none did.
        test_loss: Loss of the model on test data after the round; None where it was not evaluated.
        test_accuracy: Share of correct predictions on test data; None likewise.
        worst_label_accuracy: The same for the label that the model predicts worst; None likewise.
    """

    round: int
    cohort: tuple[str, ...] | tuple[int, ...]
    n_invited: int
    n_available: int
    target_responses: int | None = None
    kept: tuple[int, ...] | None = None
    duration_s: float | None = None
    clock_s: float | None = None
    n_timeouts: int | None = None
    n_fresh: int | None = None
    n_failed: int | None = None
    n_late: int | None = None
    is_discarded: bool = field(default=False)
    regret: float | None = None
    train_loss: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    worst_label_accuracy: float | None = None

    @property
    def is_short(self) -> bool:
        """Whether fewer clients were available than were to be invited."""
        return self.n_available < self.n_invited
