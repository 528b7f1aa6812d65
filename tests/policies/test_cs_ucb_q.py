"""CS-UCB-Q: queues by hand, and the cap of the index."""

import pytest
from policy_rounds import drive

from bsfl import Scheduler
from bsfl.errors import InvalidInput
from bsfl.policies import CsUcbQ


def queues(driver):
    context = driver.context()
    share = driver.policy.shares(context, context.available)
    return driver.state.queues(context, context.available, share)


def test_rounds_by_hand():
    # K = 3, m = 1, sizes 2, 1, 1: share = 0.5 * 1 * n / 4 = 1/4, 1/8, 1/8
    driver = drive(CsUcbQ(tau_max=10.0), 3, 1, samples=[2.0, 1.0, 1.0])
    assert queues(driver).tolist() == [0, 0, 0]
    driver.run_round({0: 1.0})
    assert driver.state.mean.tolist() == [0.9, 0, 0]
    # D(2) = max(0 + 1/4 - 1, 0), 1/8, 1/8
    assert queues(driver) == pytest.approx([0, 1 / 8, 1 / 8])
    # index: min(1, 0.9 + sqrt(2 ln 2)) = 1 for all; the queue decides between 1 and 2
    assert driver.select(available=[0, 1]).tolist() == [1]
    driver.run_round({1: 10.0})
    # D(3) = 1/4, max(1/8 + 1/8 - 1, 0), 2/8
    assert queues(driver) == pytest.approx([1 / 4, 0, 1 / 4])
    # and it grows by the share in every round without a selection
    driver.task.round = 12
    assert queues(driver) == pytest.approx([1 / 4 + 10 / 4, 10 / 8, 1 / 4 + 10 / 8])


def test_the_index_is_capped_at_one():
    driver = drive(CsUcbQ(tau_max=1.0, beta=0.0), 2, 1)
    driver.task.round = 99
    driver.state.observed[:], driver.state.mean[:] = 1000, [0.2, 0.9]
    driver.task.invitations[:2] = 1000
    # t = 100: 0.2 + sqrt(2 ln 100 / 1000) = 0.296; 0.9 + 0.096 = 0.996
    assert driver.select().tolist() == [1]
    # 0.2 + sqrt(2 ln 100 / 2) = 2.35 is cut to 1
    driver.task.invitations[0] = driver.state.observed[0] = 2
    assert driver.select().tolist() == [0]


def test_a_client_that_joins_without_samples_does_not_block_responses():
    scheduler = Scheduler(CsUcbQ(tau_max=10.0), cohort_size=1)
    scheduler.join(["ann", "bob"], samples=[1, 2])
    cohort = scheduler.select()
    scheduler.join(["cem"])
    assert scheduler.observe(dict.fromkeys(cohort, 2.0)) == {}
    with pytest.raises(InvalidInput, match="1 of 3 clients have none"):
        scheduler.select()


def test_the_first_report_of_a_round_may_be_overtaken():
    """m = K = 1 and phi = 1/2: a queue grows by 1/2 a round, and a selection takes 1."""
    driver = drive(CsUcbQ(tau_max=10.0), 1, 1, max_open_rounds=3)
    driver.state.queue[:] = 5.0
    for _ in range(3):
        driver.open([0])
    for number, queue, queue_round in ((2, 5.0, 3), (3, 4.5, 4), (1, 3.5, 4)):
        driver.respond({0: 1.0}, number)
        assert driver.state.queue.tolist() == [queue]
        assert driver.state.queue_round.tolist() == [queue_round]
