"""Weighted random selection: its inclusion probabilities, against slow capping."""

import numpy as np
import pytest
from policy_rounds import drive

from bsfl.errors import InvalidInput
from bsfl.policies import WeightedRandom
from bsfl.policies.weighted_random import systematic_sample


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[1, 2, 3, 4, 5, 6, 7, 8], [50, 1, 1, 2, 3, 3, 4, 40]])
def test_inclusion_probabilities_are_as_published(sizes):
    sizes, m, draws = np.array(sizes, dtype=float), 3, 20_000
    driver, rng, hits = (
        drive(WeightedRandom(), 8, m, samples=sizes),
        np.random.default_rng(2),
        np.zeros(8),
    )
    here = driver.context()
    for _ in range(draws):
        cohort = driver.select(here, rng)
        assert len(set(cohort.tolist())) == m
        hits[cohort] += 1
    target = m * sizes / sizes.sum()
    while target.max() > 1:  # cap one after another, the slow way
        capped = target >= 1
        target = np.where(capped, 1.0, (m - capped.sum()) * sizes / sizes[~capped].sum())
    margin = 4 * np.sqrt(target * (1 - target) / draws) + 1e-12
    assert np.all(np.abs(hits / draws - target) < margin)


@pytest.mark.slow
def test_drawing_one_after_another_would_not_have_those_probabilities():
    """The margin above is tight enough to distinguish the methods."""
    sizes, m, draws = np.arange(1.0, 9.0), 3, 20_000
    rng = np.random.default_rng(2)
    hits = np.zeros(8)
    for _ in range(draws):
        hits[rng.choice(8, m, replace=False, p=sizes / sizes.sum())] += 1
    target = m * sizes / sizes.sum()
    assert np.any(np.abs(hits / draws - target) > 4 * np.sqrt(target * (1 - target) / draws))


def test_systematic_sample_survives_rounding():
    rng = np.random.default_rng(0)
    inclusion = np.full(3, 1 / 3)
    inclusion = np.concatenate([inclusion, np.full(10, 0.1), np.ones(2)])
    for _ in range(2000):
        drawn = systematic_sample(inclusion, rng)
        assert len(drawn) == len(set(drawn.tolist())) == 4
        assert {13, 14} <= set(drawn.tolist())


def test_samples_are_needed():
    with pytest.raises(InvalidInput, match="needs every client's samples"):
        drive(WeightedRandom(), 4, 2).select()
