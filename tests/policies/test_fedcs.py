"""FedCS against its greedy definition, and cohorts that are smaller than n_invited."""

import numpy as np
import pytest
from policy_rounds import assert_frequencies, drive

from bsfl import Scheduler
from bsfl.errors import InvalidInput
from bsfl.policies import FedCS
from bsfl.policies.fedcs import greedy_cohort


def literal_greedy(update, upload, m, deadline):
    """The published loop, word for word: every client is tried, those that do not fit are left out."""
    left, taken, theta = set(range(len(update))), [], 0.0
    while left and len(taken) < m:
        best = min(left, key=lambda k: (upload[k] + max(0.0, update[k] - theta), k))
        left.remove(best)
        longer = theta + upload[best] + max(0.0, update[best] - theta)
        if longer < deadline:
            theta = longer
            taken.append(best)
    return taken


def duration(cohort, update, upload):
    theta = 0.0
    for k in cohort:
        theta = theta + upload[k] + max(0.0, update[k] - theta)
    return theta


def test_greedy_by_hand():
    # update 1, 2, 9, 3 s; upload 2, 2, 1, 6 s
    update, upload = np.array([1.0, 2.0, 9.0, 3.0]), np.array([2.0, 2.0, 1.0, 6.0])
    # Theta = 0: prolonging by 3, 4, 10, 9: client 0, Theta = 3
    # then by -, max(2, 1) = 2, max(1, 7) = 7, max(6, 6) = 6: client 1, Theta = 5
    # then by -, -, max(1, 5) = 5, max(6, 4) = 6: client 2 would end at 10, too late for 9
    assert greedy_cohort(update, upload, m=4, deadline_s=9.0).tolist() == [0, 1]
    assert greedy_cohort(update, upload, m=4, deadline_s=10.0).tolist() == [0, 1], "before 10"
    # with 10.5 s it fits, and client 3 would end at 16
    assert greedy_cohort(update, upload, m=4, deadline_s=10.5).tolist() == [0, 1, 2]
    assert greedy_cohort(update, upload, m=1, deadline_s=10.5).tolist() == [0]


@pytest.mark.parametrize("seed", range(80))
def test_greedy_is_as_long_and_as_full_as_the_published_loop(seed):
    rng = np.random.default_rng(seed)
    k, m, deadline = int(rng.integers(1, 400)), int(rng.integers(1, 12)), rng.uniform(2.0, 60.0)
    update, upload = rng.uniform(1.0, 40.0, k), rng.choice([0.05, 1.0, 8.0]) * rng.random(k)
    if seed % 2:  # ties
        update, upload = np.ceil(update / 10), np.ceil(2 * rng.random(k))
    expected = literal_greedy(update, upload, m, deadline)
    taken = greedy_cohort(update, upload, m=m, deadline_s=deadline)
    assert len(taken) == max(len(expected), 1)
    if expected:
        assert duration(taken, update, upload) == duration(expected, update, upload) < deadline


def test_without_uploads_the_fastest_come_first():
    policy = FedCS(tau_max=5.0, latency_s=[4.0, 1.0, 9.0, 5.0, 2.0, 3.0])
    driver = drive(policy, 6, 3)
    assert driver.select().tolist() == [1, 4, 5]
    assert driver.select(target_responses=6).tolist() == [0, 1, 4, 5], "5 s is too late"
    # none fits: the fastest, so that no round is empty
    assert driver.select(available=[2, 3]).tolist() == [3]


def test_latencies_are_learned_without_the_setting():
    driver, clients = drive(FedCS(tau_max=10.0), 4, 2), np.arange(4)

    def latencies():
        return driver.policy.latencies(driver.state, driver.context(), clients)

    assert latencies().tolist() == [0, 0, 0, 0], "unseen clients are explored"
    driver.run_round({0: 4.0, 1: 30.0})
    driver.run_round({0: 6.0}, cohort=[0, 2])
    # mean of 4 and 6; beyond the deadline; no response; unseen
    assert latencies() == pytest.approx([5.0, 10.0, 10.0, 0.0])
    assert driver.select(target_responses=3).tolist() == [0, 3]


def test_candidates_limit_the_selection():
    # of 4 random candidates the two fastest are selected: client k is one of them if it is a
    # candidate, 4/10, and at most one of the k faster ones is: C(9, 3) = 84 triples of the others,
    # of which C(9 - k, 3) hold none of those k, and k C(9 - k, 2) hold one
    policy = FedCS(tau_max=50.0, latency_s=np.arange(1.0, 11.0), candidates=4)
    driver, k = drive(policy, 10, 2), np.arange(10)
    here = driver.context()
    none, one = (9 - k) * (8 - k) * (7 - k) / 6, k * (9 - k) * (8 - k) / 2
    expected = 0.4 * (none + one) / 84
    assert_frequencies(lambda rng: driver.select(here, rng), expected, 3000)


def test_the_scheduler_accepts_smaller_cohorts(tmp_path):
    scheduler = Scheduler(FedCS(tau_max=3.5, latency_s=[1.0, 2.0, 3.0, 4.0, 5.0]), cohort_size=4)
    scheduler.join(list("abcde"))
    assert scheduler.select() == ["a", "b", "c"]
    assert not scheduler.last_round.is_short, "more were available"
    scheduler.observe({"a": 1.0, "b": 2.0, "c": 3.0})
    scheduler.save(tmp_path / "s.bsfl")
    loaded = Scheduler.load(tmp_path / "s.bsfl")
    assert loaded.select() == ["a", "b", "c"]
    assert loaded.select(available=[]) == []


@pytest.mark.parametrize("selected", [[], [0, 0], [0, 1, 2], [9]])
def test_the_scheduler_still_rejects_cohorts_that_are_none(selected):
    class Odd(FedCS):
        def select(self, state, context, rng):
            return selected

    scheduler = Scheduler(Odd(tau_max=1.0), cohort_size=2)
    with pytest.raises(InvalidInput, match="must select 1 to 2 distinct available clients, got"):
        scheduler.select(["a", "b", "c"])
