"""Memories of the clients' values: all of them count equally, or recent ones count more.

A memory keeps the number, the mean and the spread (sum of squared deviations) of each client's
values. A report costs O(cohort); the moments of other clients are discounted when they are read.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from bsfl import validation
from bsfl._core.registry import Registry
from bsfl._core.state import ROUNDS, ClientState, per_client
from bsfl.types import FAILED, FloatArray, IntArray, RoundContext, RoundReport, State, pick

LARGEST_VALUE, LARGEST_SPREAD = 1e10, 1e40
"""Limits of a mean and a spread: a latency is at least 1e-9 s, and a speed is 1 over it."""


@dataclass(frozen=True, slots=True)
class RunningMoments:
    """Count, mean and spread of the values of some clients.

    Attributes:
        observed: How many values were observed.
        count: How many of them count; a fraction if old ones count less.
        mean: Mean of the values.
        spread: Sum of their squared deviations from the mean.
    """

    observed: IntArray
    count: IntArray | FloatArray
    mean: FloatArray
    spread: FloatArray


@runtime_checkable
class Memory(Protocol):
    """Which values of a client count, and how much."""

    def init(self, n_clients: int) -> State:
        """Return the state before the first round."""

    def add(self, state: Any, clients: IntArray, t: int, values: FloatArray) -> None:
        """Add values of clients, observed in round t."""

    def recall(self, state: Any, clients: IntArray, t: int) -> RunningMoments:
        """Return the moments of clients in round t."""

    def rounds(self, t: int) -> float:
        """Return how many of the first t rounds count."""


@dataclass(slots=True, kw_only=True)
class CumulativeState(ClientState):
    """Number of values, their mean and their spread."""

    observed: IntArray = per_client(0, high=ROUNDS)
    mean: FloatArray = per_client(0.0, low=-LARGEST_VALUE, high=LARGEST_VALUE)
    spread: FloatArray = per_client(0.0, low=0.0, high=LARGEST_SPREAD)


@dataclass(frozen=True, slots=True)
class CumulativeMean:
    """All values count equally (eqs. update_c, update_mu)."""

    def init(self, n_clients: int) -> CumulativeState:
        return CumulativeState.of(n_clients)

    def add(self, state: CumulativeState, clients: IntArray, t: int, values: FloatArray) -> None:
        _extend(state, state.observed, clients, values)

    def recall(self, state: CumulativeState, clients: IntArray, t: int) -> RunningMoments:
        observed = pick(state.observed, clients)
        return RunningMoments(
            observed, observed, pick(state.mean, clients), pick(state.spread, clients)
        )

    def rounds(self, t: int) -> float:
        return float(t)


@dataclass(slots=True, kw_only=True)
class FadingState(CumulativeState):
    """Averages that lose weight with every round.

    Attributes:
        weight: How much a client's values counted in round `last`.
        last: Round of its last value.
    """

    weight: FloatArray = per_client(0.0, low=0.0, high=validation.LARGEST)
    last: IntArray = per_client(0, high=ROUNDS)


@dataclass(frozen=True, slots=True)
class Discounted:
    """A value of s rounds ago counts gamma^s (D-UCB, Garivier and Moulines 2011)."""

    state_keys: ClassVar = ("gamma",)

    gamma: float

    def __post_init__(self) -> None:
        validation.between("gamma", self.gamma, 0.0, 1.0)

    def init(self, n_clients: int) -> FadingState:
        return FadingState.of(n_clients)

    def add(self, state: FadingState, clients: IntArray, t: int, values: FloatArray) -> None:
        discount = self._discount(state, clients, t)
        state.weight[clients] *= discount
        state.spread[clients] *= discount
        state.last[clients] = np.maximum(state.last[clients], t)
        state.observed[clients] += 1
        _extend(state, state.weight, clients, values)

    def recall(self, state: FadingState, clients: IntArray, t: int) -> RunningMoments:
        discount = self._discount(state, clients, t)
        count, spread = state.weight[clients] * discount, state.spread[clients] * discount
        return RunningMoments(pick(state.observed, clients), count, state.mean[clients], spread)

    def rounds(self, t: int) -> float:
        """Return 1 + gamma + ... + gamma^(t - 1)."""
        return float(t) if self.gamma == 1.0 else (1 - self.gamma**t) / (1 - self.gamma)

    def _discount(self, state: FadingState, clients: IntArray, t: int) -> FloatArray:
        """Return gamma^s for the s rounds since each client's last value."""
        return np.asarray(self.gamma ** np.maximum(t - state.last[clients], 0.0))


@dataclass(slots=True, kw_only=True)
class WindowState(CumulativeState):
    """Averages of two blocks of rounds, the current one and the one before.

    `observed` counts all values; `mean` and `spread` are those of the current block.

    Attributes:
        block: Number of the client's current block.
        recent: Number of values in it.
        older_count, older_mean, older_spread: The moments of the block before it.
    """

    block: IntArray = per_client(0, high=ROUNDS)
    recent: FloatArray = per_client(0.0, low=0.0)
    older_count: FloatArray = per_client(0.0, low=0.0)
    older_mean: FloatArray = per_client(0.0, low=-LARGEST_VALUE, high=LARGEST_VALUE)
    older_spread: FloatArray = per_client(0.0, low=0.0, high=LARGEST_SPREAD)


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Values of the last half to whole window count, older ones do not.

    A window that slides with every round would have to store every value. Two blocks of half a
    window, the current one and the one before, need six numbers a client.
    """

    state_keys: ClassVar = ("window",)

    window: int

    def __post_init__(self) -> None:
        validation.natural("window", self.window, low=2)

    def init(self, n_clients: int) -> WindowState:
        return WindowState.of(n_clients)

    def add(self, state: WindowState, clients: IntArray, t: int, values: FloatArray) -> None:
        age = self._block(t) - state.block[clients]
        moved_on, expired = clients[age >= 1], clients[age >= 2]
        for current, older in (
            (state.recent, state.older_count),
            (state.mean, state.older_mean),
            (state.spread, state.older_spread),
        ):
            older[moved_on], current[moved_on] = current[moved_on], 0.0
        state.older_count[expired] = state.older_spread[expired] = 0.0
        state.block[moved_on] = self._block(t)
        state.observed[clients] += 1
        _extend(state, state.recent, clients, values)

    def recall(self, state: WindowState, clients: IntArray, t: int) -> RunningMoments:
        age = self._block(t) - state.block[clients]
        recent = np.where(age <= 1, state.recent[clients], 0.0)
        older = np.where(age <= 0, state.older_count[clients], 0.0)
        count = recent + older
        fraction = older / np.maximum(count, 1e-300)
        gap = state.older_mean[clients] - state.mean[clients]
        mean = state.mean[clients] + fraction * gap
        spread = np.where(age <= 1, state.spread[clients], 0.0)
        spread += np.where(age <= 0, state.older_spread[clients], 0.0)
        spread += recent * fraction * gap**2
        return RunningMoments(pick(state.observed, clients), count, mean, spread)

    def rounds(self, t: int) -> float:
        return float(min(t, self.window))

    def _block(self, t: int) -> int:
        return t // max(1, self.window // 2)


MEMORIES: Registry[type] = Registry(
    "memory",
    {"cumulative-mean": CumulativeMean, "discounted": Discounted, "sliding-window": SlidingWindow},
)


def _extend(
    state: CumulativeState, count: IntArray | FloatArray, clients: IntArray, values: FloatArray
) -> None:
    """Add one value to the count, mean and spread of each client (Welford 1962)."""
    before = count[clients]
    step = values - state.mean[clients]
    with np.errstate(invalid="ignore"):
        state.spread[clients] += step**2 * before / (before + 1)
    state.mean[clients] += step / (before + 1)
    count[clients] += 1


@dataclass(slots=True, kw_only=True)
class Averages(ClientState):
    """How often each client was observed, and the mean of its values.

    A policy's index counts invitations (c_k), not observations: otherwise the index of a client
    that no longer responds would grow for ever.
    """

    observed: IntArray = per_client(0, high=ROUNDS)
    mean: FloatArray = per_client(0.0)

    def learn(self, report: RoundReport, values: FloatArray) -> None:
        """Move the means of the reported clients (eq. update_mu)."""
        clients = report.clients
        self.observed[clients] += 1
        self.mean[clients] += (values - self.mean[clients]) / self.observed[clients]


@dataclass(slots=True, kw_only=True)
class Queued(Averages):
    r"""Averages and queues D_k <- max(D_k + share_k - [k was selected], 0) that start at 0.

    Between two selections a queue grows by its share each round, so it is stored as of the client's
    last selection, with the number of its next round: O(cohort) a round. If shares change because
    clients join or leave, all rounds since then count with the new share.
    """

    queue: FloatArray = per_client(0.0, low=0.0)
    queue_round: IntArray = per_client(1, high=ROUNDS)

    def queues(
        self, context: RoundContext, clients: IntArray, share: float | FloatArray
    ) -> FloatArray:
        """Return D_k of clients at the start of this round."""
        waited = context.rounds(clients) - self.queue_round[clients]
        return self.queue[clients] + share * waited

    def serve(self, context: RoundContext, invited: IntArray, share: float | FloatArray) -> None:
        """Record the selection of clients in the round of the context."""
        next_round = context.rounds(invited) + 1
        is_overtaken = next_round <= self.queue_round[invited]  # the queue has grown since
        grown = self.queues(context, invited, share) + share
        grown = np.where(is_overtaken, self.queue[invited], grown)
        self.queue[invited] = np.maximum(grown - 1.0, 0.0)
        self.queue_round[invited] = np.maximum(next_round, self.queue_round[invited])


def censored_latency(report: RoundReport, tau_max: float | None) -> FloatArray:
    """Return the latency that each result stands for, in seconds.

    A response counts with its latency, at most tau_max. A timeout is censored: the response would
    have taken at least the deadline, tau_max or else the time waited. A failure counts as the
    slowest possible response: tau_max, or infinite without a deadline.
    """
    if tau_max is None:
        return np.where(report.outcome == FAILED, np.inf, report.latency_s)
    return np.where(report.responded, np.minimum(report.latency_s, tau_max), tau_max)
