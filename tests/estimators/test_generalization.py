"""The g functions against numbers worked out by hand."""

import numpy as np
import pytest

from bsfl import UniformRandom
from bsfl._core.events import Join, Leave
from bsfl.errors import InvalidInput
from bsfl.estimators.generalization import (
    equal_deficit,
    loss_deficit,
    opportunity_deficit,
    weighted_deficit,
)
from bsfl.testing import PolicyDriver

CLIENTS = np.arange(4)


def before_round(t, m, invitations=(0,) * 4, *, dropped=(0,) * 4, loss=(np.nan,) * 4, **attributes):
    """Return a driver of four clients with these counts and last losses."""
    driver = PolicyDriver(UniformRandom(), n_clients=4, target_responses=m, **attributes)
    task = driver.task
    task.round, task.invitations[:4], task.dropped[:4] = t - 1, invitations, dropped
    task.last_loss[:4] = loss
    return driver


def test_equal_deficit_is_m_over_k_minus_rate():
    # m/K = 2/4; c/t = 0/4, 1/4, 2/4, 4/4
    driver = before_round(4, 2, [0, 1, 2, 4])
    deficit = equal_deficit(CLIENTS, driver.context())
    assert deficit == pytest.approx([0.5, 0.25, 0.0, -0.5])


def test_a_dropped_response_does_not_count_and_over_selection_raises_no_target():
    # 3 invited for 2 places: m/K = 2/4. The second was dropped once: c = 1 of 2 selections
    driver = before_round(4, 2, [2, 2, 4, 4], dropped=[0, 1, 0, 0])
    deficit = equal_deficit(CLIENTS, driver.context(n_invited=3))
    assert deficit == pytest.approx([0.0, 0.25, -0.5, -0.5])


def test_weighted_deficit_uses_quality_times_size():
    # d = 10*1, 10*.5, 20*.5, 5*1 = 10, 5, 10, 5; sum 30; m d/sum = 2/3, 1/3, 2/3, 1/3
    attributes = {"samples": [10, 10, 20, 5], "quality": [1, 0.5, 0.5, 1.0]}
    driver = before_round(2, 2, [1, 1, 0, 0], **attributes)
    deficit = weighted_deficit(CLIENTS, driver.context())
    assert deficit == pytest.approx([2 / 3 - 1 / 2, 1 / 3 - 1 / 2, 2 / 3, 1 / 3])


def test_a_target_above_one_is_capped_and_the_others_divide_its_excess():
    # m = 2, sizes 8, 1, 1, 2: the first would get 2*8/12 > 1; the other place is shared 1:1:2
    driver = before_round(1, 2, samples=[8, 1, 1, 2])
    deficit = weighted_deficit(CLIENTS, driver.context())
    assert deficit == pytest.approx([1.0, 0.25, 0.25, 0.5])


def test_a_member_that_left_gets_no_share_and_a_late_one_counts_from_its_arrival():
    driver = PolicyDriver(UniformRandom(), n_clients=3, target_responses=1, samples=[1, 2, 99])
    driver.task.round = 8
    driver.engine.run(Join(n_new=1))
    driver.pool.samples[3] = 3.0
    driver.engine.run(Leave(clients=np.array([2])))
    driver.task.round, driver.task.invitations[:4] = 9, [5, 4, 0, 1]
    here, members = driver.context(), np.array([0, 1, 3])
    # K = 3; client 3 has been there for rounds 9 and 10, selected once
    deficit = equal_deficit(members, here)
    assert deficit == pytest.approx([1 / 3 - 5 / 10, 1 / 3 - 4 / 10, 1 / 3 - 1 / 2])
    deficit = weighted_deficit(members, here)
    assert deficit == pytest.approx([1 / 6 - 5 / 10, 2 / 6 - 4 / 10, 3 / 6 - 1 / 2])


def test_opportunity_deficit_counts_the_rounds_in_which_a_client_was_available():
    # round 3, m = 1. Available: all of two, then client 0 alone, now both: e = 1/2 + 1 + 1/2 and
    # 1/2 + 0 + 1/2; c = 2 and 0
    driver = PolicyDriver(UniformRandom(), n_clients=2, target_responses=1)
    driver.run_round({0: 1.0})
    driver.run_round({0: 1.0}, available=[0])
    deficit = opportunity_deficit(np.arange(2), driver.context())
    assert deficit == pytest.approx([(2 - 2) / 3, (1 - 0) / 3])


def test_loss_deficit_fills_unknown_losses_with_the_mean():
    # losses 1, 3, ?, ? -> mean 2; shares 2*l/8
    driver = before_round(1, 2, loss=[1, 3, np.nan, np.nan])
    deficit = loss_deficit(CLIENTS, driver.context())
    assert deficit == pytest.approx([0.25, 0.75, 0.5, 0.5])
    unknown = loss_deficit(CLIENTS, before_round(1, 2).context())
    assert unknown == pytest.approx([0.5] * 4)
    perfect = loss_deficit(CLIENTS, before_round(1, 2, loss=[0.0] * 4).context())
    assert perfect == pytest.approx([0.5] * 4)


def test_weighted_needs_samples():
    with pytest.raises(InvalidInput, match="needs every client's samples"):
        weighted_deficit(CLIENTS, before_round(1, 2).context())
    with pytest.raises(InvalidInput, match="1 of 4 clients have none"):
        weighted_deficit(CLIENTS, before_round(1, 2, samples=[1, 1, np.nan, 1]).context())
