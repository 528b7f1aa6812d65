import numpy as np
import pytest

from bsfl.estimation.radii import hoeffding_radius, no_radius, paper_radius


def test_paper_radius_by_hand():
    # m = 5, t = 7: sqrt(6 ln 7 / c)
    radius = paper_radius(np.array([0, 1, 3]), t=7, m=5, variance=None)
    assert radius.tolist() == [
        np.inf,
        pytest.approx(3.4169, abs=1e-4),
        pytest.approx(1.9728, abs=1e-4),
    ]


def test_first_two_rounds():
    # ucb(k, 0) is never used with a count; ln 1 = 0 makes the radius after round 1 vanish
    assert hoeffding_radius(np.array([0, 2]), t=0, scale=3.0).tolist() == [np.inf, 0.0]
    assert hoeffding_radius(np.array([0, 2]), t=1, scale=3.0).tolist() == [np.inf, 0.0]


def test_no_radius_still_sends_unseen_clients_first():
    assert no_radius(np.array([0, 4]), t=9, m=2, variance=None).tolist() == [np.inf, 0.0]
