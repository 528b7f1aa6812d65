"""RBCS-F: ridge regression by hand, queues, and the choice against all cohorts."""

from itertools import combinations

import numpy as np
import pytest
from policy_rounds import context, report

from bsfl.errors import InvalidInput
from bsfl.policies import RbcsF

RNG = np.random.default_rng(0)


def test_regression_by_hand_without_context():
    # c = 1, lambda = 1, a = 0.1: after n answers H = 1 + n, theta = sum of tau / (1 + n)
    policy = RbcsF(tau_max=100.0)
    state, everyone = policy.init(3), np.arange(3)
    assert policy.latencies(state, context(1, 2, 3), everyone).tolist() == [0, 0, 0]
    policy.observe(state, context(1, 2, 3), report({0: 6.0, 1: 4.0}))
    # theta = 6/2 and 4/2, width = 0.1 sqrt(1/2)
    width = 0.1 * np.sqrt(1 / 2)
    assert policy.latencies(state, context(2, 2, 3), everyone) == pytest.approx(
        [3 - width, 2 - width, 0]
    )
    policy.observe(state, context(2, 2, 3), report({0: 9.0, 2: 0.01}))
    # client 0: (6 + 9) / 3 and sqrt(1/3); client 2: 0.005 - 0.07 is cut to 0
    assert policy.latencies(state, context(3, 2, 3), everyone) == pytest.approx(
        [5 - 0.1 * np.sqrt(1 / 3), 2 - width, 0]
    )


@pytest.mark.parametrize("ridge", [1.0, 0.3])
def test_regression_equals_the_matrices_of_the_paper(ridge):
    k, m, rounds = 6, 2, 40
    rng = np.random.default_rng(1)
    compute, transfer = rng.uniform(0.2, 2.0, k), rng.uniform(0.2, 2.0, k)
    policy = RbcsF(tau_max=50.0, compute=compute, transfer=transfer, ridge=ridge, exploration=0.4)
    state = policy.init(k)
    h = np.array([ridge * np.eye(3)] * k)
    b, before = np.zeros((k, 3)), []
    for t in range(1, rounds + 1):
        here = context(t, m, k)
        rows = np.array([[compute[i], i in before, transfer[i]] for i in range(k)], dtype=float)
        expected = [
            max(
                0.0,
                rows[i] @ np.linalg.solve(h[i], b[i])
                - 0.4 * np.sqrt(rows[i] @ np.linalg.inv(h[i]) @ rows[i]),
            )
            if t > 1
            else 0.0
            for i in range(k)
        ]
        assert policy.latencies(state, here, np.arange(k)) == pytest.approx(expected)
        cohort = policy.select(state, here, rng).tolist()
        latency = {i: float(rng.uniform(1.0, 9.0)) for i in cohort}
        policy.observe(state, here, report(latency))
        for i in cohort:
            h[i] += np.outer(rows[i], rows[i])
            b[i] += latency[i] * rows[i]
        before = cohort
    assert max(np.bincount(before, minlength=k)) == 1
    assert state.in_a_row.any(), "the second feature was not always 0"


def test_queues_follow_the_recursion():
    # beta = phi m / K = 0.6 * 2 / 5 = 0.24
    policy, rng = RbcsF(tau_max=10.0, phi=0.6), np.random.default_rng(4)
    state, z = policy.init(5), np.zeros(5)
    for t in range(1, 60):
        here = context(t, 2, 5)
        assert state.queues(here, np.arange(5), policy.beta(state, here)) == pytest.approx(z)
        cohort = policy.select(state, here, rng)
        policy.observe(state, here, report({int(k): 1.0 + k for k in cohort}))
        z = np.maximum(z + 0.24 - np.isin(np.arange(5), cohort), 0)


@pytest.mark.parametrize("seed", range(60))
def test_choice_against_all_cohorts(seed):
    """Whole numbers, so that ties happen all the time; every cohort is looked at."""
    rng = np.random.default_rng(seed)
    k, m = int(rng.integers(3, 9)), int(rng.integers(1, 4))
    policy = RbcsF(tau_max=50.0, exploration=0.0, latency_weight=float(rng.choice([0, 0.5, 1, 3])))
    state = policy.init(k)
    state.selected[:] = state.observed[:] = 1
    state.theta[:, 0] = rng.integers(0, 4, k)
    state.queue[:] = rng.integers(0, 4, k)
    here = context(1, m, k, available=np.flatnonzero(rng.random(k) < 0.9))

    def cost(cohort):
        cohort = list(cohort)
        return policy.latency_weight * state.theta[cohort, 0].max() - state.queue[cohort].sum()

    cohort = policy.select(state, here, rng)
    if len(here.available) > m:
        assert cost(cohort) == min(map(cost, combinations(here.available.tolist(), m)))


def test_ties_are_broken_at_random():
    policy = RbcsF(tau_max=10.0)
    cohorts = {
        tuple(policy.select(policy.init(4), context(1, 2, 4), np.random.default_rng(s)))
        for s in range(60)
    }
    assert len(cohorts) == 6


def test_a_guaranteed_share_is_kept():
    # a client 50 times slower than the rest still gets phi m / K of the rounds, if V is small
    policy, state, chosen = RbcsF(tau_max=100.0, latency_weight=0.1), None, np.zeros(10)
    state = policy.init(10)
    latency = np.array([1.0] * 9 + [50.0])
    for t in range(1, 801):
        here = context(t, 2, 10)
        cohort = policy.select(state, here, np.random.default_rng(t))
        policy.observe(state, here, report({int(k): latency[k] for k in cohort}))
        chosen[cohort] += 1
    # 0.5 * 2 / 10 = 0.1 per round; the queue may lag behind by V 50 / 1 = 5 selections
    assert 80 - 6 <= chosen[9] < 110


def test_silence_and_timeouts_count_as_the_deadline():
    policy = RbcsF(tau_max=8.0, exploration=0.0)
    state = policy.init(3)
    policy.observe(state, context(1, 3, 3), report({0: 3.0}, chosen=[0, 1], outcome="timeout"))
    # client 0: theta = 8 / 2; client 1 owes its first answer; client 2 was never asked
    assert policy.latencies(state, context(2, 3, 3), np.arange(3)).tolist() == [4.0, 8.0, 0.0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tau_max": 0.0}, "tau_max must be a finite number above 0, got 0.0"),
        ({"phi": 1.0}, "phi must be below 1, or the queues grow for ever, got 1.0"),
        ({"phi": -0.1}, "phi must be between 0 and 1, got -0.1"),
        ({"ridge": 0}, "ridge must be a finite number above 0, got 0"),
        ({"latency_weight": -1}, "latency_weight must be a finite number of at least 0, got -1"),
        ({"exploration": np.nan}, "exploration must be a finite number of at least 0, got nan"),
        ({"compute": [1.0]}, "compute and transfer must be given together, or neither"),
        ({"compute": [1.0], "transfer": [0.0]}, "transfer must be finite and above 0, got 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        RbcsF(**({"tau_max": 9.0} | settings))


def test_context_must_cover_the_fleet():
    with pytest.raises(InvalidInput, match="transfer must cover the fleet of 3 clients, got 2"):
        RbcsF(tau_max=9.0, compute=[1.0] * 3, transfer=[1.0] * 2).init(3)
