"""What a policy is, and what most of them share: running means, a top m, a weighted draw."""

import math
from dataclasses import InitVar, dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from bsfl.records import FAILED, OK, FloatArray, IntArray, Observations, RoundContext

State = Any
"""A dataclass of numpy arrays (first axis: clients) and plain numbers; only its policy reads it."""


@runtime_checkable
class Policy(Protocol):
    """A selection rule: a frozen record of settings. What it learns is in a separate state."""

    def init(self, n_clients: int) -> State:
        """Return the state before the first round."""
        ...

    def select(self, state: State, context: RoundContext, rng: np.random.Generator) -> IntArray:
        """Return the cohort, sorted. Pure: the state is never changed."""
        ...

    def observe(self, state: State, context: RoundContext, seen: Observations) -> None:
        """Learn from a report. The only place where the state changes; costs O(cohort)."""
        ...


def chooses_fewer(policy: Policy) -> bool:
    """Return whether a policy may choose fewer clients than wanted, though more are available.

    It says so by a class attribute `chooses_fewer = True`.
    """
    return bool(getattr(policy, "chooses_fewer", False))


@dataclass(slots=True)
class Averages:
    """How often each client was chosen and observed, and the mean of what it showed.

    `selected` is c_k, in the index too: if only answers counted there, a client that no longer
    answers would look ever more promising. The two differ by the answers that are outstanding, or
    will never come.
    """

    n_clients: InitVar[int]
    selected: IntArray = field(init=False)
    observed: IntArray = field(init=False)
    mean: FloatArray = field(init=False)

    def __post_init__(self, n_clients: int) -> None:
        self.selected = np.zeros(n_clients, dtype=np.int64)
        self.observed = np.zeros(n_clients, dtype=np.int64)
        self.mean = np.zeros(n_clients)

    def learn(self, seen: Observations, values: FloatArray) -> None:
        """Book the selections of a report and move the means (eqs. update_c, update_mu)."""
        self.selected[seen.chosen] += 1
        self.observed[seen.clients] += 1
        self.mean[seen.clients] += (values - self.mean[seen.clients]) / self.observed[seen.clients]


def believed_latency(seen: Observations, tau_max: float | None) -> FloatArray:
    """Return the latency each answer stands for, in seconds.

    An answer counts as it came, but never longer than tau_max. A timeout is censored: all we know
    is that it took at least the deadline, tau_max or else the time waited. A failure counts as the
    slowest possible answer: tau_max, or one that never comes.
    """
    if tau_max is None:
        return np.where(seen.outcome == FAILED, np.inf, seen.latency)
    return np.where(seen.outcome == OK, np.minimum(seen.latency, tau_max), tau_max)


def part_of(n: int, share: float) -> int:
    """Return floor(n share), not one less where rounding errors took a whole number down.

    >>> part_of(10, 1.0 - 0.9), part_of(25, 0.9)
    (1, 22)
    """
    return math.floor(n * share + 1e-9)


def top_m(score: FloatArray, m: int, rng: np.random.Generator) -> IntArray:
    """Return the positions of the m largest scores, ties broken at random, sorted.

    >>> top_m(np.array([0.3, np.inf, 0.1, 0.9]), 2, np.random.default_rng(0))
    array([1, 3])
    """
    if m >= len(score):
        return np.arange(len(score))
    if m == 0:
        return np.arange(0)
    cut = np.partition(score, -m)[-m]
    above = np.flatnonzero(score > cut)
    tied = np.flatnonzero(score == cut)
    lucky = rng.choice(tied, m - len(above), replace=False, shuffle=False)
    return np.sort(np.concatenate([above, lucky]))


def weighted_draw(log_weight: FloatArray, m: int, rng: np.random.Generator) -> IntArray:
    r"""Return m positions drawn one after another with weights exp(log_weight), none twice, sorted.

    The m largest of log w_k + G_k with independent standard Gumbel G_k are such a draw (Yellott
    1977), whatever the scale of the weights. A weight of 0 (log -inf) is drawn last.

    >>> weighted_draw(np.array([-np.inf, 0.0, 5000.0]), 2, np.random.default_rng(0))
    array([1, 2])
    """
    return top_m(log_weight + rng.gumbel(size=len(log_weight)), m, rng)
