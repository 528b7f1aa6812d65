"""Confidence widths by hand."""

import numpy as np
import pytest

from bsfl.estimators.confidence import bernstein_width, hoeffding_width, no_width, paper_width


def test_the_width_of_the_paper_by_hand():
    # m = 5, t = 7: sqrt(6 ln 7 / c)
    width = paper_width(np.array([0, 1, 3]), t=7, m=5, variance=None)
    assert width == pytest.approx([np.inf, 3.4169, 1.9728], abs=1e-4)


def test_first_two_rounds():
    # ucb(k, 0) is never used with a count; ln 1 = 0 makes the width after round 1 vanish
    assert hoeffding_width(np.array([0, 2]), t=0, scale=3.0).tolist() == [np.inf, 0.0]
    assert hoeffding_width(np.array([0, 2]), t=1, scale=3.0).tolist() == [np.inf, 0.0]


def test_bernstein_by_hand():
    # t = 7, V = 0.04: sqrt(0.5 x 0.04 ln 7 / c) + 0.15 ln 7 / c = 0.1973 + 0.2919 for c = 1
    width = bernstein_width(np.array([0, 1, 4]), t=7, m=5, variance=lambda: np.full(3, 0.04))
    assert width == pytest.approx([np.inf, 0.4892, 0.0986 + 0.0730], abs=1e-4)


def test_without_a_width_unseen_clients_still_come_first():
    assert no_width(np.array([0, 4]), t=9, m=2, variance=None).tolist() == [np.inf, 0.0]
