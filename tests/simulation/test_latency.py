"""Latency models: what is drawn agrees with what is promised."""

from math import erf, exp, log, sqrt

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.simulation import (
    Flaky,
    Recorded,
    Scaled,
    Swapped,
    clipped_normal,
    inverse_normal,
    lognormal,
    shifted_exponential,
)


def cdf(x):
    return 0.5 * (1 + erf(x / sqrt(2)))


def mean_inverse_of_clipped_lognormal(median, sigma, low, high):
    """E[1 / clip(median exp(sigma Z), low, high)] in closed form."""
    mu = log(median)
    a, b = (log(low) - mu) / sigma, (log(high) - mu) / sigma
    inside = exp(-mu + sigma**2 / 2) * (cdf(b + sigma) - cdf(a + sigma))
    return cdf(a) / low + inside + (1 - cdf(b)) / high


def test_true_means_equal_the_closed_form_of_the_lognormal():
    median, sigma = np.array([5.0, 20.0, 100.0]), np.array([0.1, 0.6, 0.3])
    model = lognormal(median, sigma)
    expected = [
        mean_inverse_of_clipped_lognormal(m, s, 2.0, 60.0)
        for m, s in zip(median, sigma, strict=True)
    ]
    assert model.mean_inverse(1, 2.0, 60.0) == pytest.approx(expected, rel=3e-6)


BASE = lognormal(np.array([0.1, 0.5, 0.9]), np.full(3, 0.2))
MODELS = {
    "clipped normal": clipped_normal(
        np.array([0.06, 0.3, 0.87]), np.array([0.05, 0.01, 0.04]), low=0.05, high=1.0
    ),
    "inverse normal": inverse_normal(
        np.array([0.02, 0.18, 0.95]), np.array([0.03, 0.02, 0.03]), work=0.1, low=0.1, high=1.0
    ),
    "lognormal": lognormal(np.array([0.1, 0.5, 0.9]), np.array([0.2, 0.6, 0.1])),
    "exponential": shifted_exponential(np.array([0.1, 0.2, 0.5]), np.array([0.1, 0.5, 0.05])),
    "recorded": Recorded([np.array([0.1, 0.2]), np.array([0.5]), np.array([0.3, 0.6, 0.9])]),
    "swapped": Swapped(BASE, np.array([2, 0, 1]), 1),
    "scaled": Scaled(BASE, np.array([1, 2, 0.5]), 1),
    "flaky": Flaky(BASE, 0.3),
    "flaky one by one": Flaky(BASE, np.array([0.0, 0.1, 0.8])),
}


@pytest.mark.parametrize("name", MODELS)
def test_true_means_equal_the_average_of_draws(name):
    model, n = MODELS[name], 20_000
    low, high = 0.05, 1.0
    rng = np.random.default_rng(0)
    draws = 1 / np.clip(np.array([model.draw(5, rng) for _ in range(n)]), low, high)
    margin = 4 * draws.std(axis=0) / sqrt(n) + 1e-9
    assert np.all(np.abs(draws.mean(axis=0) - model.mean_inverse(5, low, high)) < margin)


def test_a_negative_rate_is_slow_not_fast():
    model = inverse_normal(np.full(1000, -0.2), np.full(1000, 0.05), work=0.1, low=0.1, high=1.0)
    assert np.all(model.draw(1, np.random.default_rng(0)) == 1.0)


def test_swap_and_scale_start_on_time():
    base = lognormal(np.array([1.0, 2.0, 4.0]), np.zeros(3))
    rng = np.random.default_rng(0)
    swap = Swapped(base, np.array([2, 1, 0]), at=5)
    assert swap.draw(4, rng).tolist() == [1, 2, 4]
    assert swap.draw(5, rng).tolist() == [4, 2, 1]
    ramp = Scaled(base, np.array([1.0, 1.0, 16.0]), at=5, ramp=4)
    assert [ramp.draw(t, rng)[2] for t in (4, 5, 6, 7, 8, 99)] == pytest.approx(
        [4, 8, 16, 32, 64, 64]
    )
    assert ramp.phase(4) != ramp.phase(5) != ramp.phase(6)
    assert ramp.phase(8) == ramp.phase(99)


@pytest.mark.parametrize("wrong", [-2.0, np.nan])
def test_latencies_below_zero_or_none_at_all_are_refused(wrong):
    with pytest.raises(InvalidInput, match="latencies must be at least 0 s, got .* for client 1"):
        lognormal([1.0, wrong, 3.0], 0.1)
    for sigma in (-0.1, [0.1, 0.1], [0.1, np.nan, 0.1]):
        with pytest.raises(InvalidInput, match="sigma must be a number of at least 0, or one for"):
            lognormal([1.0, 2.0, 3.0], sigma)
