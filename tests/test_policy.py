"""The tools that policies share."""

import numpy as np

from bsfl.policy import top_m


def test_top_m_breaks_ties_at_random():
    score = np.array([1.0, 1.0, 1.0, 0.0, 2.0])
    cohorts = {tuple(top_m(score, 2, np.random.default_rng(s)).tolist()) for s in range(50)}
    assert cohorts == {(0, 4), (1, 4), (2, 4)}
