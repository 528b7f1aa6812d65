"""How long rounds of random selection would take, estimated from observed latencies."""

from dataclasses import dataclass

import numpy as np

from bsfl.random import stream
from bsfl.types import BoolArray, FloatArray, IntArray

N_POPULATIONS, N_ROUNDS = 100, 200
"""How many plausible populations of clients are drawn, and rounds of each."""
SHRINKAGE = 4.0
"""Responses that the variance within all clients is worth beside a client's own."""
PRIOR_VARIANCE, PRIOR_FREEDOM = 0.05, 4.0
"""Variance within clients before any was observed, and the responses it is worth."""
PRIOR_INVITATIONS = 5.0
"""Invitations that the response rate of all clients is worth beside a client's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What was observed of every client that was invited, one number for each.

    Attributes:
        n_responses, n_misses: Invitations that it responded to, and that it did not.
        n_timed, log_latency, spread: How many latencies are known, the mean of their logarithms and
            the sum of squared deviations from it.
    """

    n_responses: IntArray
    n_misses: IntArray
    n_timed: IntArray
    log_latency: FloatArray
    spread: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The rounds to estimate.

    Attributes:
        n_available: Clients to select from; those that were never invited resemble the others.
        n_invited, target_responses: As in a round.
        deadline_s: Seconds after which a round closes; None: it waits.
    """

    n_available: int
    n_invited: int
    target_responses: int
    deadline_s: float | None = None


def random_round_s(
    observed: Observed, conditions: Conditions, *, seed: int = 0
) -> tuple[float, float, float] | None:
    """Return the mean duration of rounds of random selection, and its 95 % interval.

    Latencies of a client are taken as lognormal. The interval covers what is not known of the
    clients: their medians and response rates are drawn given the observed responses. None: fewer
    than two clients have responded.
    """
    seen: BoolArray = observed.n_timed > 0
    if np.count_nonzero(seen) < 2:
        return None
    rng = stream(seed, "random-rounds")
    means = np.sort([_mean_round_s(observed, seen, conditions, rng) for _ in range(N_POPULATIONS)])
    low, high = np.quantile(means, [0.025, 0.975])
    return float(means.mean()), float(low), float(high)


def _mean_round_s(
    observed: Observed, seen: BoolArray, conditions: Conditions, rng: np.random.Generator
) -> float:
    """Return the mean duration of rounds with one plausible population."""
    n_timed, spread = observed.n_timed[seen], observed.spread[seen]
    freedom = np.maximum(n_timed - 1, 0)
    variance = (PRIOR_FREEDOM * PRIOR_VARIANCE + spread.sum()) / (PRIOR_FREEDOM + freedom.sum())
    own = SHRINKAGE * variance + spread
    sigma = np.sqrt(own / (SHRINKAGE + freedom))
    median = observed.log_latency[seen] + rng.standard_normal(len(sigma)) * sigma / np.sqrt(n_timed)
    responds = _response_rates(observed, rng)
    n_unseen = max(conditions.n_available - len(responds), 0) + np.count_nonzero(~seen)
    like = rng.integers(len(median), size=n_unseen)
    median, sigma = np.append(median, median[like]), np.append(sigma, sigma[like])
    rate = np.concatenate(
        [responds[seen], responds[~seen], rng.choice(responds, n_unseen - np.count_nonzero(~seen))]
    )
    n = min(conditions.n_invited, len(median))
    cohorts = rng.random((N_ROUNDS, len(median))).argpartition(n - 1, axis=1)[:, :n]
    latency = np.exp(median[cohorts] + sigma[cohorts] * rng.standard_normal(cohorts.shape))
    latency[rng.random(cohorts.shape) > rate[cohorts]] = np.inf
    return float(_durations(latency, conditions).mean())


def _response_rates(observed: Observed, rng: np.random.Generator) -> FloatArray:
    """Return plausible probabilities to respond, shrunk to that of all clients."""
    responses, misses = observed.n_responses, observed.n_misses
    usual = (responses.sum() + 1.0) / (responses.sum() + misses.sum() + 1.0)
    prior = PRIOR_INVITATIONS * usual, PRIOR_INVITATIONS * (1.0 - usual) + 1e-9
    return np.asarray(rng.beta(responses + prior[0], misses + prior[1]))


def _durations(latency: FloatArray, conditions: Conditions) -> FloatArray:
    """Return how long rounds take: to the target response, the last response or the deadline."""
    ordered = np.sort(latency, axis=1)
    m = min(conditions.target_responses, ordered.shape[1])
    target_s = ordered[:, m - 1]
    if conditions.deadline_s is not None:
        return np.minimum(target_s, conditions.deadline_s)
    last_s = np.where(np.isfinite(ordered), ordered, 0.0).max(axis=1)
    return np.where(np.isfinite(target_s), target_s, last_s)
