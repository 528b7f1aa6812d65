"""What pool and task count: fair counts by availability, and the response rate of clients."""

import numpy as np
import pytest

from bsfl import Observation, UniformRandom
from bsfl.testing import PolicyDriver


def test_the_fair_count_sums_the_share_of_the_rounds_in_which_a_client_was_available():
    driver = PolicyDriver(UniformRandom(), n_clients=4, target_responses=2)
    for available in (range(4), [0, 1, 2], [0], []):
        driver.run_round({}, cohort=[], available=available)
    expected = [0.5 + 2 / 3 + 1, 0.5 + 2 / 3, 7 / 6, 0.5]
    assert driver.task.fair_count[:4].tolist() == pytest.approx(expected)


def test_the_response_rate_is_learned_from_the_client_and_from_all():
    driver = PolicyDriver(UniformRandom(), n_clients=3, target_responses=2)
    failed = {1: Observation(outcome="failed")}
    for t in range(20):
        if t % 2:  # a late response is a response
            late = driver.run_round(failed, cohort=[0, 1])
            driver.respond({0: 1.0}, late)
        else:
            driver.run_round({0: 1.0} | failed)
    rate = driver.context().pool.response_rate(np.arange(3))
    usual = (20 + 9) / (40 + 10)
    assert rate.tolist() == pytest.approx([(20 + 5 * usual) / 25, 5 * usual / 25, usual])
    assert driver.pool.late[0] == 10
