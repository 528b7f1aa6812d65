"""Annealing: right neighbours, right energies, right temperature."""

from collections import Counter
from itertools import product
from random import Random

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.solvers import PROPOSALS, anneal, annealing, energy, solve_annealing, solve_exact

PROPOSE = annealing.PROPOSE
UNIFORM = ("swap", "symmetric", "drop-weakest")


def neighbours(proposal, u, g, cohort):
    """Every (leaves, enters) the definition allows, written out with sets."""
    k, inside = len(u), set(cohort)
    outside = set(range(k)) - inside

    def weakest(members):
        return {min(members, key=lambda c: (u[c], c)), min(members, key=lambda c: (g[c], c))}

    if proposal == "swap":
        return set(product(inside, outside))
    if proposal == "drop-weakest":
        return set(product(weakest(inside), outside))
    return {
        (i, j)
        for i, j in product(inside, outside)
        if i in weakest(inside) or j in weakest(inside - {i} | {j})
    }


@pytest.mark.parametrize("proposal", UNIFORM)
@pytest.mark.parametrize("seed", range(5))
def test_proposals_are_uniform_over_their_neighbourhood(proposal, seed):
    rng = np.random.default_rng(seed)
    u, g = rng.integers(0, 6, 9).astype(float), rng.integers(0, 6, 9).astype(float)
    cohort = rng.choice(9, 4, replace=False)
    if seed == 4:  # outsiders that would be the weakest by both values must not count twice
        u, g, cohort = np.arange(9.0), np.arange(9.0), np.array([4, 5, 7, 8])
    expected = neighbours(proposal, u, g, cohort.tolist())
    walk = annealing._Walk(u, g, cohort, 1.0)
    draw, n_draws = Random(seed), 20_000
    seen = Counter(PROPOSE[proposal](walk, draw.random) for _ in range(n_draws))
    assert set(seen) == expected
    mean = n_draws / len(expected)
    # five standard deviations of a binomial count around its mean
    assert max(abs(n - mean) for n in seen.values()) < 5 * mean**0.5


def test_newcomer_first_by_hand():
    """Members 1 and 3, lowest u 2 (client 1), lowest g 1 (client 3); outsiders 0, 2 and 4.

    By u, outsiders 2 and 4 are above client 1 and replace it, outsider 0 replaces any member. By g,
    outsiders 0 and 2 are above client 3 and replace it, outsider 4 replaces any member. Every
    outsider and either value has the same probability, 1 / 6.
    """
    u, g = np.array([1.0, 2.0, 3.0, 5.0, 4.0]), np.array([4.0, 3.0, 2.0, 1.0, 0.0])
    walk = annealing._Walk(u, g, np.array([1, 3]), 1.0)
    draw, n_draws = Random(0), 24_000
    seen = Counter(PROPOSE["newcomer-first"](walk, draw.random) for _ in range(n_draws))
    twelfths = {(1, 0): 1, (3, 0): 3, (1, 2): 2, (3, 2): 2, (1, 4): 3, (3, 4): 1}
    assert set(seen) == set(twelfths) <= neighbours("symmetric", u, g, [1, 3])
    for swap, n in twelfths.items():  # five standard deviations
        assert abs(seen[swap] - n_draws * n / 12) < 5 * (n_draws * n / 12) ** 0.5


@pytest.mark.parametrize("proposal", PROPOSALS)
def test_energies_are_kept_up_to_date(proposal):
    rng = np.random.default_rng(3)
    u, g = rng.random(40), rng.normal(size=40)
    walk = annealing._Walk(u, g, rng.choice(40, 7, replace=False), 2.0 / 7)
    draw = Random(1)
    for _ in range(500):
        member, outsider = PROPOSE[proposal](walk, draw.random)
        walk.move(member, outsider, *walk.peek(member, outsider))
        assert walk.energy == pytest.approx(energy(u, g, np.array(walk.inside), 2.0), abs=1e-9)
        assert len(set(walk.inside)) == 7


@pytest.mark.slow
def test_temperature_is_delta_max_over_log():
    # Two clients, m = 1: from the better one (E = 1) the only neighbour is the worse one (E = 0)
    # and Delta_max = 1, so step i leaves with probability exp(-log(i + 1)) = 1 / (i + 1).
    u, g, runs, steps = np.array([1.0, 0.0]), np.zeros(2), 4000, 5
    left, at_top = np.zeros((2, steps))
    for seed in range(runs):
        path = anneal(u, g, 1, 1.0, steps=steps, proposal="swap", rng=np.random.default_rng(seed))
        before, after = path.energies[:-1], path.energies[1:]
        at_top += before == 1.0
        left += (before == 1.0) & (after == 0.0)
        assert np.all(after[before == 0.0] == 1.0), "a better neighbour is always accepted"
    expected = 1 / (np.arange(1, steps + 1) + 1)
    deviation = np.sqrt(expected * (1 - expected) / at_top)
    assert np.all(np.abs(left / at_top - expected) < 4 * deviation)


@pytest.mark.parametrize("proposal", PROPOSALS)
def test_never_beats_the_exact_optimum_and_returns_its_best_cohort(proposal):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        k = int(rng.integers(5, 60))
        m = int(rng.integers(1, k + 1))
        u, g = rng.random(k), rng.uniform(-1, 1, k)
        path, again = (
            anneal(
                u, g, m, 3.0, steps=20 * seed, proposal=proposal, rng=np.random.default_rng(seed)
            )
            for _ in range(2)
        )
        assert path.cohort.tolist() == again.cohort.tolist()
        assert energy(u, g, path.cohort, 3.0) == pytest.approx(path.energies.max())
        best = energy(u, g, solve_exact(u, g, m, 3.0), 3.0)
        assert path.energies.max() <= best + 1e-9


def test_drop_weakest_finds_the_optimum_of_a_small_problem():
    rng = np.random.default_rng(0)
    u, g = rng.random(12), rng.random(12)
    cohort = solve_annealing(u, g, 4, 1.0, steps=5000, proposal="drop-weakest", rng=rng)
    assert cohort.tolist() == solve_exact(u, g, 4, 1.0).tolist()


@pytest.mark.parametrize("proposal", PROPOSALS)
def test_unseen_clients_do_not_break_the_walk(proposal):
    u = np.array([np.inf, 0.4, np.inf, 0.2, 0.9])
    path = anneal(
        u, np.zeros(5), 2, 1.0, steps=400, proposal=proposal, rng=np.random.default_rng(0)
    )
    assert path.cohort.tolist() == [0, 2]
    assert not np.isnan(path.energies).any()


@pytest.mark.parametrize("settings", [{"proposal": "jump"}, {"steps": -1}])
def test_bad_settings_are_rejected(settings):
    u, rng = np.ones(3), np.random.default_rng(0)
    with pytest.raises(InvalidInput, match=f"^{next(iter(settings))} must be"):
        anneal(u, u, 2, 1.0, **({"steps": 5, "proposal": "swap", "rng": rng} | settings))
