"""Uniform random selection: its inclusion probabilities."""

from math import sqrt

import numpy as np
from policy_rounds import drive

from bsfl.policies import UniformRandom


def test_all_clients_are_included_equally_often():
    driver, draws, k, m = drive(UniformRandom(), 8, 3), 6000, 8, 3
    here, rng, hits = driver.context(), np.random.default_rng(1), np.zeros(8)
    for _ in range(draws):
        hits[driver.select(here, rng)] += 1
    expected = m / k
    assert np.all(np.abs(hits / draws - expected) < 4 * sqrt(expected * (1 - expected) / draws))
