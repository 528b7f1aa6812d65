"""Shares that are capped at 1, and how evenly clients participate."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsfl.estimators.fairness import capped_shares, gini, participation


@given(
    st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=30).map(np.array),
    st.integers(1, 30),
)
def test_capped_shares_are_proportional_if_they_are_not_capped(weights, total):
    shares = capped_shares(weights, total)
    assert np.all(shares <= 1.0)
    assert shares.sum() == pytest.approx(min(total, len(weights)))
    free = shares < 1.0
    if free.sum() > 1:
        ratio = shares[free] / weights[free]
        assert ratio == pytest.approx(ratio[0])
    if free.any() and not free.all():
        assert weights[~free].min() >= weights[free].max() * (1 - 1e-9)


def test_gini_by_hand():
    # mean absolute difference of (1, 3) over twice the mean: (2*2/4) / (2*2) = 1/4
    assert gini(np.array([1, 3])) == pytest.approx(0.25)
    assert gini(np.array([0, 0])) == 0.0


def test_participation_ignores_empty_places():
    assert participation(np.array([[0, 2], [2, -1]]), 4).tolist() == [1, 0, 2, 0]
