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
    if np.count_nonzero(observed.n_timed) < 2:
        return None
    rng = stream(seed, "random-rounds")
    means = np.sort([_mean_round_s(observed, conditions, rng) for _ in range(N_POPULATIONS)])
    low, high = np.quantile(means, [0.025, 0.975])
    return float(means.mean()), float(low), float(high)


def _mean_round_s(observed: Observed, conditions: Conditions, rng: np.random.Generator) -> float:
    """Return the mean duration of rounds with one plausible population.

    Only clients that are in a cohort get a median and a response rate, so a large population costs
    little more than a small one.
    """
    n_invited_before = len(observed.n_timed)
    cohorts = _cohorts(max(conditions.n_available, n_invited_before), conditions.n_invited, rng)
    members, place = np.unique(cohorts, return_inverse=True)
    place = place.reshape(cohorts.shape)
    like = rng.integers(n_invited_before, size=len(members))
    client = np.where(members < n_invited_before, members, like)
    rate = _response_rates(observed, client, rng)
    seen: BoolArray = observed.n_timed > 0
    like = rng.choice(np.flatnonzero(seen), size=len(members))
    client = np.where((members < n_invited_before) & seen[client], client, like)
    median, sigma = _medians(observed, client, rng)
    latency = np.exp(median[place] + sigma[place] * rng.standard_normal(place.shape))
    latency[rng.random(place.shape) > rate[place]] = np.inf
    return float(_durations(latency, conditions).mean())


def _cohorts(n_clients: int, n: int, rng: np.random.Generator) -> IntArray:
    """Return cohorts of random selection; each permutation of the clients is cut into several."""
    n = min(n, n_clients)
    n_cuts = n_clients // n
    shape = -(-N_ROUNDS // n_cuts), n_clients
    shuffled = rng.permuted(np.broadcast_to(np.arange(n_clients), shape), axis=1)
    return shuffled[:, : n_cuts * n].reshape(-1, n)[:N_ROUNDS]


def _medians(
    observed: Observed, client: IntArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return a plausible mean and the standard deviation of log latencies of some clients."""
    freedom = np.maximum(observed.n_timed - 1, 0).sum()
    total = PRIOR_FREEDOM * PRIOR_VARIANCE + observed.spread.sum()
    own = SHRINKAGE * total / (PRIOR_FREEDOM + freedom) + observed.spread[client]
    n_timed = observed.n_timed[client]
    sigma = np.sqrt(own / (SHRINKAGE + n_timed - 1))
    noise = rng.standard_normal(len(sigma)) * sigma / np.sqrt(n_timed)
    return observed.log_latency[client] + noise, sigma


def _response_rates(observed: Observed, client: IntArray, rng: np.random.Generator) -> FloatArray:
    """Return plausible probabilities to respond of some clients, shrunk to that of all."""
    responses, misses = observed.n_responses, observed.n_misses
    usual = (responses.sum() + 1.0) / (responses.sum() + misses.sum() + 1.0)
    prior = PRIOR_INVITATIONS * usual, PRIOR_INVITATIONS * (1.0 - usual) + 1e-9
    return np.asarray(rng.beta(responses[client] + prior[0], misses[client] + prior[1]))


def _durations(latency: FloatArray, conditions: Conditions) -> FloatArray:
    """Return how long rounds take: to the target response, the last response or the deadline."""
    ordered = np.sort(latency, axis=1)
    m = min(conditions.target_responses, ordered.shape[1])
    target_s = ordered[:, m - 1]
    if conditions.deadline_s is not None:
        return np.minimum(target_s, conditions.deadline_s)
    last_s = np.where(np.isfinite(ordered), ordered, 0.0).max(axis=1)
    return np.where(np.isfinite(target_s), target_s, last_s)
