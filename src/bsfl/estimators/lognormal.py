r"""A hierarchical model of latencies, which predicts unseen clients from their features.

    ln tau = x_k theta + b_k + noise,   b_k ~ N(0, s^2),   noise ~ N(0, sigma_k^2)

x_k holds a 1 and the standardised features of client k. theta is a ridge regression on the first
response of every client, so that all clients have the same weight, however often they are selected;
s^2 + sigma^2 is the variance of its errors, sigma^2 that of the responses of one client. Everything
is updated in O(cohort). The prediction is the posterior of x_k theta + b_k: before a client's first
response that of clients with the same features, with the variance between clients.
"""

from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from bsfl._core.pool import MAX_LOG_LATENCY, PoolView
from bsfl._core.state import number
from bsfl.errors import InvalidInput
from bsfl.estimators.moments import RunningMoments
from bsfl.types import LATENCY_RANGE, MAX_FEATURE, NO_NUMBERS, FloatArray, IntArray, State

RIDGE = 1.0
"""Weight of the prior theta = 0, in clients; the constant has no prior."""
FORGETTING_FACTOR = 0.999
"""Factor of the squared errors of earlier first responses, when the regression was worse."""
PRIOR_VARIANCES = (2.0, 1.0), (4.0, 0.05)
"""(weight, variance) before the first response: between clients, and within one client."""
SHRINKAGE = 4.0
"""Responses that the population's sigma^2 is worth beside a client's own."""
MAX_STANDARD_FEATURE = 1e3
"""Standardised features are clipped at this size, so that no client outweighs all others."""
LOG_RANGE = np.log(LATENCY_RANGE)
"""Range of ln tau."""
MIN_SCALE = 1e-200
"""Smallest standard deviation of a feature: squares of smaller deviations are 0."""
MAX_GRAM, MAX_INVERSE = 1e20, 1e12
"""Largest number in the regression's matrix, for the first responses of 10^14 clients, and in its
inverse."""
MAX_VARIANCE = 1e4
"""Largest variance of ln tau: LOG_RANGE bounds it."""
MIN_WEIGHT = 0.01
"""Smallest weight of a variance; that of the first guess, or of one response, is larger."""
TOLERANCE = 1e-9
"""Rounding errors of the smallest eigenvalue of a matrix, relative to its largest."""


def _empty(*shape: int, low: float, high: float) -> Any:
    """Return a field that holds an empty array until something is learned."""
    return field(default_factory=lambda: np.zeros(shape), metadata={"low": low, "high": high})


@dataclass(slots=True, kw_only=True)
class Population:
    """What is learned of all clients together; empty before the first response.

    Attributes:
        centre, scale: Mean and standard deviation of the features.
        gram, moment: Normal equations of the ridge regression of first responses on features.
        errors, n_errors: Squared errors of the regression, and how many they are.
        spread, freedom: Squared deviations within clients, and their degrees of freedom.
    """

    centre: FloatArray = _empty(0, low=-MAX_FEATURE, high=MAX_FEATURE)
    scale: FloatArray = _empty(0, low=MIN_SCALE, high=2.0 * MAX_FEATURE)
    gram: FloatArray = _empty(0, 0, low=-MAX_GRAM, high=MAX_GRAM)
    moment: FloatArray = _empty(0, low=-MAX_GRAM, high=MAX_GRAM)
    errors: float = number(0.0, low=0.0)  # sums grow; at the largest number a file holds they stay
    n_errors: float = number(0.0, low=0.0)
    spread: float = number(0.0, low=0.0)
    freedom: float = number(0.0, low=0.0)

    def check(self) -> None:
        """Check that all numbers fit together, and that latencies can be predicted from them."""
        n = len(self.centre)
        shapes = [np.shape(one) for one in (self.centre, self.scale, self.gram, self.moment)]
        if not self.n_errors:
            if any(np.prod(shape) for shape in shapes):
                raise InvalidInput("the regression of latencies has no variance")
            return
        if shapes != [(n,), (n,), (n + 1, n + 1), (n + 1,)]:
            raise InvalidInput("the arrays of the regression of latencies do not fit together")
        for squares, weight in ((self.errors, self.n_errors), (self.spread, self.freedom)):
            if weight < MIN_WEIGHT or squares > MAX_VARIANCE * weight:
                raise InvalidInput("the variances of latencies are too large")
        if not self.spread:
            raise InvalidInput("the latencies of a client must vary")
        eigenvalues = np.linalg.eigvalsh(self.gram)
        is_singular = eigenvalues[0] <= -TOLERANCE * eigenvalues[-1]
        if is_singular or np.abs(np.linalg.inv(self.gram)).max() > MAX_INVERSE:
            raise InvalidInput(
                "the matrix of the regression of latencies must be positive definite"
            )


def check_latencies(moments: State, slowest_s: float) -> None:
    """Check that a memory has means of logarithms of latencies, and slowest_s is a latency or 0."""
    if 0.0 < slowest_s < LATENCY_RANGE[0]:
        raise InvalidInput("slowest_s is smaller than a latency can be")
    for name in ("mean", "older_mean"):
        means = np.asarray(getattr(moments, name, NO_NUMBERS))
        if np.any(np.abs(means) > MAX_LOG_LATENCY):
            raise InvalidInput(f"{name} holds what is no logarithm of a latency")


class Posterior(NamedTuple):
    """Posterior of the mean of ln tau, and the standard deviation of single responses."""

    mean: FloatArray
    variance: FloatArray
    sigma: FloatArray

    def quantile(self, level: float) -> FloatArray:
        """Return ln tau at a quantile of single responses, given the posterior mean."""
        return self.mean + NormalDist().inv_cdf(level) * self.sigma

    def next_response(self, level: float) -> FloatArray:
        """Return ln tau at a quantile of the predictive distribution of the next response."""
        return self.mean + NormalDist().inv_cdf(level) * np.sqrt(self.variance + self.sigma**2)


def learn(
    state: Population,
    clients: IntArray,
    values: FloatArray,
    stats: RunningMoments,
    pool: PoolView,
) -> None:
    """Learn from ln tau of clients; `stats` are their moments before."""
    if not len(clients):
        return
    if not state.n_errors:
        (n_between, between), (n_within, within) = PRIOR_VARIANCES
        state.gram, state.moment = np.full((1, 1), 1e-6), np.zeros(1)
        state.errors, state.n_errors = n_between * between, n_between
        state.spread, state.freedom = n_within * within, n_within
    if pool.features is not None and not len(state.centre):
        _add_features(state, pool.features)
    new = stats.observed == 0
    if new.any():
        _learn_first(state, design(state, clients[new], pool), values[new])
    step = values[~new] - stats.mean[~new]
    fraction = stats.count[~new] / (stats.count[~new] + 1)
    state.spread += float(np.sum(fraction * step**2))
    state.freedom += float(np.sum(fraction))


def _learn_first(state: Population, x: FloatArray, values: FloatArray) -> None:
    """Learn from the first responses of clients with features x."""
    expected, leverage = _regression(state, x)
    errors = values - expected
    if state.gram[0, 0] >= 1.0:  # the very first responses determine the level, not the variance
        fade = FORGETTING_FACTOR ** len(errors)
        state.errors = fade * state.errors + float(np.sum(errors**2 / (1 + leverage)))
        state.n_errors = fade * state.n_errors + len(errors)
    state.gram += x.T @ x
    state.moment += x.T @ values


def predict(
    state: Population, pool: PoolView, clients: IntArray, stats: RunningMoments
) -> Posterior:
    """Return the posterior of clients with these moments, each on its own."""
    if not state.n_errors:
        zeros = np.zeros(len(clients))
        return Posterior(zeros, zeros + 1.0, zeros + PRIOR_VARIANCES[1][1] ** 0.5)
    noise = state.spread / state.freedom
    total = max(state.errors / state.n_errors, noise)
    between = max(total - noise, 1e-3 * total)
    # without features all clients are average
    x = design(state, clients, pool) if len(state.centre) else np.ones((1, 1))
    expected, leverage = _regression(state, x)
    prior = between + total * leverage
    n = stats.count.astype(np.float64)
    sigma2 = np.maximum(n - 1.0, 0.0)
    sigma2 += SHRINKAGE
    np.divide(SHRINKAGE * noise + stats.spread, sigma2, out=sigma2)
    n *= prior
    weight = n / (n + sigma2)  # of a client's own mean: prior / (prior + sigma^2 / n)
    mean = stats.mean - expected
    mean *= weight
    mean += expected
    return Posterior(mean, (1 - weight) * prior, np.sqrt(sigma2, out=sigma2))


def _regression(state: Population, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return x theta, clipped to possible latencies, and the leverage of x."""
    inverse = np.linalg.inv(state.gram)
    expected = np.clip(x @ (inverse @ state.moment), *LOG_RANGE)
    return expected, np.maximum(np.einsum("ij,jk,ik->i", x, inverse, x), 0.0)


def design(state: Population, clients: IntArray, pool: PoolView) -> FloatArray:
    """Return a 1 and the standardised features of clients; 0, the mean, for an unknown one."""
    x = np.zeros((len(clients), 1 + len(state.centre)))
    x[:, 0] = 1.0
    known = pool.features
    if len(state.centre) and known is not None and known.shape[1] == len(state.centre):
        standard = np.nan_to_num((known[clients] - state.centre) / state.scale)
        x[:, 1:] = np.clip(standard, -MAX_STANDARD_FEATURE, MAX_STANDARD_FEATURE)
    return x


def _add_features(state: Population, features: FloatArray) -> None:
    """Extend the regression by features; earlier responses count as those of average clients."""
    n = np.maximum(np.count_nonzero(~np.isnan(features), axis=0), 1)
    state.centre = np.nansum(features, axis=0) / n
    spread = np.sqrt(np.nansum((features - state.centre) ** 2, axis=0) / n)
    state.scale = np.where(spread > 0, spread, 1.0)
    gram = np.diag(np.full(1 + features.shape[1], RIDGE))
    gram[0, 0] = state.gram[0, 0]
    state.gram, state.moment = gram, np.append(state.moment, np.zeros(features.shape[1]))
