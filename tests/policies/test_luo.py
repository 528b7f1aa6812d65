"""Luo et al.: probabilities and weights by hand, and the statistics of the draw."""

import numpy as np
import pytest
from policy_rounds import assert_frequencies, drive, losses_of, responses, timeouts

from bsfl.policies import Luo

SIZES = np.array([1.0, 2.0, 3.0, 4.0])
LOSSES = {0: 1.0, 1: 2.0, 2: 1.0, 3: 0.5}
LATENCIES = {0: 1.0, 1: 4.0, 2: 9.0, 3: 16.0}
# p = 0.1, 0.2, 0.3, 0.4; p G / sqrt(tau) = 0.1 x 1 / 1, 0.2 x 2 / 2, 0.3 x 1 / 3, 0.4 x 0.5 / 4
# = 0.1, 0.2, 0.1, 0.05, in all 0.45: q = 2/9, 4/9, 2/9, 1/9
Q = np.array([2, 4, 2, 1]) / 9
P = SIZES / 10


def learned(policy, losses=LOSSES, latencies=LATENCIES):
    """Return a driver after a round of all four clients."""
    driver = drive(policy, 4, 4, samples=SIZES)
    driver.run_round(responses(latencies, losses=losses))
    return driver


def gains(driver):
    return driver.policy.gains(driver.state, driver.context())


def weights(driver, clients, **numbers):
    context = driver.context(**numbers)
    return driver.policy.weights(driver.state, context, np.array(clients, dtype=np.int64))


@pytest.mark.parametrize(
    ("m", "inclusion"),
    [
        (1, Q),
        (2, 2 * Q),
        # 3 q_1 = 4/3: client 1 is certain, the others share two places by 0.1, 0.1, 0.05
        (3, np.array([0.8, 1.0, 0.8, 0.4])),
        (4, np.ones(4)),
    ],
)
def test_probabilities_and_weights_by_hand(m, inclusion):
    driver = learned(Luo(tau_max=60.0))
    here = driver.context(target_responses=m)
    assert_frequencies(lambda rng: driver.select(here, rng), inclusion, 1500)
    cohort = driver.select(here)
    weight = driver.policy.weights(driver.state, here, cohort)
    assert weight == pytest.approx((P / inclusion)[cohort]), "so that updates are unbiased"


def test_unknown_clients_count_as_the_mean_of_the_others():
    # client 3 unknown: G = (1 + 2 + 1) / 3, tau = (1 + 4 + 9) / 3
    driver = learned(Luo(tau_max=60.0), LOSSES, {k: LATENCIES[k] for k in (0, 1, 2)})
    assert gains(driver) == pytest.approx([1, 1, 1 / 3, (4 / 3) / np.sqrt(14 / 3)])
    assert gains(drive(Luo(tau_max=60.0), 4, 4)).tolist() == [1, 1, 1, 1]


def test_latencies_are_averaged_and_never_beyond_the_deadline():
    driver = learned(Luo(tau_max=9.0, speed=1.0), dict.fromkeys(range(4), 1.0), {0: 2.0, 1: 99.0})
    driver.run_round(responses({0: 4.0}, losses=[1.0]))
    driver.run_round(timeouts({2: 5.0}))
    late = driver.run_round({}, cohort=[3])
    driver.respond({3: 4.0}, late)
    assert gains(driver) == pytest.approx([1 / 3, 1 / 9, 1 / 9, 1 / 4])


def test_a_loss_of_0_leaves_a_chance():
    # mean of 0, 1, 1, 2 is 1: G_0 is a tenth of it; if all are 0, all are alike
    driver = drive(Luo(tau_max=9.0), 4, 4, samples=SIZES)
    driver.run_round(losses_of({0: 0.0, 1: 1.0, 2: -1.0, 3: 2.0}))
    assert gains(driver).tolist() == [0.1, 1, 1, 2]
    driver.run_round(losses_of(dict.fromkeys(range(4), 0.0)))
    assert gains(driver).tolist() == [1, 1, 1, 1]


def test_shares_are_those_of_the_clients_that_could_be_drawn():
    driver = learned(Luo(tau_max=60.0))
    # 0 and 1 available, m = 1: p = 1/3, 2/3 and q = 1/3, 2/3
    assert weights(driver, [1], target_responses=1, available=[0, 1]) == pytest.approx([1.0])
    # 3 was selected before: p = 1/7, 2/7, 4/7 and q = 2/7, 4/7, 1/7, and two responded for one
    found = weights(driver, [0, 3], target_responses=1, available=[0, 1])
    assert found == pytest.approx([0.5 / 2, 4.0 / 2])
    # a context without available clients, as in buffered rounds: all clients count
    found = weights(driver, [3, 0], target_responses=1, available=[])
    assert found == pytest.approx([0.4 * 9, 0.1 * 9 / 2])


def test_clients_that_respond_stand_for_those_that_do_not():
    # 2 are invited and 1 response is enough: each is in the model half as often as it is invited
    driver = learned(Luo(tau_max=60.0))
    assert weights(driver, [3], target_responses=2) == pytest.approx([P[3] / Q[3]])
    assert len(weights(driver, [], target_responses=2)) == 0
