"""What is remembered of the clients' answers: all of them alike, or the recent ones.

A memory keeps the number, the mean and the spread (sum of squared deviations) of what each client
showed. A report costs O(cohort); the others' numbers are brought up to date when they are read.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from bsfl import checks
from bsfl.records import FloatArray, IntArray, pick
from bsfl.registry import Registry
from bsfl.state import ClientState, State, per_client

LARGEST_VALUE, LARGEST_SPREAD = 1e10, 1e40
"""What a mean and a spread can be: a latency is at least 1e-9 s, and speeds are 1 over it."""


@dataclass(frozen=True, slots=True)
class ClientStats:
    """What is remembered of some clients.

    Attributes:
        answers: How many answers there ever were.
        count: How many of them it stands for; a fraction where old ones count less.
        mean: Mean of the values.
        spread: Sum of their squared deviations from the mean.
    """

    answers: IntArray
    count: IntArray | FloatArray
    mean: FloatArray
    spread: FloatArray


@runtime_checkable
class Memory(Protocol):
    """How values are remembered."""

    def init(self, n_clients: int) -> State:
        """Return the state before the first round."""

    def add(self, state: Any, clients: IntArray, t: int, values: FloatArray) -> None:
        """Take in values that clients showed in round t."""

    def recall(self, state: Any, clients: IntArray, t: int) -> ClientStats:
        """Return what is remembered of clients in round t."""

    def rounds(self, t: int) -> float:
        """Return how many of the first t rounds are remembered."""


@dataclass(slots=True, kw_only=True)
class LastingState(ClientState):
    """Number of answers, their mean and their spread."""

    observed: IntArray = per_client(0)
    mean: FloatArray = per_client(0.0, low=-LARGEST_VALUE, high=LARGEST_VALUE)
    spread: FloatArray = per_client(0.0, low=0.0, high=LARGEST_SPREAD)


@dataclass(frozen=True, slots=True)
class Lasting:
    """Everything counts for ever (eqs. update_c, update_mu)."""

    def init(self, n_clients: int) -> LastingState:
        return LastingState.of(n_clients)

    def add(self, state: LastingState, clients: IntArray, t: int, values: FloatArray) -> None:
        _extend(state, state.observed, clients, values)

    def recall(self, state: LastingState, clients: IntArray, t: int) -> ClientStats:
        answers = pick(state.observed, clients)
        return ClientStats(answers, answers, pick(state.mean, clients), pick(state.spread, clients))

    def rounds(self, t: int) -> float:
        return float(t)


@dataclass(slots=True, kw_only=True)
class FadingState(LastingState):
    """Averages that lose weight with every round.

    Attributes:
        weight: What a client's answers counted for in round `last`.
        last: Round of its last answer.
    """

    weight: FloatArray = per_client(0.0, low=0.0, high=checks.LARGEST)
    last: IntArray = per_client(0)


@dataclass(frozen=True, slots=True)
class Discounted:
    """An answer of s rounds ago counts gamma^s (D-UCB, Garivier and Moulines 2011)."""

    REMEMBERS_BY: ClassVar = ("gamma",)

    gamma: float

    def __post_init__(self) -> None:
        checks.between("gamma", self.gamma, 0.0, 1.0)

    def init(self, n_clients: int) -> FadingState:
        return FadingState.of(n_clients)

    def add(self, state: FadingState, clients: IntArray, t: int, values: FloatArray) -> None:
        faded = self._faded(state, clients, t)
        state.weight[clients] *= faded
        state.spread[clients] *= faded
        state.last[clients] = np.maximum(state.last[clients], t)
        state.observed[clients] += 1
        _extend(state, state.weight, clients, values)

    def recall(self, state: FadingState, clients: IntArray, t: int) -> ClientStats:
        faded = self._faded(state, clients, t)
        count, spread = state.weight[clients] * faded, state.spread[clients] * faded
        return ClientStats(pick(state.observed, clients), count, state.mean[clients], spread)

    def rounds(self, t: int) -> float:
        """Return 1 + gamma + ... + gamma^(t - 1)."""
        return float(t) if self.gamma == 1.0 else (1 - self.gamma**t) / (1 - self.gamma)

    def _faded(self, state: FadingState, clients: IntArray, t: int) -> FloatArray:
        return np.asarray(self.gamma ** np.maximum(t - state.last[clients], 0.0))


@dataclass(slots=True, kw_only=True)
class WindowState(LastingState):
    """Averages of two blocks of rounds, the current one and the one before.

    `observed` counts all answers; the other names without `older` stand for the current block.

    Attributes:
        block: Number of the client's current block.
        recent: Answers in it.
        older_count, older_mean, older_spread: What the block before it held.
    """

    block: IntArray = per_client(0)
    recent: FloatArray = per_client(0.0, low=0.0, high=checks.LARGEST)
    older_count: FloatArray = per_client(0.0, low=0.0, high=checks.LARGEST)
    older_mean: FloatArray = per_client(0.0, low=-LARGEST_VALUE, high=LARGEST_VALUE)
    older_spread: FloatArray = per_client(0.0, low=0.0, high=LARGEST_SPREAD)


@dataclass(frozen=True, slots=True)
class Windowed:
    """Answers of the last half to whole window count, older ones do not.

    A window that slides with every round would have to keep every answer. Two blocks of half a
    window keep six numbers a client: the current block and the one before.
    """

    REMEMBERS_BY: ClassVar = ("window",)

    window: int

    def __post_init__(self) -> None:
        checks.natural("window", self.window, low=2)

    def init(self, n_clients: int) -> WindowState:
        return WindowState.of(n_clients)

    def add(self, state: WindowState, clients: IntArray, t: int, values: FloatArray) -> None:
        age = self._block(t) - state.block[clients]
        stale, gone = clients[age >= 1], clients[age >= 2]
        recent = state.recent, state.mean, state.spread
        older = state.older_count, state.older_mean, state.older_spread
        for now, before in zip(recent, older, strict=True):
            before[stale], now[stale] = now[stale], 0.0
        state.older_count[gone] = state.older_spread[gone] = 0.0
        state.block[stale] = self._block(t)
        state.observed[clients] += 1
        _extend(state, state.recent, clients, values)

    def recall(self, state: WindowState, clients: IntArray, t: int) -> ClientStats:
        age = self._block(t) - state.block[clients]
        recent = np.where(age <= 1, state.recent[clients], 0.0)
        older = np.where(age <= 0, state.older_count[clients], 0.0)
        count = recent + older
        part = older / np.maximum(count, 1e-300)
        gap = state.older_mean[clients] - state.mean[clients]
        mean = state.mean[clients] + part * gap
        spread = np.where(age <= 1, state.spread[clients], 0.0)
        spread += np.where(age <= 0, state.older_spread[clients], 0.0)
        spread += recent * part * gap**2
        return ClientStats(pick(state.observed, clients), count, mean, spread)

    def rounds(self, t: int) -> float:
        return float(min(t, self.window))

    def _block(self, t: int) -> int:
        return t // max(1, self.window // 2)


MEMORIES: Registry[type] = Registry(
    "memory", {"lasting": Lasting, "discounted": Discounted, "windowed": Windowed}
)


def _extend(
    state: LastingState, count: IntArray | FloatArray, clients: IntArray, values: FloatArray
) -> None:
    """Add one value to the count, mean and spread of each client (Welford 1962)."""
    before = count[clients]
    step = values - state.mean[clients]
    with np.errstate(invalid="ignore"):
        state.spread[clients] += step**2 * before / (before + 1)
    state.mean[clients] += step / (before + 1)
    count[clients] += 1
