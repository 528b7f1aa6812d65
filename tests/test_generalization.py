"""The g functions against numbers worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsfl.errors import InvalidInput
from bsfl.estimation.averages import Selections
from bsfl.fairness import capped_shares
from bsfl.generalization import equal_deficit, loss_deficit, signed_power, weighted_deficit
from bsfl.records import Roster, RoundContext


def context(t, m, **roster):
    everyone = np.arange(4)
    return RoundContext(
        t=t, available=everyone, cohort_size=m, roster=Roster(n_members=4, **roster)
    )


def history(selected, loss=(np.nan,) * 4, late=(0,) * 4):
    return Selections(selected=np.array(selected), late=np.array(late), loss=np.array(loss))


def test_equal_deficit_is_m_over_k_minus_rate():
    # m/K = 2/4; c/t = 0/4, 1/4, 2/4, 4/4
    deficit = equal_deficit(np.arange(4), history([0, 1, 2, 4]), context(4, 2))
    assert deficit == pytest.approx([0.5, 0.25, 0.0, -0.5])


def test_a_late_answer_is_owed_and_over_selection_raises_no_target():
    # 3 invited for 2 places: m/K = 2/4. The second was late once: c = 1 of 2 selections
    here = replace(context(4, 3), enough=2)
    deficit = equal_deficit(np.arange(4), history([2, 2, 4, 4], late=[0, 1, 0, 0]), here)
    assert deficit == pytest.approx([0.0, 0.25, -0.5, -0.5])


def test_weighted_deficit_uses_quality_times_size():
    # d = 10*1, 10*.5, 20*.5, 5*1 = 10, 5, 10, 5; sum 30; m d/sum = 2/3, 1/3, 2/3, 1/3
    roster = {"samples": np.array([10.0, 10, 20, 5]), "quality": np.array([1, 0.5, 0.5, 1.0])}
    deficit = weighted_deficit(np.arange(4), history([1, 1, 0, 0]), context(2, 2, **roster))
    assert deficit == pytest.approx([2 / 3 - 1 / 2, 1 / 3 - 1 / 2, 2 / 3, 1 / 3])


def test_a_target_above_one_is_capped_and_its_excess_handed_on():
    # m = 2, sizes 8, 1, 1, 2: the first would get 2*8/12 > 1; the other place is shared 1:1:2
    deficit = weighted_deficit(
        np.arange(4), history([0] * 4), context(1, 2, samples=np.array([8.0, 1, 1, 2]))
    )
    assert deficit == pytest.approx([1.0, 0.25, 0.25, 0.5])


def test_a_member_that_left_gets_no_share_and_a_late_one_is_judged_from_its_arrival():
    roster = Roster(
        n_members=3,
        members=np.array([True, True, True, False]),
        since=np.array([1, 1, 9, 1]),
        samples=np.array([1.0, 2.0, 3.0, 99.0]),
    )
    late = RoundContext(t=10, available=np.arange(3), cohort_size=1, roster=roster)
    # K = 3; client 2 has been there for rounds 9 and 10, chosen once
    deficit = equal_deficit(np.arange(3), history([5, 4, 1, 0]), late)
    assert deficit == pytest.approx([1 / 3 - 5 / 10, 1 / 3 - 4 / 10, 1 / 3 - 1 / 2])
    deficit = weighted_deficit(np.arange(3), history([5, 4, 1, 0]), late)
    assert deficit == pytest.approx([1 / 6 - 5 / 10, 2 / 6 - 4 / 10, 3 / 6 - 1 / 2])


def test_loss_deficit_fills_unknown_losses_with_the_mean():
    # losses 1, 3, ?, ? -> mean 2; shares 2*l/8
    deficit = loss_deficit(np.arange(4), history([0] * 4, [1, 3, np.nan, np.nan]), context(1, 2))
    assert deficit == pytest.approx([0.25, 0.75, 0.5, 0.5])
    nobody = loss_deficit(np.arange(4), history([0] * 4), context(1, 2))
    assert nobody == pytest.approx([0.5] * 4)
    perfect = loss_deficit(np.arange(4), history([0] * 4, [0.0] * 4), context(1, 2))
    assert perfect == pytest.approx([0.5] * 4)


@pytest.mark.parametrize("beta", [1, 2, 3, 4])
def test_the_sign_survives_every_power(beta):
    assert signed_power(np.array([-0.5, 0.0, 0.5]), beta) == pytest.approx(
        [-(0.5**beta), 0.0, 0.5**beta]
    )


def test_weighted_needs_samples():
    with pytest.raises(InvalidInput, match="needs every client's samples"):
        weighted_deficit(np.arange(4), history([0] * 4), context(1, 2))
    with pytest.raises(InvalidInput, match="1 of 4 clients have none"):
        weighted_deficit(
            np.arange(4), history([0] * 4), context(1, 2, samples=np.array([1, 1, np.nan, 1]))
        )


@given(
    st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=30).map(np.array),
    st.integers(1, 30),
)
def test_capped_shares_are_proportional_where_they_are_not_capped(weights, total):
    shares = capped_shares(weights, total)
    assert np.all(shares <= 1.0)
    assert shares.sum() == pytest.approx(min(total, len(weights)))
    free = shares < 1.0
    if free.sum() > 1:
        ratio = shares[free] / weights[free]
        assert ratio == pytest.approx(ratio[0])
    if free.any() and not free.all():
        assert weights[~free].min() >= weights[free].max() * (1 - 1e-9)
