"""UCB-CS: an index by hand, and the rounds that discounted sums are of."""

from math import log, sqrt

import numpy as np
import pytest
from policy_rounds import drive, losses_of, overtaken

from bsfl.policies import UcbCs
from bsfl.policies.ucb_cs import last_spread


def index(driver):
    context = driver.context()
    return driver.policy.index(driver.state, context, context.available)


def test_index_by_hand():
    # gamma = 1/2; round 1: losses 4 and 2 of clients 0 and 1; round 2: loss 1 of client 0
    driver = drive(UcbCs(gamma=0.5, sigma=3.0), 3, 2, samples=np.ones(3))
    driver.run_round(losses_of({0: 4.0, 1: 2.0}))
    # t = 2: N = 1, 1, T = 1, so the width is 0
    assert index(driver).tolist() == [4.0, 2.0, np.inf]
    driver.run_round(losses_of({0: 1.0}))
    # t = 3: N_0 = 1/2 + 1, L_0 = 4/2 + 1; N_1 = 1/2, L_1 = 2/2; T = 1/2 + 1
    assert index(driver) == pytest.approx(
        [3 / 1.5 + sqrt(2 * 9 * log(1.5) / 1.5), 1 / 0.5 + sqrt(2 * 9 * log(1.5) / 0.5), np.inf]
    )
    # t = 4: everything fades once more, the means stay; T = 7/4
    driver.task.round = 3
    assert index(driver) == pytest.approx(
        [2 + sqrt(18 * log(1.75) / 0.75), 2 + sqrt(18 * log(1.75) / 0.25), np.inf]
    )


def test_data_size_weighs_the_index():
    driver = drive(UcbCs(sigma=0.0), 3, 1, samples=[1.0, 2.0, 5.0])
    driver.run_round(losses_of({0: 3.0, 1: 2.0, 2: 1.0}))
    # 3 * 1, 2 * 2, 1 * 5
    assert driver.select().tolist() == [2]
    assert driver.select(target_responses=2).tolist() == [1, 2]


def test_spread_is_that_of_the_last_cohort():
    driver = drive(UcbCs(), 5, 2, samples=np.ones(5))

    def spread():
        return last_spread(driver.state, driver.context())

    assert spread() == 0.0
    driver.run_round(losses_of({0: 100.0, 1: 0.0}))
    assert spread() == 50.0
    driver.run_round(losses_of({2: 1.0, 3: 3.0}), cohort=[2, 3, 4])
    assert spread() == 1.0, "client 4, which did not respond, does not count"


def test_after_a_long_wait_a_client_counts_as_unseen():
    driver = drive(UcbCs(gamma=0.1, sigma=1.0), 2, 1, samples=np.ones(2))
    driver.run_round(losses_of({0: 5.0, 1: 5.0}))
    driver.task.round = 4999
    assert index(driver).tolist() == [np.inf, np.inf], "the count has faded to 0, without a warning"


@pytest.mark.parametrize("applied", ["apply", "drop"])
def test_late_responses_are_discounted_from_their_own_round(applied):
    driver = drive(UcbCs(gamma=0.5), 2, 1, samples=np.ones(2), late=applied)
    driver.run_round({}, cohort=[0])
    driver.run_round(losses_of({0: 2.0}))
    driver.respond(losses_of({0: 8.0}), 1)
    assert driver.state.loss_sum.tolist() == [8 / 2 + 2, 0]
    assert driver.state.count.tolist() == [1.5, 0]


def test_a_client_that_was_observed_under_another_policy_counts_as_unseen():
    driver = drive(UcbCs(sigma=1.0), 2, 1, samples=np.ones(2))
    driver.state.loss_sum[:] = -3.0, 2.0  # as after Scheduler.load(policy=UcbCs())
    driver.task.round = 3
    with np.errstate(all="raise"):
        assert index(driver).tolist() == [np.inf, np.inf]


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
def test_the_first_report_of_a_round_may_be_overtaken(order):
    """gamma = 1/2: as of round 3, three selections with losses 1, 2 and 4 in rounds 1, 2 and 3."""
    scheduler = overtaken(UcbCs(gamma=0.5), order, losses={1: 1.0, 2: 2.0, 3: 4.0})
    assert scheduler.state.last_selected.tolist() == [3]
    assert scheduler.state.count.tolist() == [1 / 4 + 1 / 2 + 1]
    assert scheduler.state.loss_sum.tolist() == [1 / 4 + 2 / 2 + 4]
