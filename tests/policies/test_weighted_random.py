"""Weighted random selection: its inclusion probabilities, against slow capping."""

import numpy as np
import pytest
from policy_rounds import assert_frequencies, drive

from bsfl.policies import WeightedRandom
from bsfl.policies.weighted_random import systematic_sample


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[1, 2, 3, 4, 5, 6, 7, 8], [50, 1, 1, 2, 3, 3, 4, 40]])
def test_inclusion_probabilities_are_as_published(sizes):
    sizes, m = np.array(sizes, dtype=float), 3
    target = m * sizes / sizes.sum()
    while target.max() > 1:  # cap one after another, the slow way
        capped = target >= 1
        target = np.where(capped, 1.0, (m - capped.sum()) * sizes / sizes[~capped].sum())
    driver = drive(WeightedRandom(), 8, m, samples=sizes)
    here = driver.context()
    assert_frequencies(lambda rng: driver.select(here, rng), target, 20_000)

    if target.max() < 1:  # the margin is tight enough to distinguish the methods
        p = sizes / sizes.sum()
        with pytest.raises(AssertionError, match="instead of"):
            assert_frequencies(lambda rng: rng.choice(8, m, replace=False, p=p), target, 20_000)


def test_systematic_sample_survives_rounding():
    rng = np.random.default_rng(0)
    inclusion = np.repeat([1 / 3, 0.1, 1.0], [3, 10, 2])
    for _ in range(2000):
        drawn = set(systematic_sample(inclusion, rng).tolist())
        assert len(drawn) == 4
        assert {13, 14} <= drawn
