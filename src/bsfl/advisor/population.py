r"""Clients resampled from their responses; with few responses by empirical Bayes.

    ln tau = mu_k + sigma_k e,   lost with probability p_k

A client with many responses is drawn from them (the bootstrap). What a few leave open is drawn from
clients like it, by empirical Bayes: the populations below are fitted to the responses themselves.

    mu_k      ~ N(mu, s^2)                        between clients
    sigma_k^2 ~ d_0 s_0^2 / chi^2(d_0)            how much one client varies
    p_k       ~ Beta(b, a)                        how often it does not respond
    e                                             the standardised responses of k, and of all

Every seed draws mu_k and p_k once from their posteriors, so that seeds differ by what the responses
leave open: a client that was lucky a few times is not taken for the fastest one.

Departure: sigma_k is its posterior mean, not drawn. The standardised responses of all clients
already contain its uncertainty.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from bsfl.random import stream
from bsfl.simulation import SimulatedClients
from bsfl.simulation.availability import Availability
from bsfl.simulation.latency import Sampled
from bsfl.types import FloatArray, IntArray, Rng

STRENGTHS = np.geomspace(0.25, 256.0, 41)
"""How many responses of a client a population may be worth."""
CENTRES = np.geomspace(1e-3, 2.0, 41)
"""Values of s_0^2 to try, in parts of the mean of all clients."""
GUESS = 4.0, 0.04
"""d_0 and s_0^2 where no client has responded twice."""
OWN_SHAPE = 20.0
"""Responses of a client after which half of its draws come from its own responses."""
LEAST_VARIANCE = 1e-8
"""Of ln tau of a client that never varies."""
FEW = 30
"""With so many standardised responses, or fewer, normal ones are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPosterior:
    """The posterior of all clients, given their responses.

    Attributes:
        mean, variance: Posterior of mu_k.
        sigma2: Posterior mean of sigma_k^2.
        responded, lost: Posterior of 1 - p_k, a beta distribution; lost 0: no response is lost.
        shapes: Standardised responses of all clients, one client after another.
        starts, counts: Where those of each client begin, and how many there are.
    """

    mean: FloatArray
    variance: FloatArray
    sigma2: FloatArray
    responded: FloatArray
    lost: FloatArray
    shapes: FloatArray
    starts: IntArray
    counts: IntArray

    def sample(self, rng: Rng) -> Sampled:
        """Return latencies of clients that are drawn from the posterior."""
        n_clients, sigma, never = len(self.mean), np.sqrt(self.sigma2), self.lost <= 0
        lost = np.where(never, 0.0, rng.beta(np.where(never, 1.0, self.lost), self.responded))
        mu = rng.normal(self.mean, np.sqrt(self.variance))
        own = np.where(self.counts > 1, self.counts / (self.counts + OWN_SHAPE), 0.0)

        def draw(t: int, rng: Rng) -> FloatArray:
            is_own, place, luck = rng.random((3, n_clients))
            start = np.where(is_own < own, self.starts, 0)
            count = np.where(is_own < own, self.counts, len(self.shapes))
            e = self.shapes[start + (place * count).astype(np.int64)]
            return np.where(luck < lost, np.inf, np.exp(mu + sigma * e))

        return Sampled(n_clients, draw)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResampledClients:
    """Simulated clients that are consistent with a log: a function of the seed.

    Attributes:
        posterior: Of the clients, given the log.
        availability: Which clients are available, as the log records it.
        fastest_s, deadline_s: The fastest response of the log, and its deadline.
    """

    posterior: ClientPosterior
    availability: Availability
    fastest_s: float
    deadline_s: float

    def __call__(self, seed: int) -> SimulatedClients:
        """Return the clients of a seed; seeds differ by what the log leaves open."""
        return SimulatedClients(
            latency=self.posterior.sample(stream(seed, "resampled")),
            tau_min=self.fastest_s,
            tau_max=self.deadline_s,
            seed=seed,
            availability=self.availability,
        )


def fit_posterior(latencies: Sequence[FloatArray], lost: FloatArray) -> ClientPosterior:
    """Return the posterior of clients.

    Args:
        latencies: Seconds of the responses of every client; empty for one without responses.
        lost: How many responses of each client were lost.
    """
    counts = np.array([len(one) for one in latencies], dtype=np.int64)
    y = np.log(np.concatenate([*latencies, np.zeros(0)]))
    client = np.repeat(np.arange(len(counts)), counts)
    has_responded, n = counts > 0, np.maximum(counts, 1).astype(np.float64)
    mean = np.bincount(client, y, minlength=len(counts)) / n
    spread = np.bincount(client, (y - mean[client]) ** 2, minlength=len(counts)).astype(np.float64)
    d_0, s2_0 = variance_population(spread[has_responded], n[has_responded] - 1.0)
    sigma2 = np.maximum((d_0 * s2_0 + spread) / (d_0 + n - 1.0), LEAST_VARIANCE)
    error = sigma2 / n
    centre, between = mean_population(mean[has_responded], error[has_responded])
    trust = np.where(has_responded, between / (between + error), 0.0)
    a, b = response_population(counts, lost)
    scale = np.sqrt(sigma2 * np.maximum(1.0 - 1.0 / n, 0.5))
    shapes = (y - mean[client]) / scale[client]
    if len(y) <= FEW:
        counts, n_shapes = np.zeros_like(counts), 10 * FEW
        levels = (np.arange(n_shapes) + 0.5) / n_shapes
        shapes = np.array([NormalDist().inv_cdf(level) for level in levels.tolist()])
    return ClientPosterior(
        mean=centre + trust * (mean - centre),
        variance=(1.0 - trust) * between,
        sigma2=sigma2,
        responded=np.asarray(counts + a, dtype=np.float64),
        lost=lost + b,
        shapes=shapes,
        starts=np.cumsum(counts) - counts,
        counts=counts,
    )


def mean_population(mean: FloatArray, error: FloatArray) -> tuple[float, float]:
    """Return centre and variance of mu_k, of which `mean` is known with a squared `error`.

    The variance is that of the means less what their errors explain, all clients alike.
    """
    if len(mean) < 2:
        return float(mean.sum()), 1.0
    total = max(float(mean.var(ddof=1)), LEAST_VARIANCE)
    between = max(total - float(error.mean()), 1e-3 * total)
    return float(np.average(mean, weights=1.0 / (between + error))), between


def variance_population(spread: FloatArray, freedom: FloatArray) -> tuple[float, float]:
    """Return d_0 and s_0^2 by maximum likelihood: spread_k / (freedom_k s_0^2) ~ F(freedom_k, d_0).

    >>> rng = np.random.default_rng(0)
    >>> sigma2 = 8 * 0.1 / rng.chisquare(8, 2000)
    >>> d_0, s2_0 = variance_population(sigma2 * rng.chisquare(5, 2000), np.full(2000, 5.0))
    >>> 6 < d_0 < 11, 0.08 < s2_0 < 0.12
    (True, True)
    """
    known = freedom > 0
    if not known.any():
        return GUESS
    d, total = freedom[known], float(spread.sum())
    if total <= LEAST_VARIANCE * d.sum():
        return GUESS[0], LEAST_VARIANCE
    squares = np.maximum(spread[known], LEAST_VARIANCE * d)
    centres = total / d.sum() * CENTRES[:, None]

    def likelihood(d_0: float) -> FloatArray:
        """Return its logarithm at every centre, up to a constant."""
        constant = _each(d, lambda one: math.lgamma((one + d_0) / 2) - math.lgamma(d_0 / 2))
        x = squares / (d_0 * centres)
        terms = constant + 0.5 * d * np.log(x) - 0.5 * (d + d_0) * np.log1p(x)
        return np.asarray(terms.sum(axis=1))

    found = np.array([likelihood(d_0) for d_0 in STRENGTHS.tolist()])
    i, j = divmod(int(found.argmax()), len(CENTRES))
    return float(STRENGTHS[i]), float(centres[j, 0])


def response_population(responded: IntArray, lost: FloatArray) -> tuple[float, float]:
    """Return a and b of the response rate by maximum likelihood; its mean is that of all clients.

    >>> response_population(np.array([10, 10, 0, 0]), np.array([0.0, 0.0, 10.0, 10.0]))
    (0.125, 0.125)
    >>> response_population(np.array([10, 10]), np.array([0.0, 0.0]))
    (1.0, 0.0)
    """
    total = float(responded.sum() + lost.sum())
    if not lost.any():
        return 1.0, 0.0
    usual = min(max(float(responded.sum()) / total, 1e-3), 1 - 1e-3)

    def likelihood(strength: float) -> float:
        a, b = usual * strength, (1.0 - usual) * strength
        gains = _each(responded, lambda one: math.lgamma(one + a) - math.lgamma(a))
        losses = _each(lost, lambda one: math.lgamma(one + b) - math.lgamma(b))
        both = _each(responded + lost, lambda n: math.lgamma(n + a + b) - math.lgamma(a + b))
        return float(np.sum(gains + losses - both))

    strength = max(STRENGTHS.tolist(), key=likelihood)
    return usual * strength, (1.0 - usual) * strength


def _each(values: FloatArray | IntArray, function: Callable[[float], float]) -> FloatArray:
    """Return a function of numbers, computed once for each distinct one."""
    distinct, where = np.unique(values, return_inverse=True)
    return np.array([function(float(one)) for one in distinct])[where]
