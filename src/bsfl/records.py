"""The frozen records that cross the borders between rooms."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, Self, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from bsfl import checks
from bsfl.checks import LATENCY_RANGE as LATENCY_RANGE
from bsfl.errors import InvalidInput

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Rng = np.random.Generator

NOBODY: IntArray = np.zeros(0, dtype=np.int64)

Outcome = Literal["ok", "timeout", "failed", "late"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
OK, TIMEOUT, FAILED, LATE = range(4)
"""Positions in OUTCOMES, which is how a whole cohort's outcomes are stored."""


Numbers = TypeVar("Numbers", bound=npt.NDArray[Any])


def pick(array: Numbers, clients: IntArray) -> Numbers:
    """Return array[clients] for sorted distinct clients, without a copy when that is everyone."""
    if len(clients) == len(array):
        return array
    return array[clients]  # type: ignore[return-value]


PART = 32768
"""So many clients are looked at in one go: what is computed of them stays in a core's cache."""


def in_parts(compute: Callable[..., FloatArray], *arrays: npt.NDArray[Any]) -> FloatArray:
    """Return compute(*arrays), which looks at each client alone, part by part.

    In a large fleet most of the time would go into memory for what is computed on the way.
    """
    result = np.empty(len(arrays[0]))
    for start in range(0, len(result), PART):
        own = slice(start, start + PART)
        result[own] = compute(*(array[own] for array in arrays))
    return result


LARGEST_LOSS = 1e12
"""Largest size of a loss; a model whose loss is larger has diverged."""
LARGEST_FEATURE = 1e12
"""Largest size of a number that is told of a client beforehand."""
MOST_FEATURES = 10_000
"""Most numbers that are told of a client beforehand."""
MOST_SAMPLES = 10**12
"""Largest number of samples that a client may report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one client showed in one round.

    Attributes:
        latency: Seconds from the invitation to the answer; for a timeout, the seconds waited. May
            be left out only when the client failed.
        outcome: "ok" (the answer entered the model), "timeout" (no answer before the deadline),
            "failed" (an error, or a client known to be gone) or "late" (an answer that came when
            the round was over: it teaches how long the client takes, and counts for nothing else).
        loss: Local loss, for the selectors that want one; its size is at most 1e12.
        samples: Number of samples trained on, for the selectors that want it; at most 1e12.
    """

    latency: float | None = None
    outcome: Outcome = "ok"
    loss: float | None = None
    samples: int | None = None

    def __post_init__(self) -> None:
        checks.one_of("outcome", self.outcome, OUTCOMES)
        if self.latency is not None:
            checks.seconds("latency", self.latency)
        elif self.outcome != "failed":
            raise InvalidInput(
                f"latency is required when the outcome is {self.outcome!r}, got None"
            )
        if self.loss is not None:
            checks.between("loss", checks.finite("loss", self.loss), -LARGEST_LOSS, LARGEST_LOSS)
        if self.samples is not None:
            checks.natural("samples", self.samples, high=MOST_SAMPLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a policy is told about one round, as arrays over the clients that are reported.

    Attributes:
        clients: Distinct dense indices of the clients that are reported.
        latency: Seconds, NaN for a failure without a time.
        outcome: Positions in OUTCOMES: 0 ok, 1 timeout, 2 failed, 3 late. `answered` says who
            answered, in time or late.
        loss: Local losses, NaN where none was given.
        samples: Sample counts, NaN where none was given.
        chosen: Clients whose selection this report books: the whole cohort in the first report of
            a round, nobody in the later ones.
    """

    clients: IntArray
    latency: FloatArray
    outcome: npt.NDArray[np.int8]
    loss: FloatArray
    samples: FloatArray
    chosen: IntArray

    @property
    def answered(self) -> BoolArray:
        """Whether each client answered, in time or late."""
        return np.asarray((self.outcome == OK) | (self.outcome == LATE))

    @classmethod
    def of(cls, answers: Mapping[int, Observation], *, chosen: npt.ArrayLike) -> Self:
        """Return the arrays for single observations keyed by dense index.

        >>> Report.of({4: Observation(latency=2.5)}, chosen=[4, 9]).latency
        array([2.5])
        """
        seen = list(answers.values())

        def column(values: list[float | int | None]) -> FloatArray:
            return np.array([np.nan if v is None else v for v in values], dtype=np.float64)

        return cls(
            clients=np.fromiter(answers, dtype=np.int64, count=len(answers)),
            latency=column([o.latency for o in seen]),
            outcome=np.array([OUTCOMES.index(o.outcome) for o in seen], dtype=np.int8),
            loss=column([o.loss for o in seen]),
            samples=column([o.samples for o in seen]),
            chosen=np.asarray(chosen, dtype=np.int64),
        )


@dataclass(frozen=True, kw_only=True)
class Roster:
    """Who belongs to the fleet in a round and what its owner told about them.

    Arrays are indexed densely and never shrink: a client that left keeps its place. None means the
    plain case: everyone is a member, has been since round 1, and nothing is known of their data.

    Attributes:
        n_members: How many clients belong to the fleet now.
        members: Whether each client does.
        since: Round from which a client's participation counts: 1 for a founder, later for one
            that joined later or was away.
        samples: Local data size n_k, NaN where unknown.
        quality: Data quality q_k in (0, 1].
        features: What is known of each client before it is met, [client, feature], NaN where
            unknown.
    """

    n_members: int
    members: BoolArray | None = None
    since: IntArray | None = None
    samples: FloatArray | None = None
    quality: FloatArray | None = None
    features: FloatArray | None = None

    def kept(self, kept: BoolArray) -> "Roster":
        """Return the fleet as it was without clients that are not kept."""
        columns = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "n_members"}
        columns = {name: a[kept[: len(a)]] for name, a in columns.items() if a is not None}
        n_members = int(np.count_nonzero(columns.get("members", kept[: self.n_members])))
        return Roster(n_members=n_members, **columns)

    @cached_property
    def sizes(self) -> FloatArray:
        """n_k of every member, 0 for a client that left."""
        if self.samples is None:
            raise InvalidInput("this policy needs every client's samples; register them first")
        sizes = self.samples if self.members is None else np.where(self.members, self.samples, 0.0)
        n_unknown = int(np.count_nonzero(np.isnan(sizes)))
        if n_unknown:
            raise InvalidInput(
                "this policy needs every client's samples, "
                f"{n_unknown:,} of {self.n_members:,} clients have none; register them first"
            )
        return sizes

    @cached_property
    def significance(self) -> FloatArray:
        """d_k = q_k n_k of every member, 0 for a client that left."""
        return self.sizes if self.quality is None else self.sizes * self.quality

    @cached_property
    def total_size(self) -> float:
        return float(self.sizes.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundContext:
    """What a policy may know when it chooses: nothing of the fleet's truth.

    Attributes:
        t: Round number, starting at 1.
        available: Sorted distinct dense indices of the clients that can be chosen. `observe` must
            not use it: an answer may come in long after its round.
        cohort_size: How many to choose; all available ones when there are fewer.
        enough: How many answers end the round, fewer than are chosen under over-selection; 0: all.
        roster: Who belongs to the fleet; None for a plain fleet of equals.
        online_s: For how many seconds each of the available has been online, in their order; None
            where the server does not know.
        opportunity: e_k of every client, its fair number of answers by the rounds before in which
            it could be chosen: the sum of min(1, m / |available|) over them. None: nobody counted.
    """

    t: int
    available: IntArray
    cohort_size: int
    enough: int = 0
    roster: Roster | None = None
    online_s: FloatArray | None = None
    opportunity: FloatArray | None = None

    @property
    def quota(self) -> int:
        """m, how many answers enter the model."""
        return self.enough or self.cohort_size

    def n_members(self, n_known: int) -> int:
        """Return K, the size of the fleet, when `n_known` clients were ever met."""
        return n_known if self.roster is None else self.roster.n_members

    def rounds(self, clients: IntArray) -> int | IntArray:
        """Return for how many rounds, this one included, each client has been in the fleet."""
        if self.roster is None or self.roster.since is None:
            return self.t
        return self.t - self.roster.since[clients] + 1

    def fair(self, clients: IntArray, n_known: int) -> float | FloatArray:
        """Return e_k of clients, their fair number of answers so far, by their opportunities."""
        if self.opportunity is None:
            return self.rounds(clients) * self.quota / max(self.n_members(n_known), 1)
        return pick(self.opportunity, clients)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """What happened in one round.

    Attributes:
        t: Round number, starting at 1.
        cohort: The chosen clients: the caller's own ids in a Scheduler, dense indices in a
            simulation. Of rounds without a barrier: those whose answers were applied.
        kept: Those of them whose answers entered the model; None outside a simulation.
        cohort_size: How many were wanted.
        enough: How many answers end the round, fewer than are wanted under over-selection.
        n_available: How many could be chosen from.
        duration_s: How long the round took: the longest latency of those that were waited for;
            None where nobody measured it.
        clock_s: Virtual time at the end of the round; None outside a simulation.
        n_answered: Members whose answers entered the model, as far as they were reported; None
            where none was, and in a simulation.
        n_timeouts: Members that missed the deadline, likewise; a simulation counts them.
        n_failed: Members that failed, likewise.
        n_late: Members that answered when the round was over, likewise.
        regret: What the genie's cohort would have been worth more; None where it is not computed.
        train_loss: Mean loss that members whose answers entered the model told; None where nobody
            did.
        test_loss: Loss of the model on test data after the round; None where it was not evaluated.
        test_accuracy: Share of right answers on test data; None likewise.
        worst_label_accuracy: The same for the label that the model knows worst; None likewise.
    """

    t: int
    cohort: tuple[str, ...] | tuple[int, ...]
    cohort_size: int
    n_available: int
    enough: int | None = None
    kept: tuple[int, ...] | None = None
    duration_s: float | None = None
    clock_s: float | None = None
    n_timeouts: int | None = None
    n_answered: int | None = None
    n_failed: int | None = None
    n_late: int | None = None
    regret: float | None = None
    train_loss: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    worst_label_accuracy: float | None = None

    @property
    def short(self) -> bool:
        """Whether fewer clients were available than wanted, so that all of them were taken."""
        return self.n_available < self.cohort_size
