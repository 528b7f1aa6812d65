"""RBCS-F: ridge regression by hand, queues, and the selection against all cohorts."""

from itertools import combinations

import numpy as np
import pytest
from policy_rounds import cohorts_of, drive, overtaken, timeouts

from bsfl.policies import RbcsF


def latencies(driver):
    context = driver.context()
    return driver.policy.latencies(driver.state, context, context.available)


def test_regression_by_hand_without_context():
    # c = 1, lambda = 1, a = 0.1: after n responses H = 1 + n, theta = sum of tau / (1 + n)
    driver = drive(RbcsF(tau_max=100.0), 3, 2)
    assert latencies(driver).tolist() == [0, 0, 0]
    driver.run_round({0: 6.0, 1: 4.0})
    # theta = 6/2 and 4/2, width = 0.1 sqrt(1/2)
    width = 0.1 * np.sqrt(1 / 2)
    assert latencies(driver) == pytest.approx([3 - width, 2 - width, 0])
    driver.run_round({0: 9.0, 2: 0.01})
    # client 0: (6 + 9) / 3 and sqrt(1/3); client 2: 0.005 - 0.07 is cut to 0
    assert latencies(driver) == pytest.approx([5 - 0.1 * np.sqrt(1 / 3), 2 - width, 0])


@pytest.mark.parametrize("ridge", [1.0, 0.3])
def test_regression_equals_the_matrices_of_the_paper(ridge):
    k, m, rng = 6, 2, np.random.default_rng(1)
    compute, transfer = rng.uniform(0.2, 2.0, (2, k))
    policy = RbcsF(tau_max=50.0, compute=compute, transfer=transfer, ridge=ridge, exploration=0.4)
    driver = drive(policy, k, m)
    h, b, before = [ridge * np.eye(3) for _ in range(k)], np.zeros((k, 3)), []
    for _ in range(40):
        rows = np.column_stack([compute, np.isin(np.arange(k), before), transfer])
        expected = [
            c @ np.linalg.solve(h[i], b[i]) - 0.4 * np.sqrt(c @ np.linalg.inv(h[i]) @ c)
            for i, c in enumerate(rows)
        ]
        assert latencies(driver) == pytest.approx(np.maximum(expected, 0.0))
        driver.open(rng=rng)
        latency = {i: float(rng.uniform(1.0, 9.0)) for i in driver.cohort}
        driver.respond(latency)
        for i in driver.cohort:
            h[i] += np.outer(rows[i], rows[i])
            b[i] += latency[i] * rows[i]
        before = driver.cohort
    assert driver.state.in_a_row.any(), "the second feature was not always 0"


def test_queues_follow_the_recursion():
    # beta = phi m / K = 0.6 * 2 / 5 = 0.24
    driver = drive(RbcsF(tau_max=10.0, phi=0.6), 5, 2)
    rng, z = np.random.default_rng(4), np.zeros(5)
    for _ in range(59):
        here = driver.context()
        beta = driver.policy.beta(here)
        assert driver.state.queues(here, np.arange(5), beta) == pytest.approx(z)
        driver.open(rng=rng)
        driver.respond({k: 1.0 + k for k in driver.cohort})
        z = np.maximum(z + 0.24 - np.isin(np.arange(5), driver.cohort), 0)


@pytest.mark.parametrize("seed", range(60))
def test_selection_against_all_cohorts(seed):
    """Whole numbers, so that ties happen all the time; every cohort is compared."""
    rng = np.random.default_rng(seed)
    k, m = int(rng.integers(3, 9)), int(rng.integers(1, 4))
    policy = RbcsF(tau_max=50.0, exploration=0.0, latency_weight=float(rng.choice([0, 0.5, 1, 3])))
    driver = drive(policy, k, m)
    state = driver.state
    driver.task.invitations[:k] = state.observed[:] = 1
    state.theta[:, 0] = rng.integers(0, 4, k)
    state.queue[:] = rng.integers(0, 4, k)
    here = driver.context(available=np.flatnonzero(rng.random(k) < 0.9))

    def cost(cohort):
        cohort = list(cohort)
        return policy.latency_weight * state.theta[cohort, 0].max() - state.queue[cohort].sum()

    cohort = driver.select(here, rng)
    if len(here.available) > m:
        assert cost(cohort) == min(map(cost, combinations(here.available.tolist(), m)))


def test_ties_are_broken_at_random():
    assert len(cohorts_of(drive(RbcsF(tau_max=10.0), 4, 2), seeds=60)) == 6


def test_no_response_and_timeouts_count_as_the_deadline():
    driver = drive(RbcsF(tau_max=8.0, exploration=0.0), 3, 3)
    driver.run_round(timeouts({0: 3.0}), cohort=[0, 1])
    # client 0: theta = 8 / 2; the first response of client 1 is pending; client 2 is unseen
    assert latencies(driver).tolist() == [4.0, 8.0, 0.0]


def test_the_first_report_of_a_round_may_be_overtaken():
    scheduler = overtaken(RbcsF(tau_max=10.0), (2, 3, 1))
    assert scheduler.state.last_selected.tolist() == [3]
