"""Latency distributions: how long each simulated client takes in a round.

A model holds one set of parameters per client and a function that turns standard noise into
seconds. Draws and true means use the same function: a draw feeds it random noise, a mean
integrates it over the density of the noise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bsfl.errors import InvalidInput
from bsfl.random import stream
from bsfl.types import FloatArray, IntArray, Rng

LATENCIES = ("n_clients", "draw", "mean_inverse", "phase")
"""Attributes that every kind of latencies has."""
MAX_SIGMA = 10.0
"""Standard deviation of the logarithm of a latency or a size; e^10 is 22,000 times."""
N_NODES = 2001
"""Noise values at which the integrals of true means are evaluated (relative error about 1e-6)."""
N_SAMPLED = 1000
"""Draws from which the true means of a custom latency model are taken."""

_GRID = np.linspace(0.0, 1.0, N_NODES)
_Z, _ROOT = 16.0 * _GRID - 8.0, 6.5 * _GRID  # the square of a root is an exponential noise
_NODES: dict[str, tuple[FloatArray, FloatArray]] = {
    "normal": (_Z, np.exp(-(_Z**2) / 2)),
    "exponential": (_ROOT**2, _ROOT * np.exp(-(_ROOT**2))),
}

Limit = float | FloatArray
Phase = tuple[int, ...]


class Latencies(Protocol):
    """The latency of every client, round by round."""

    @property
    def n_clients(self) -> int:
        """How many clients there are."""

    def draw(self, t: int, rng: Rng) -> FloatArray:
        """Return the seconds that every client would take in round t, selected or not."""

    def mean_inverse(self, t: int, low: Limit, high: Limit) -> FloatArray:
        """Return E[1 / clip(tau, low, high)] of every client in round t."""

    def phase(self, t: int) -> Phase:
        """Return a label that is the same for two rounds only if their distributions are."""


@dataclass(frozen=True, slots=True)
class Noisy:
    """Latencies that are a function of independent standard noise, the same in every round.

    Attributes:
        n_clients: How many clients there are.
        latency: Turns noise, a number or one per client, into seconds for every client.
        noise: "normal" or "exponential", both standard.
        ids: Names of the clients, where they have any.
    """

    n_clients: int
    latency: Callable[[float | FloatArray], FloatArray]
    noise: str = "normal"
    ids: Sequence[str] | None = None

    def __post_init__(self) -> None:
        seconds = np.broadcast_to(self.latency(1.0), self.n_clients)
        wrong = np.flatnonzero(~(seconds >= 0.0))
        if len(wrong):
            raise InvalidInput(
                f"latencies must be at least 0 s, got {seconds[wrong[0]]:g} for client {wrong[0]}"
            )

    def draw(self, t: int, rng: Rng) -> FloatArray:
        sample = rng.standard_normal if self.noise == "normal" else rng.standard_exponential
        return self.latency(sample(self.n_clients))

    def mean_inverse(self, t: int, low: Limit, high: Limit) -> FloatArray:
        nodes, density = _NODES[self.noise]
        total = np.zeros(self.n_clients)
        for noise, weight in zip(nodes, density, strict=True):
            total += weight / np.clip(self.latency(noise), low, high)
        return np.asarray(total / density.sum())

    def phase(self, t: int) -> Phase:
        return ()


def clipped_normal(mean: FloatArray, sd: FloatArray, *, low: float, high: float) -> Noisy:
    """Return tau = clip(N(mean, sd), low, high): the authors' earlier setting."""
    return Noisy(len(mean), lambda z: np.clip(mean + sd * z, low, high))


def inverse_normal(
    rate: FloatArray, sd: FloatArray, *, work: float, low: float, high: float
) -> Noisy:
    """Return tau = clip(work / N(rate, sd), low, high): the authors' later setting.

    A rate of zero or below means that the work never ends, so it gives `high`.
    """
    return Noisy(len(rate), lambda z: work / np.clip(rate + sd * z, work / high, work / low))


def lognormal(median: npt.ArrayLike, sigma: npt.ArrayLike) -> Noisy:
    """Return tau = median * exp(N(0, sigma)); sigma is a number, or one for each client."""
    median, sigma = np.asarray(median, dtype=np.float64), np.asarray(sigma, dtype=np.float64)
    if sigma.shape not in ((), median.shape) or not np.all(sigma >= 0.0):
        raise InvalidInput("sigma must be a number of at least 0, or one for each median")
    return Noisy(len(median), lambda z: median * np.exp(sigma * z))


def shifted_exponential(shift: FloatArray, scale: FloatArray) -> Noisy:
    """Return tau = shift + Exp(scale): fixed work plus a memoryless wait."""
    return Noisy(len(shift), lambda e: shift + scale * e, noise="exponential")


@dataclass(frozen=True, slots=True)
class Recorded:
    """Latencies resampled from each client's own recorded ones.

    Attributes:
        recorded: Seconds, one array per client, not empty.
        ids: Names of the clients, where they have any.
    """

    recorded: Sequence[FloatArray]
    ids: Sequence[str] | None = None

    @property
    def n_clients(self) -> int:
        return len(self.recorded)

    def draw(self, t: int, rng: Rng) -> FloatArray:
        picks = rng.random(self.n_clients)
        return np.array([r[int(p * len(r))] for r, p in zip(self.recorded, picks, strict=True)])

    def mean_inverse(self, t: int, low: Limit, high: Limit) -> FloatArray:
        low, high = (np.broadcast_to(limit, self.n_clients) for limit in (low, high))
        clipped = (np.clip(r, a, b) for r, a, b in zip(self.recorded, low, high, strict=True))
        return np.array([np.mean(1.0 / tau) for tau in clipped])

    def phase(self, t: int) -> Phase:
        return ()


@dataclass(frozen=True, slots=True)
class Sampled:
    """Custom latencies: any function of the round and a generator, with a constant distribution.

    True means, for regret and figures, are those of N_SAMPLED draws.

    Attributes:
        n_clients: How many clients there are.
        sample: Returns the seconds of every client in a round, as an array: (t, rng) -> [K].
        ids: Names of the clients, where they have any.
    """

    n_clients: int
    sample: Callable[[int, Rng], FloatArray]
    ids: Sequence[str] | None = None

    def draw(self, t: int, rng: Rng) -> FloatArray:
        drawn = np.asarray(self.sample(t, rng), dtype=np.float64)
        if drawn.shape != (self.n_clients,) or not (drawn > 0).all():
            raise InvalidInput(
                f"a latency model must draw {self.n_clients} seconds above 0, got {drawn!r}"
            )
        return drawn

    def mean_inverse(self, t: int, low: Limit, high: Limit) -> FloatArray:
        draws = (self.draw(t, stream(i, "mean-latency", t)) for i in range(N_SAMPLED))
        return np.asarray(sum(1.0 / np.clip(tau, low, high) for tau in draws) / N_SAMPLED)

    def phase(self, t: int) -> Phase:
        return ()


@dataclass(frozen=True, slots=True)
class Changed:
    """Latencies made from others, as the subclasses say."""

    base: Latencies

    @property
    def n_clients(self) -> int:
        return self.base.n_clients

    @property
    def ids(self) -> Sequence[str] | None:
        return getattr(self.base, "ids", None)

    def phase(self, t: int) -> Phase:
        return self.base.phase(t)


@dataclass(frozen=True, slots=True)
class Swapped(Changed):
    """From round `at` on, client k has the latency that client source[k] had before."""

    source: IntArray
    at: int

    def draw(self, t: int, rng: Rng) -> FloatArray:
        drawn = self.base.draw(t, rng)
        return drawn if t < self.at else drawn[self.source]

    def mean_inverse(self, t: int, low: Limit, high: Limit) -> FloatArray:
        if t < self.at:
            return self.base.mean_inverse(t, low, high)
        low, high = (np.broadcast_to(limit, self.n_clients) for limit in (low, high))
        back = np.argsort(self.source)  # the inverse of a permutation
        return self.base.mean_inverse(t, low[back], high[back])[self.source]

    def phase(self, t: int) -> Phase:
        return (int(t >= self.at), *self.base.phase(t))


@dataclass(frozen=True, slots=True)
class Scaled(Changed):
    """From round `at` on, latencies are multiplied by `factor`, reached over `ramp` rounds.

    The factor builds up in equal ratios; with ramp 0 it is there at once.
    """

    factor: FloatArray
    at: int
    ramp: int = 0

    def draw(self, t: int, rng: Rng) -> FloatArray:
        return self.base.draw(t, rng) * self.factor_in(t)

    def mean_inverse(self, t: int, low: Limit, high: Limit) -> FloatArray:
        """Return E[1 / clip(f tau, low, high)] = E[1 / clip(tau, low / f, high / f)] / f."""
        factor = self.factor_in(t)
        return self.base.mean_inverse(t, low / factor, high / factor) / factor

    def phase(self, t: int) -> Phase:
        """Return how many rounds of the ramp are over."""
        return (min(max(0, t - self.at + 1), max(1, self.ramp)), *self.base.phase(t))

    def factor_in(self, t: int) -> FloatArray:
        return np.power(self.factor, self.phase(t)[0] / max(1, self.ramp))


@dataclass(frozen=True, slots=True)
class Flaky(Changed):
    """Each response is lost with a probability, of all clients or of each: an infinite latency."""

    probability: float | FloatArray

    def draw(self, t: int, rng: Rng) -> FloatArray:
        drawn = self.base.draw(t, rng)
        return np.where(rng.random(self.n_clients) < self.probability, np.inf, drawn)

    def mean_inverse(self, t: int, low: Limit, high: Limit) -> FloatArray:
        """Return (1 - p) E[1 / clip(tau, low, high)] + p / high."""
        in_time = (1.0 - self.probability) * self.base.mean_inverse(t, low, high)
        return in_time + self.probability / high
