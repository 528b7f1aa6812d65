"""FedCS against its greedy definition, and cohorts that are smaller than wanted."""

import numpy as np
import pytest
from policy_rounds import context, report

from bsfl import Scheduler
from bsfl.errors import InvalidInput
from bsfl.policies import FedCS
from bsfl.policies.fedcs import greedy_cohort

RNG = np.random.default_rng(0)


def literal_greedy(update, upload, m, deadline):
    """The published loop, word for word: every client is tried, misfits are thrown away."""
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
def test_greedy_equals_the_published_loop(seed):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, 400))
    m = int(rng.integers(1, 12))
    update, upload = rng.uniform(1.0, 40.0, k), rng.choice([0.05, 1.0, 8.0]) * rng.random(k)
    deadline = float(rng.uniform(2.0, 60.0))
    expected = literal_greedy(update, upload, m, deadline)
    taken = greedy_cohort(update, upload, m=m, deadline_s=deadline).tolist()
    assert taken == expected or (not expected and len(taken) == 1)


@pytest.mark.parametrize("seed", range(40))
def test_with_ties_the_round_is_as_long_and_as_full(seed):
    rng = np.random.default_rng(seed)
    k, m = int(rng.integers(5, 200)), int(rng.integers(1, 9))
    update, upload = rng.integers(1, 5, k) * 1.0, rng.integers(1, 3, k) * 1.0
    expected = literal_greedy(update, upload, m, 11.0)
    taken = greedy_cohort(update, upload, m=m, deadline_s=11.0)
    assert len(taken) == len(expected)
    assert duration(taken, update, upload) == duration(expected, update, upload) < 11.0


def test_without_uploads_the_quickest_come_first():
    policy = FedCS(tau_max=5.0, latency_s=[4.0, 1.0, 9.0, 5.0, 2.0, 3.0])
    state = policy.init(6)
    assert policy.select(state, context(1, 3, 6), RNG).tolist() == [1, 4, 5]
    assert policy.select(state, context(1, 6, 6), RNG).tolist() == [0, 1, 4, 5], "5 s is too late"
    assert policy.select(state, context(1, 3, 6, available=[2, 3]), RNG).tolist() == [3], (
        "nobody fits: the quickest, so that no round is empty"
    )


def test_latencies_are_learned_when_nobody_tells_them():
    policy = FedCS(tau_max=10.0)
    state, everyone = policy.init(4), np.arange(4)
    assert policy.latencies(state, everyone).tolist() == [0, 0, 0, 0], "unknown: worth a try"
    policy.observe(state, context(1, 2, 4), report({0: 4.0, 1: 30.0}))
    policy.observe(state, context(2, 1, 4), report({0: 6.0}, chosen=[0, 2]))
    # mean of 4 and 6; beyond the deadline; silent; never chosen
    assert policy.latencies(state, everyone) == pytest.approx([5.0, 10.0, 10.0, 0.0])
    assert policy.select(state, context(3, 3, 4), RNG).tolist() == [0, 3]


def test_candidates_limit_who_is_asked():
    policy = FedCS(tau_max=50.0, latency_s=np.arange(1.0, 11.0), candidates=4)
    hits = np.zeros(10)
    for seed in range(3000):
        cohort = policy.select(None, context(1, 2, 10), np.random.default_rng(seed))
        hits[cohort] += 1
    # client 0 is chosen whenever it is asked, 4/10; client 9 never: three others are quicker
    assert abs(hits[0] / 3000 - 0.4) < 4 * np.sqrt(0.4 * 0.6 / 3000)
    # client 8 needs to be one of the two quickest of four: impossible, only client 9 is slower
    assert hits[8] == hits[9] == 0


def test_the_scheduler_accepts_fewer_than_wanted(tmp_path):
    scheduler = Scheduler(FedCS(tau_max=3.5, latency_s=[1.0, 2.0, 3.0, 4.0, 5.0]), cohort_size=4)
    scheduler.join(list("abcde"))
    assert scheduler.select() == ["a", "b", "c"]
    assert not scheduler.last_round.short, "more were available"
    scheduler.observe({"a": 1.0, "b": 2.0, "c": 3.0})
    scheduler.save(tmp_path / "s.bsfl")
    twin = Scheduler.load(tmp_path / "s.bsfl")
    assert twin.select() == ["a", "b", "c"]
    assert twin.select(available=[]) == []


@pytest.mark.parametrize("chosen", [[], [0, 0], [0, 1, 2], [9]])
def test_the_scheduler_still_catches_nonsense(chosen):
    class Odd(FedCS):
        def select(self, state, context, rng):
            return chosen

    scheduler = Scheduler(Odd(tau_max=1.0), cohort_size=2)
    with pytest.raises(InvalidInput, match="must choose 1 to 2 distinct available clients, got"):
        scheduler.select(["a", "b", "c"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tau_max": -1}, "tau_max must be a finite number above 0, got -1"),
        ({"latency_s": [1.0, np.inf]}, "latency_s must be finite and above 0, got inf"),
        ({"upload_s": [0.0]}, "upload_s must be finite and above 0, got 0"),
        ({"candidates": 0}, "candidates must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        FedCS(**({"tau_max": 9.0} | settings))


def test_what_is_told_must_cover_the_fleet():
    with pytest.raises(InvalidInput, match="upload_s must cover the fleet of 3 clients, got 1"):
        FedCS(tau_max=9.0, upload_s=[1.0]).init(3)
