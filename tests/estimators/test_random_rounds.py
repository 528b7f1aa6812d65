"""The estimate of random selection from observed latencies."""

import numpy as np
import pytest

from bsfl.estimators.random_rounds import Conditions, Observed, random_round_s


def observed(latency_s, *, n_timed=1000, n_misses=0):
    """Return clients that always took the same time, so that nothing about them is unknown."""
    n = np.full(len(latency_s), n_timed)
    misses = np.full(len(latency_s), n_misses)
    zeros = np.zeros(len(latency_s))
    return Observed(
        n_responses=n, n_misses=misses, n_timed=n, log_latency=np.log(latency_s), spread=zeros
    )


@pytest.mark.parametrize(
    ("n_invited", "target", "deadline_s", "expected_s"),
    [
        # pairs of the latencies 1, 2, 4: the slower one is 2, 4 or 4
        (2, 2, None, 10 / 3),
        # the faster one is 1, 1 or 2
        (2, 1, None, 4 / 3),
        # the deadline cuts 4 to 3
        (2, 2, 3.0, 8 / 3),
        # all are invited
        (3, 2, None, 2.0),
    ],
)
def test_the_mean_over_all_cohorts(n_invited, target, deadline_s, expected_s):
    conditions = Conditions(
        n_available=3, n_invited=n_invited, target_responses=target, deadline_s=deadline_s
    )
    mean, low, high = random_round_s(observed([1.0, 2.0, 4.0]), conditions)
    assert mean == pytest.approx(expected_s, rel=0.02)
    assert low <= expected_s <= high


def test_clients_without_responses_resemble_the_others_and_lost_responses_wait_for_the_deadline():
    pair = Conditions(n_available=100, n_invited=2, target_responses=2)
    mean, *_ = random_round_s(observed([3.0, 3.0]), pair)
    assert mean == pytest.approx(3.0, rel=0.02)
    half = Conditions(n_available=2, n_invited=1, target_responses=1, deadline_s=9.0)
    mean, *_ = random_round_s(observed([3.0, 3.0], n_misses=1000), half)
    assert mean == pytest.approx((3.0 + 9.0) / 2, rel=0.03)


def test_little_knowledge_gives_a_wide_interval_and_none_gives_no_estimate():
    pair = Conditions(n_available=2, n_invited=2, target_responses=2)
    wide, narrow = (random_round_s(observed([1.0, 2.0], n_timed=n), pair) for n in (1, 1000))
    assert wide[2] - wide[1] > 3 * (narrow[2] - narrow[1])
    assert random_round_s(observed([1.0]), pair) is None
