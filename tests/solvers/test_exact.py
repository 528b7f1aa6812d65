"""The exact solver against every cohort there is, and against a plain heap sweep."""

from heapq import heappush, heappushpop

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.solvers import energy, exact, solve_exact, solve_exhaustive


@pytest.mark.parametrize("n_cases", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_equals_exhaustive_search(n_cases):
    """Values are small whole numbers, so that ties are frequent and only m divides inexactly."""
    rng = np.random.default_rng(0)
    for _ in range(n_cases):
        n, alpha = int(rng.integers(1, 9)), float(rng.integers(0, 4))
        u, g = rng.integers(-3, 4, (2, n)).astype(float)
        u[rng.random(n) < 0.15] = np.inf
        m = int(rng.choice([1, n, rng.integers(1, n + 1)]))
        cohort = solve_exact(u, g, m, alpha)
        assert len(cohort) == m
        assert np.all(np.diff(cohort) > 0), "sorted and distinct"
        best = energy(u, g, solve_exhaustive(u, g, m, alpha), alpha)
        assert energy(u, g, cohort, alpha) == pytest.approx(best, abs=1e-12)


def heap_sweep(u, g, m, alpha):
    """The textbook sweep: one client at a time, a heap of the m largest g."""
    heap, total, best = [], 0.0, -np.inf
    for k in np.argsort(-u, kind="stable"):
        if len(heap) < m:
            heappush(heap, g[k])
            total += g[k]
        else:
            total += g[k] - heappushpop(heap, g[k])
        if len(heap) == m:
            best = max(best, u[k] + alpha / m * total)
    return best


@pytest.mark.parametrize("correlation", [-1, 0, 1])
@pytest.mark.parametrize("digits", [2, 16])
def test_two_stages_and_small_chunks_equal_the_heap_sweep(monkeypatch, correlation, digits):
    monkeypatch.setattr(exact, "SAMPLE_SIZE", 64)  # both stages run although K is small
    monkeypatch.setattr(exact, "CHUNK_SIZE", 50)
    rng = np.random.default_rng(digits + correlation)
    for _ in range(150):
        n, m = int(rng.integers(200, 2000)), int(rng.integers(1, 60))
        noise, alpha = 10.0 ** rng.uniform(-5, 1), 10.0 ** rng.uniform(-2, 2)
        u = np.round(rng.random(n), digits)
        g = np.round(correlation * u + noise * rng.normal(size=n), digits)
        found = energy(u, g, solve_exact(u, g, m, alpha), alpha)
        assert found == pytest.approx(heap_sweep(u, g, m, alpha), abs=1e-11 * (1 + alpha))


def test_a_misleading_sample_costs_time_and_not_exactness():
    n, m, alpha = 20_000, 30, 1.0
    u, g = np.random.default_rng(5).random((2, n))
    u[:: n // exact.SAMPLE_SIZE] += 10.0  # exactly the clients that the sample looks at
    u[0] = 100.0
    found = energy(u, g, solve_exact(u, g, m, alpha), alpha)
    assert found == pytest.approx(heap_sweep(u, g, m, alpha), rel=1e-12)


@pytest.mark.parametrize("spacing", [0.0, 1e-3, 1e-15, np.inf])
def test_order_is_right_when_values_are_too_close_for_the_integer_keys(spacing):
    steps = np.random.default_rng(0).integers(1, 1000, 3 * exact.CHUNK_SIZE)
    u = 1.0 + spacing * steps
    u[7] = 0.5
    fallen, g = exact._fastest_first(u, np.arange(len(u)) * 1.0)
    assert np.all(fallen[:-1] >= fallen[1:])
    assert np.array_equal(u[g.astype(int)], fallen)
    assert sorted(g) == list(range(len(u)))


def test_large_values_that_come_and_go_leave_no_rounding():
    u, g = np.array([5.0, 4.0, 3.0, 2.0, 1.0]), np.array([-1e17, 1.0, 1.0, 1.0, 3.0])
    assert energy(u, g, solve_exact(u, g, 3, 3.0), 3.0) == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("u", "g", "alpha", "cohort"),
    [
        pytest.param(np.ones(6), [0, 1, 1, 1, 0, 1], 1.0, [1, 2], id="the first of equal clients"),
        pytest.param([np.inf, 0.9, np.inf, np.inf], [0.1, 9, 0.3, 0.2], 1.0, [2, 3], id="unseen"),
        pytest.param([0.2, 0.9, 0.5], [9, -9, 0], 0.0, [1, 2], id="speed alone"),
    ],
)
def test_cohorts_by_hand(u, g, alpha, cohort):
    assert solve_exact(np.array(u), np.array(g), 2, alpha).tolist() == cohort


def test_extreme_values_raise_no_warning():
    n = 20_000
    for u in (
        np.full(n, np.inf),
        np.linspace(0, 1e-310, n),
        np.repeat([-1.5e308, 1.5e308], n // 2),
    ):
        assert len(solve_exact(u, np.arange(n) * 1.0, 5, 1.0)) == 5


@pytest.mark.parametrize(
    ("u", "g", "m", "alpha", "message"),
    [
        ([1.0], [1.0], 0, 1.0, "m must be a whole number"),
        ([1.0], [1.0], 2, 1.0, "m must be between 1 and the 1 clients, got 2"),
        ([1.0], [1.0], 1, -1.0, "alpha must be"),
        ([1.0], [1.0], 1, np.nan, "alpha must be"),
        ([np.nan, 1.0], [1.0, 1.0], 1, 1.0, "u must hold no NaN"),
        ([-np.inf, 1.0], [1.0, 1.0], 1, 1.0, "no -inf"),
        ([1.0, 1.0], [1.0, np.inf], 1, 1.0, "g must hold finite numbers"),
        ([1.0, 1.0], [1.0], 1, 1.0, r"got shapes \(2,\) and \(1,\)"),
        ([], [], 1, 1.0, "not empty"),
        (np.zeros(500), np.zeros(500), 25, 1.0, "use solve_exact"),
    ],
)
def test_ill_posed_problems_are_rejected(u, g, m, alpha, message):
    with pytest.raises(InvalidInput, match=message):
        solve_exhaustive(np.array(u), np.array(g), m, alpha)
    if len(u) < 500:  # too many cohorts for exhaustive search alone
        with pytest.raises(InvalidInput, match=message):
            solve_exact(np.array(u), np.array(g), m, alpha)
