"""What is remembered of the clients' answers: all of them alike, or the recent ones.

A memory keeps the number, the mean and the spread (sum of squared deviations) of what each client
showed. A report costs O(cohort); the others' numbers are brought up to date when they are read.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from bsfl import checks
from bsfl.estimation.averages import Averages
from bsfl.records import FloatArray, IntArray, pick


@dataclass(slots=True)
class BsflState(Averages):
    """What BSFL has learned: `mean` is the mean of 1/tau, so tau_min may be learned late.

    Attributes:
        spread: Sum of squared deviations from the mean.
        loss: Last loss each client reported, NaN if it never did.
        latency_min: Smallest latency seen, the estimate of tau_min; infinite before the first.
        latency_max: Largest latency seen; 0 before the first.
        alpha: The weight that a floor has led to; 0 before the first round.
        centre, scale, gram, moment, pooled: What bsfl.estimation.lognormal knows of the population.
    """

    spread: FloatArray = field(init=False)
    loss: FloatArray = field(init=False)
    latency_min: float = field(init=False)
    latency_max: float = field(init=False)
    alpha: float = field(init=False)
    centre: FloatArray = field(init=False)
    scale: FloatArray = field(init=False)
    gram: FloatArray = field(init=False)
    moment: FloatArray = field(init=False)
    pooled: FloatArray = field(init=False)

    def __post_init__(self, n_clients: int) -> None:
        Averages.__post_init__(self, n_clients)
        self.spread = np.zeros(n_clients)
        self.loss = np.full(n_clients, np.nan)
        self.latency_min, self.latency_max, self.alpha = np.inf, 0.0, 0.0
        for name in ("centre", "scale", "moment", "pooled"):
            setattr(self, name, np.zeros(0))
        self.gram = np.zeros((0, 0))


@dataclass(frozen=True, slots=True)
class ClientStats:
    """What is remembered of some clients.

    Attributes:
        count: How many answers it stands for; a fraction where old ones count less.
        mean: Mean of the values.
        spread: Sum of their squared deviations from the mean.
    """

    count: IntArray | FloatArray
    mean: FloatArray
    spread: FloatArray


class Memory(Protocol):
    """How values are remembered."""

    def init(self, n_clients: int) -> BsflState:
        """Return the state before the first round."""
        ...

    def add(self, state: Any, clients: IntArray, t: int, values: FloatArray) -> None:
        """Take in values that clients showed in round t."""
        ...

    def recall(self, state: Any, clients: IntArray, t: int) -> ClientStats:
        """Return what is remembered of clients in round t."""
        ...

    def rounds(self, t: int) -> float:
        """Return how many of the first t rounds are remembered."""
        ...


@dataclass(frozen=True, slots=True)
class Lasting:
    """Everything counts for ever (eqs. update_c, update_mu)."""

    def init(self, n_clients: int) -> BsflState:
        """Return the state before the first round."""
        return BsflState(n_clients)

    def add(self, state: BsflState, clients: IntArray, t: int, values: FloatArray) -> None:
        """Take in values that clients showed."""
        _extend(state.observed, state.mean, state.spread, clients, values)

    def recall(self, state: BsflState, clients: IntArray, t: int) -> ClientStats:
        """Return what is remembered of clients."""
        return ClientStats(
            pick(state.observed, clients), pick(state.mean, clients), pick(state.spread, clients)
        )

    def rounds(self, t: int) -> float:
        """Return t."""
        return float(t)


@dataclass(slots=True)
class FadingState(BsflState):
    """Averages that lose weight with every round.

    Attributes:
        weight: What a client's answers counted for in round `last`.
        last: Round of its last answer.
    """

    weight: FloatArray = field(init=False)
    last: IntArray = field(init=False)

    def __post_init__(self, n_clients: int) -> None:
        BsflState.__post_init__(self, n_clients)
        self.weight = np.zeros(n_clients)
        self.last = np.zeros(n_clients, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Discounted:
    """An answer of s rounds ago counts gamma^s (D-UCB, Garivier and Moulines 2011)."""

    gamma: float

    def __post_init__(self) -> None:
        checks.between("discount", self.gamma, 0.0, 1.0)

    def init(self, n_clients: int) -> FadingState:
        """Return the state before the first round."""
        return FadingState(n_clients)

    def add(self, state: FadingState, clients: IntArray, t: int, values: FloatArray) -> None:
        """Take in values that clients showed in round t."""
        faded = self._faded(state, clients, t)
        state.weight[clients] *= faded
        state.spread[clients] *= faded
        state.last[clients] = np.maximum(state.last[clients], t)
        state.observed[clients] += 1
        _extend(state.weight, state.mean, state.spread, clients, values)

    def recall(self, state: FadingState, clients: IntArray, t: int) -> ClientStats:
        """Return what is remembered of clients in round t."""
        faded = self._faded(state, clients, t)
        return ClientStats(
            state.weight[clients] * faded, state.mean[clients], state.spread[clients] * faded
        )

    def rounds(self, t: int) -> float:
        """Return 1 + gamma + ... + gamma^(t - 1)."""
        return float(t) if self.gamma == 1.0 else (1 - self.gamma**t) / (1 - self.gamma)

    def _faded(self, state: FadingState, clients: IntArray, t: int) -> FloatArray:
        faded: FloatArray = self.gamma ** np.maximum(t - state.last[clients], 0.0)
        return faded


@dataclass(slots=True)
class WindowState(BsflState):
    """Averages of two blocks of rounds, the current one and the one before.

    `observed` counts all answers; the other names without `older` stand for the current block.

    Attributes:
        block: Number of the client's current block.
        recent: Answers in it.
        older_count, older_mean, older_spread: What the block before it held.
    """

    block: IntArray = field(init=False)
    recent: FloatArray = field(init=False)
    older_count: FloatArray = field(init=False)
    older_mean: FloatArray = field(init=False)
    older_spread: FloatArray = field(init=False)

    def __post_init__(self, n_clients: int) -> None:
        BsflState.__post_init__(self, n_clients)
        self.block = np.zeros(n_clients, dtype=np.int64)
        for name in ("recent", "older_count", "older_mean", "older_spread"):
            setattr(self, name, np.zeros(n_clients))


@dataclass(frozen=True, slots=True)
class Windowed:
    """Answers of the last half to whole window count, older ones do not.

    A window that slides with every round would have to keep every answer. Two blocks of half a
    window keep six numbers a client: the current block and the one before.
    """

    window: int

    def __post_init__(self) -> None:
        checks.natural("window", self.window, low=2)

    def init(self, n_clients: int) -> WindowState:
        """Return the state before the first round."""
        return WindowState(n_clients)

    def add(self, state: WindowState, clients: IntArray, t: int, values: FloatArray) -> None:
        """Take in values that clients showed in round t."""
        age = self._block(t) - state.block[clients]
        stale, gone = clients[age >= 1], clients[age >= 2]
        state.older_count[stale] = state.recent[stale]
        state.older_mean[stale] = state.mean[stale]
        state.older_spread[stale] = state.spread[stale]
        state.older_count[gone] = state.older_spread[gone] = 0.0
        for array in (state.recent, state.mean, state.spread):
            array[stale] = 0.0
        state.block[stale] = self._block(t)
        state.observed[clients] += 1
        _extend(state.recent, state.mean, state.spread, clients, values)

    def recall(self, state: WindowState, clients: IntArray, t: int) -> ClientStats:
        """Return what is remembered of clients in round t."""
        age = self._block(t) - state.block[clients]
        recent = np.where(age <= 1, state.recent[clients], 0.0)
        older = np.where(age <= 0, state.older_count[clients], 0.0)
        count = recent + older
        part = older / np.maximum(count, 1e-300)
        gap = state.older_mean[clients] - state.mean[clients]
        return ClientStats(
            count,
            state.mean[clients] + part * gap,
            np.where(age <= 1, state.spread[clients], 0.0)
            + np.where(age <= 0, state.older_spread[clients], 0.0)
            + recent * part * gap**2,
        )

    def rounds(self, t: int) -> float:
        """Return min(t, window)."""
        return float(min(t, self.window))

    def _block(self, t: int) -> int:
        return t // max(1, self.window // 2)


def _extend(
    count: IntArray | FloatArray,
    mean: FloatArray,
    spread: FloatArray,
    clients: IntArray,
    values: FloatArray,
) -> None:
    """Add one value to the count, mean and spread of each client (Welford 1962)."""
    before = count[clients]
    step = values - mean[clients]
    with np.errstate(invalid="ignore"):
        spread[clients] += step**2 * before / (before + 1)
    mean[clients] += step / (before + 1)
    count[clients] += 1
