"""Clients resampled from responses: the bootstrap of many, the population behind few."""

import numpy as np
import pytest

from bsfl.advisor.population import (
    ClientPosterior,
    fit_posterior,
    mean_population,
    response_population,
)
from bsfl.random import stream


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def draws(posterior: ClientPosterior, n: int = 400, seed: int = 0) -> np.ndarray:
    latency = posterior.sample(stream(seed, "w"))
    return np.array([latency.draw(t, stream(seed, "latency", t)) for t in range(n)])


def test_a_client_with_many_responses_is_drawn_from_them(rng):
    own = np.concatenate([np.full(500, 1.0), np.full(500, 4.0)])  # two values, and nothing between
    others = [np.exp(rng.normal(0.5, 0.3, 1000)) for _ in range(5)]
    posterior = fit_posterior([own, *others], np.zeros(6))
    drawn = draws(posterior, 4000)[:, 0]
    near = np.isclose(drawn, 1.0, rtol=0.1) | np.isclose(drawn, 4.0, rtol=0.1)
    assert near.mean() > 0.95, "1000 / 1020 of the draws have its own shape"
    assert np.log(drawn).mean() == pytest.approx(np.log(own).mean(), abs=0.1)
    assert np.log(drawn).std() == pytest.approx(np.log(own).std(), rel=0.05)


def test_few_responses_are_drawn_towards_the_population(rng):
    # one response each: what differs between clients cannot be distinguished from noise of others with two
    pairs = [np.exp(2.0 + rng.normal(0, 0.5, 2)) for _ in range(200)]  # no difference but noise
    posterior = fit_posterior([*pairs, np.exp(np.array([2.0 + 1.5]))], np.zeros(201))
    assert posterior.mean[-1] < 2.6, (
        "3 standard deviations of noise are not taken for a slow client"
    )
    far = [np.exp(rng.normal(0, 2.0) + rng.normal(0, 0.05, 2)) for _ in range(200)]
    posterior = fit_posterior([*far, np.exp(np.array([3.0]))], np.zeros(201))
    assert posterior.mean[-1] == pytest.approx(3.0, abs=0.05), "here one response is enough"


def test_variances_are_steadied_only_where_clients_are_alike(rng):
    alike = fit_posterior([np.exp(rng.normal(0, 0.3, 4)) for _ in range(300)], np.zeros(300))
    assert np.sqrt(alike.sigma2).std() < 0.05
    sigmas = np.where(np.arange(300) < 150, 0.01, 1.0)
    apart = fit_posterior([np.exp(rng.normal(0, s, 6)) for s in sigmas], np.zeros(300))
    assert np.median(apart.sigma2[:150]) < 0.02**2 * 4
    assert np.median(apart.sigma2[150:]) > 0.5


def test_unresponsive_clients_are_lost_and_reliable_ones_are_not():
    responses = [np.full(10, 2.0) for _ in range(20)] + [np.zeros(0)] * 2
    posterior = fit_posterior(responses, np.array([0.0] * 20 + [10.0] * 2))
    lost = np.isinf(draws(posterior)).mean(axis=0)
    assert lost[:20].mean() < 0.03
    assert lost[20:].mean() > 0.8
    assert not np.isinf(draws(fit_posterior(responses[:20], np.zeros(20)))).any()


def test_a_single_response_is_enough_to_draw_from():
    assert np.isfinite(draws(fit_posterior([np.array([5.0])], np.zeros(1)))).all()
    assert draws(fit_posterior([np.array([5.0]), np.zeros(0)], np.zeros(2))).shape == (400, 2)


def test_populations():
    assert mean_population(np.array([1.0, 3.0]), np.array([0.5, 0.5])) == (2.0, 1.5)
    a, b = response_population(np.array([9] * 50), np.array([1.0] * 50))
    assert a / (a + b) == pytest.approx(0.9)
    assert a + b > 100, "all alike: the population counts for much"


def test_seeds_differ_by_what_few_responses_leave_open(rng):
    # mu_k ~ N(0, 0.3^2) known by two responses with sigma 0.6: of the variance 0.09 the posterior means
    # hold 0.09^2 / (0.09 + 0.18) = 0.03, more where two responses happen to be close (0.031 to 0.044
    # over 16 seeds), and every seed must draw the rest
    responses = [np.exp(rng.normal(0, 0.3) + rng.normal(0, 0.6, 2)) for _ in range(4000)]
    posterior = fit_posterior(responses, np.zeros(4000))
    assert 0.03 < posterior.mean.var() < 0.046
    middle = np.median(np.log(draws(posterior, 60)), axis=0)  # of mu_k, plus 0.6^2 * pi / 2 / 60
    assert middle.var() == pytest.approx(0.09 + 0.009, rel=0.3)
