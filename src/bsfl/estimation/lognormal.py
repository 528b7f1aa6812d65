r"""A hierarchical model of latencies, so that a client nobody has met can be judged by its like.

    ln tau = x_k theta + b_k + noise,   b_k ~ N(0, s^2),   noise ~ N(0, sigma_k^2)

x_k holds a 1 and the features that the caller gave of client k, standardised. theta is a ridge
regression on the first answer of every client, so that the often chosen do not outvote the others;
s^2 + sigma^2 is the variance of its errors, sigma^2 that of a client's own answers. All of it is
updated in O(cohort). A client is judged by the posterior of x_k theta + b_k: before its first
answer that is the prediction for clients like it, with an honest width.
"""

from dataclasses import dataclass, field, fields
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.estimation.memory import ClientStats
from bsfl.records import LATENCY_RANGE, FloatArray, IntArray, Roster

RIDGE = 1.0
"""Weight of the prior theta = 0, in clients; the constant is free."""
FADE = 0.999
"""Early errors of the regression count less: it was worse then."""
FIRST_GUESS = (2.0, 1.0), (4.0, 0.05)
"""(weight, variance) of the guess before the first answers: between clients, and of one client."""
SHRINKAGE = 4.0
"""Answers that the population's sigma^2 is worth beside a client's own."""
FARTHEST = 1e3
"""Standard deviations from the centre at which a feature is cut: no client outweighs all others."""
LOG_RANGE = np.log(LATENCY_RANGE)
"""What ln tau can be."""

_ERRORS, _N_ERRORS, _SPREAD, _FREEDOM = range(4)


def _nothing(*shape: int) -> FloatArray:
    return field(default_factory=lambda: np.zeros(shape))


@dataclass(slots=True, kw_only=True)
class Population:
    """What is known of the fleet as a whole; empty before the first answer.

    Attributes:
        centre, scale: Mean and standard deviation of the features.
        gram, moment: The ridge regression of first answers on features.
        pooled: Sums of squares and their weights, between clients and within one.
    """

    centre: FloatArray = _nothing(0)
    scale: FloatArray = _nothing(0)
    gram: FloatArray = _nothing(0, 0)
    moment: FloatArray = _nothing(0)
    pooled: FloatArray = _nothing(0)

    def check(self) -> None:
        """Check that all parts fit together, and that a client can be judged by them."""
        n = len(self.centre)
        if not len(self.pooled):
            n = -1
        shapes = (n,), (n,), (n + 1, n + 1), (n + 1,), (4,)
        found = [np.shape(getattr(self, one.name)) for one in fields(self)]
        if n >= 0 and found != list(shapes):
            raise InvalidInput("what is known of the fleet's latencies does not fit together")
        if n < 0 and any(np.prod(shape) for shape in found):
            raise InvalidInput("the fleet's latencies have no spread")
        if np.any(self.scale <= 0) or np.any(self.pooled < 0) or np.any(self.pooled[1:] == 0):
            raise InvalidInput("scale and pooled must be above 0")
        if n >= 0 and np.linalg.eigvalsh(self.gram).min() <= 0:
            raise InvalidInput("gram must be positive definite")


class Posterior(NamedTuple):
    """Posterior of the mean of ln tau, and the standard deviation of single answers."""

    mean: FloatArray
    variance: FloatArray
    sigma: FloatArray

    def quantile(self, level: float) -> FloatArray:
        """Return ln tau at a quantile of single answers."""
        return self.mean + NormalDist().inv_cdf(level) * self.sigma

    def next_answer(self, level: float) -> FloatArray:
        """Return ln tau at a quantile of the next answer, by all that is not known of a client."""
        return self.mean + NormalDist().inv_cdf(level) * np.sqrt(self.variance + self.sigma**2)


def learn(
    state: Population,
    clients: IntArray,
    values: FloatArray,
    stats: ClientStats,
    roster: Roster | None,
) -> None:
    """Take in ln tau of clients, of which `stats` was remembered before."""
    if not len(clients):
        return
    if not len(state.pooled):
        (between, guess), (within, noise) = FIRST_GUESS
        state.gram, state.moment = np.full((1, 1), 1e-6), np.zeros(1)
        state.pooled = np.array([between * guess, between, within * noise, within])
    if roster is not None and roster.features is not None and not len(state.centre):
        _meet_features(state, roster.features)
    new = stats.answers == 0
    if new.any():
        _learn_first(state, design(state, clients[new], roster), values[new])
    step = values[~new] - stats.mean[~new]
    part = stats.count[~new] / (stats.count[~new] + 1)
    state.pooled[_SPREAD] += np.sum(part * step**2)
    state.pooled[_FREEDOM] += np.sum(part)


def _learn_first(state: Population, x: FloatArray, values: FloatArray) -> None:
    """Take in the first answers of clients with features x."""
    expected, leverage = _predicted(state, x)
    errors = values - expected
    if state.gram[0, 0] >= 1.0:  # the very first answers tell the level, not how clients differ
        fade = FADE ** len(errors)
        state.pooled[_ERRORS] = fade * state.pooled[_ERRORS] + np.sum(errors**2 / (1 + leverage))
        state.pooled[_N_ERRORS] = fade * state.pooled[_N_ERRORS] + len(errors)
    state.gram += x.T @ x
    state.moment += x.T @ values


class Judge:
    """What to think of clients, by what is known of the fleet; looks at each client alone."""

    def __init__(self, state: Population, roster: Roster | None) -> None:
        """Take in the state, which must not change meanwhile."""
        self._state, self._roster = state, roster
        if not len(state.pooled):
            return
        self._noise = state.pooled[_SPREAD] / state.pooled[_FREEDOM]
        self._total = max(state.pooled[_ERRORS] / state.pooled[_N_ERRORS], self._noise)
        self._own = max(self._total - self._noise, 1e-3 * self._total)
        self._average = _predicted(state, design(state, np.zeros(1, dtype=np.int64), None))

    def __call__(self, clients: IntArray, stats: ClientStats) -> Posterior:
        """Return what to think of clients, of which `stats` is remembered."""
        state = self._state
        if not len(state.pooled):
            nothing = np.zeros(len(clients))
            return Posterior(nothing, nothing + 1.0, nothing + FIRST_GUESS[1][1] ** 0.5)
        expected, leverage = self._average  # which everyone is without features
        if len(state.centre):
            expected, leverage = _predicted(state, design(state, clients, self._roster))
        prior = self._own + self._total * leverage
        n = stats.count.astype(np.float64)
        sigma2 = np.maximum(n - 1.0, 0.0)
        sigma2 += SHRINKAGE
        np.divide(SHRINKAGE * self._noise + stats.spread, sigma2, out=sigma2)
        n *= prior
        trust = n / (n + sigma2)  # of a client's own mean: prior / (prior + sigma^2 / n)
        mean = stats.mean - expected
        mean *= trust
        mean += expected
        return Posterior(mean, (1 - trust) * prior, np.sqrt(sigma2, out=sigma2))


def _predicted(state: Population, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the regression's x theta, a time that can be, and how far x is from what was seen."""
    inverse = np.linalg.inv(state.gram)
    expected = np.clip(x @ (inverse @ state.moment), *LOG_RANGE)
    return expected, np.maximum(np.einsum("ij,jk,ik->i", x, inverse, x), 0.0)


def design(state: Population, clients: IntArray, roster: Roster | None) -> FloatArray:
    """Return a 1 and the standardised features of clients; an unknown feature is average."""
    x = np.zeros((len(clients), 1 + len(state.centre)))
    x[:, 0] = 1.0
    known = None if roster is None else roster.features
    if len(state.centre) and known is not None and known.shape[1] == len(state.centre):
        standard = np.nan_to_num((known[clients] - state.centre) / state.scale)
        x[:, 1:] = np.clip(standard, -FARTHEST, FARTHEST)
    return x


def _meet_features(state: Population, features: FloatArray) -> None:
    """Make room for the effects of features; so far everyone counted as average."""
    n = np.maximum(np.count_nonzero(~np.isnan(features), axis=0), 1)
    state.centre = np.nansum(features, axis=0) / n
    spread = np.sqrt(np.nansum((features - state.centre) ** 2, axis=0) / n)
    state.scale = np.where(spread > 0, spread, 1.0)
    gram = np.diag(np.full(1 + features.shape[1], RIDGE))
    gram[0, 0] = state.gram[0, 0]
    state.gram, state.moment = gram, np.append(state.moment, np.zeros(features.shape[1]))
