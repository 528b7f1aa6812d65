"""Populations by name: how fast their clients are.

Each function draws a population of n_clients from rng and returns its latencies; the registry at
the end gives the names that scenario files use.
"""

from collections.abc import Callable

import numpy as np

from bsfl import validation
from bsfl._core.registry import Registry
from bsfl.errors import InvalidInput
from bsfl.simulation.latency import (
    MAX_SIGMA,
    Latencies,
    clipped_normal,
    inverse_normal,
    lognormal,
    shifted_exponential,
)
from bsfl.simulation.phones import phones
from bsfl.simulation.traces import trace
from bsfl.types import BoolArray, Rng

Range = tuple[float, float]


def authors_bimodal(n_clients: int, rng: Rng, *, slow_share: float = 0.1) -> Latencies:
    """Return the authors' earlier setting: a few clients ten times slower than the rest.

    tau = clip(N(mean, sd), 0.05, 1); mean U(0.85, 0.9) for the slow, U(0.05, 0.1) for the others,
    sd U(0, 0.05).
    """
    validation.between("slow_share", slow_share, 0.0, 1.0)
    slow = _share(n_clients, slow_share, rng)
    mean = np.where(slow, rng.uniform(0.85, 0.9, n_clients), rng.uniform(0.05, 0.1, n_clients))
    return clipped_normal(mean, rng.uniform(0, 0.05, n_clients), low=0.05, high=1.0)


def authors_three_speeds(
    n_clients: int, rng: Rng, *, slow_share: float = 0.1, fast_share: float = 0.03
) -> Latencies:
    """Return the authors' later setting: a few slow, most in the middle, very few fast.

    tau = clip(0.1 / N(rate, sd), 0.1, 1); rate U(0.1, 0.12) for the slow, U(0.15, 0.2) in the
    middle, U(0.93, 0.97) for the fast, sd U(0, 0.03).
    """
    validation.between("slow_share", slow_share, 0.0, 1.0)
    validation.between("fast_share", fast_share, 0.0, round(1.0 - slow_share, 9))
    place = rng.permutation(n_clients)
    rate = rng.uniform(0.15, 0.2, n_clients)
    n_slow = round(slow_share * n_clients)
    n_fast = min(round(fast_share * n_clients), n_clients - n_slow)
    rate[place[:n_slow]] = rng.uniform(0.1, 0.12, n_slow)
    rate[place[n_slow : n_slow + n_fast]] = rng.uniform(0.93, 0.97, n_fast)
    sd = rng.uniform(0, 0.03, n_clients)
    return inverse_normal(rate, sd, work=0.1, low=0.1, high=1.0)


def lognormal_population(
    n_clients: int, rng: Rng, *, median: float = 10.0, spread: float = 0.6, sigma: float = 0.2
) -> Latencies:
    """Return lognormal latencies around lognormal medians.

    Args:
        median: Median of the clients' medians, seconds.
        spread: Standard deviation of their logarithms, between clients.
        sigma: Standard deviation of the logarithm of one client's latency, between rounds.
    """
    validation.positive("median", median)
    medians = median * np.exp(
        validation.between("spread", spread, 0.0, MAX_SIGMA) * rng.normal(size=n_clients)
    )
    return lognormal(
        medians, np.full(n_clients, validation.between("sigma", sigma, 0.0, MAX_SIGMA))
    )


def exponential_population(
    n_clients: int, rng: Rng, *, shift: Range = (1.0, 10.0), scale: Range = (0.5, 5.0)
) -> Latencies:
    """Return shift + Exp(scale) with both uniform in a range, seconds."""
    for name, bounds in (("shift", shift), ("scale", scale)):
        if validation.span(name, bounds)[0] <= 0:
            raise InvalidInput(f"{name} must be a range above 0, got {bounds!r}")
    return shifted_exponential(rng.uniform(*shift, n_clients), rng.uniform(*scale, n_clients))


def equal_means(
    n_clients: int, rng: Rng, *, mean_s: float = 10.0, sigmas: Range = (0.05, 0.6)
) -> Latencies:
    """Return clients with the same mean speed E[1/tau], half of them steady and half jittery.

    tau = exp(mu + sigma N(0, 1)) with E[1/tau] = exp(-mu + sigma^2 / 2) = 1 / mean_s.
    """
    validation.positive("mean_s", mean_s)
    steady, jittery = validation.span("sigmas", sigmas)
    validation.between("sigmas", steady, 0.0, MAX_SIGMA)
    validation.between("sigmas", jittery, 0.0, MAX_SIGMA)
    sigma = np.where(_share(n_clients, 0.5, rng), jittery, steady)
    return lognormal(mean_s * np.exp(sigma**2 / 2), sigma)


def _share(n_clients: int, share: float, rng: Rng) -> BoolArray:
    """Return True for a random share of the clients, rounded to whole clients."""
    return rng.permutation(n_clients) < round(share * n_clients)


POPULATIONS: Registry[Callable[..., Latencies]] = Registry(
    "population",
    {
        "authors-bimodal": authors_bimodal,
        "authors-three-speeds": authors_three_speeds,
        "lognormal": lognormal_population,
        "shifted-exponential": exponential_population,
        "equal-means": equal_means,
        "phones": phones,
        "trace": trace,
    },
    group="bsfl.populations",
    given=("n_clients", "rng"),
)
"""Populations by name; a custom one is a function (n_clients, rng) that returns Latencies."""
