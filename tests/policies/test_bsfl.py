"""BSFL by hand for rounds 1, 2 and 3, in both settings, and the edge cases around them."""

from math import log, sqrt

import numpy as np
import pytest
from policy_rounds import drive, responses, timeouts

from bsfl.errors import InvalidInput
from bsfl.estimators.generalization import generalization_term
from bsfl.estimators.indices import UCBIndex
from bsfl.policies import BSFL

NO_WIDTH = UCBIndex(confidence_width="none")


def speeds(driver):
    """Return the mean of tau_min / tau of every client."""
    return driver.state.memory.mean * driver.policy._tau_min(driver.state)


def ucb(driver):
    return driver.policy.ucb(driver.state, driver.context())


def g(driver):
    policy = driver.policy
    return generalization_term(policy.generalization, driver.context(), policy.beta)


def learned(policy, m, t, invitations, means):
    """Return a driver before round t of clients with these counts and means of 1 / tau."""
    driver = drive(policy, len(means), m)
    driver.task.round, driver.task.invitations[: len(means)] = t - 1, invitations
    driver.state.memory.observed[:], driver.state.memory.mean[:] = invitations, means
    return driver


def test_rounds_one_to_three_by_hand_iid():
    # K = 4, m = 2, tau_min = 1 s, alpha = 3, beta = 1, r = m/K = 1/2
    driver = drive(BSFL(alpha=3.0, tau_min=1.0), 4, 2)

    # Round 1: all clients are unseen; all indices are infinite and g = 1/2 - 0/1 for each.
    assert ucb(driver).tolist() == [np.inf] * 4
    assert g(driver).tolist() == [0.5] * 4
    driver.run_round({0: 2.0, 1: 4.0})

    # Round 2 uses ucb(k, 1) = mean + sqrt(3 ln 1 / 1) = 1/2 and 1/4, and g = 1/2 - 1/2 = 0.
    assert ucb(driver).tolist() == [0.5, 0.25, np.inf, np.inf]
    assert g(driver).tolist() == [0.0, 0.0, 0.5, 0.5]
    assert driver.select().tolist() == [2, 3]
    driver.run_round({2: 1.25, 3: 10.0})

    # Round 3 uses ln 2 and c/3: every client was selected once.
    width = sqrt(3 * log(2))
    assert ucb(driver) == pytest.approx(np.array([0.5, 0.25, 0.8, 0.1]) + width)
    assert g(driver) == pytest.approx([1 / 2 - 1 / 3] * 4)
    # g is the same for all, so the two fastest win
    assert driver.select().tolist() == [0, 2]
    driver.run_round({0: 1.0, 2: 1.0})

    # Round 4: means (1/2 + 1)/2, 1/4, (0.8 + 1)/2, 1/10; counts 2, 1, 2, 1; ln 3
    wide, narrow = sqrt(3 * log(3)), sqrt(3 * log(3) / 2)
    assert ucb(driver) == pytest.approx([0.75 + narrow, 0.25 + wide, 0.9 + narrow, 0.1 + wide])
    assert g(driver) == pytest.approx([0.0, 0.25, 0.0, 0.25])
    # E{1,3} = 0.1 + 1.8154 + 1.5 * 0.5; E{0,2} = 0.75 + 1.2837 + 0; the neglected pair wins
    assert driver.select().tolist() == [1, 3]


def test_rounds_one_to_three_by_hand_weighted():
    # K = 3, m = 1, d = q n = 6, 3, 1 -> r = 0.6, 0.3, 0.1; beta = 2
    policy = BSFL(alpha=1.0, beta=2, tau_min=1.0, generalization="weighted")
    driver = drive(policy, 3, 1, samples=[6.0, 6.0, 1.0], quality=[1.0, 0.5, 1.0])

    assert g(driver) == pytest.approx([0.36, 0.09, 0.01])
    assert driver.select().tolist() == [0], "unseen: the largest g first"
    driver.run_round({0: 2.0})

    # 0.6 - 1/2 = 0.1; the others stand at c/t = 0
    assert g(driver) == pytest.approx([0.01, 0.09, 0.01])
    assert driver.select().tolist() == [1]
    driver.run_round({1: 5.0})

    # 0.6 - 1/3 = 4/15; 0.3 - 1/3 = -1/30, whose square keeps its sign
    assert g(driver) == pytest.approx([(4 / 15) ** 2, -((1 / 30) ** 2), 0.01])
    assert ucb(driver) == pytest.approx([0.5 + sqrt(2 * log(2)), 0.2 + sqrt(2 * log(2)), np.inf])
    assert driver.select().tolist() == [2]


def test_fewer_unseen_clients_than_places_fill_up_with_the_best_of_the_rest():
    # m = 3, client 4 unseen, t = 10, alpha = 3, so (alpha / m) = 1 for the two free places:
    # E{0,1} = 0.8 + 0.2 + 0.2 = 1.2 beats E{2,3} = 0.1 + 0.5 + 0.5 = 1.1.
    # Dividing by the free places instead, 3/2, would select {2,3}: 1.6 against 1.4.
    policy = BSFL(alpha=3.0, tau_min=1.0, index=NO_WIDTH)
    driver = learned(policy, 3, 10, [4, 4, 1, 1, 0], [0.9, 0.8, 0.1, 0.1, 0.0])
    assert driver.select().tolist() == [0, 1, 4]


def test_tau_min_may_be_learned_late_without_spoiling_the_means():
    given, learned = (drive(policy, 2, 2) for policy in (BSFL(tau_min=0.5), BSFL()))
    for latencies in ({0: 4.0, 1: 1.0}, {0: 2.0, 1: 0.5}):
        for driver in (given, learned):
            driver.run_round(latencies)
    assert learned.state.fastest_s == 0.5
    assert speeds(learned) == pytest.approx(speeds(given))
    assert speeds(learned) == pytest.approx([0.1875, 0.75])


def test_a_timeout_counts_as_the_deadline_and_a_failure_is_never_fast():
    driver = drive(BSFL(tau_min=1.0, tau_max=10.0), 4, 4)
    driver.open([0, 1, 2, 3])
    driver.respond(timeouts({0: 3.0}))
    driver.respond(responses({1: 0.001}, outcome="failed"))
    driver.respond({2: 25.0})
    assert speeds(driver)[:3] == pytest.approx([0.1, 0.1, 0.1])
    assert driver.state.memory.observed.tolist() == [1, 1, 1, 0], "client 3 is pending"


def test_without_a_deadline_a_failure_is_a_response_that_never_comes():
    driver = drive(BSFL(), 2, 1)
    driver.run_round(responses({0: 0.001}, outcome="failed"))
    assert speeds(driver).tolist() == [0.0, 0.0]
    assert driver.state.fastest_s == np.inf, "a failure is no evidence of tau_min"
    driver.run_round(timeouts({0: 7.0}))
    assert driver.state.fastest_s == np.inf, "nor is a timeout, which is censored"
    driver.run_round({0: 3.5})
    # mean of 0, 1/7 and 1/3.5, times tau_min = 3.5
    assert speeds(driver)[:1] == pytest.approx([0.5])


def test_custom_functions_are_used():
    def favourite(clients, context):
        return np.where(clients == 3, 1.0, 0.0)

    def flat(count, *, t, m, variance):
        return np.zeros(len(count))

    def last_ones(u, g, m, alpha, rng):
        return np.arange(len(u))[-m:]

    by_g = BSFL(alpha=50.0, generalization=favourite, index=UCBIndex(confidence_width=flat))
    driver = learned(by_g, 1, 9, 1, np.zeros(5))
    assert g(driver).tolist() == [0, 0, 0, 1, 0]
    assert driver.select().tolist() == [3]
    assert learned(BSFL(solver=last_ones), 2, 9, 1, np.zeros(5)).select().tolist() == [3, 4]


@pytest.mark.parametrize("returned", [np.zeros(2), np.full(3, np.nan), 1.0])
def test_a_custom_generalization_must_return_numbers(returned):
    driver = drive(BSFL(generalization=lambda clients, context: returned), 3, 1)
    with pytest.raises(InvalidInput, match="generalization must return one finite number"):
        driver.select()


@pytest.mark.parametrize("solver", ["exhaustive", "annealing-drop-weakest"])
def test_solvers_by_name(solver):
    driver = learned(BSFL(solver=solver, tau_min=1.0), 2, 5, 1, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert driver.select().tolist() == [4, 5]


def test_tau_min_may_not_exceed_tau_max():
    with pytest.raises(InvalidInput, match="tau_min must not exceed tau_max, got 3.0 > 2.0"):
        BSFL(tau_min=3.0, tau_max=2.0)
