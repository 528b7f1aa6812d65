"""Shares that are capped at 1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsfl.estimators.fairness import capped_shares


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
