"""Age-based selection: the recursion of ages, and products by hand."""

import numpy as np
import pytest
from policy_rounds import drive

from bsfl import Scheduler
from bsfl._core.events import Join
from bsfl.errors import InvalidInput
from bsfl.policies import AgeBased

CLIENTS = np.arange(3)


def ages(driver, clients=CLIENTS):
    return driver.policy.ages(driver.state, driver.context(), clients).tolist()


def test_ages_follow_the_recursion():
    driver, rng, age = drive(AgeBased(tau_max=10.0), 7, 2), np.random.default_rng(2), np.zeros(7)
    for _ in range(49):
        assert ages(driver, np.arange(7)) == age.tolist()
        driver.open(rng=rng)
        driver.respond({k: 1.0 + k for k in driver.cohort})
        age = (age + 1) * (1 - np.isin(np.arange(7), driver.cohort))


def test_rounds_by_hand():
    driver = drive(AgeBased(tau_max=10.0), 3, 1)
    driver.run_round({0: 1.0})
    assert driver.select(target_responses=2).tolist() == [1, 2], "unseen clients first"
    driver.run_round({1: 2.0})
    driver.run_round({2: 8.0})
    # t = 4: ages 2, 1, 0; speeds 1, 1/2, 1/8
    assert ages(driver) == [2, 1, 0]
    assert driver.select().tolist() == [0]
    driver.run_round({0: 4.0})
    # t = 5: ages 0, 2, 1; speeds (1 + 1/4) / 2, 1/2, 1/8
    assert driver.policy.speeds(driver.state, CLIENTS) == pytest.approx([0.625, 0.5, 0.125])
    assert driver.select().tolist() == [1]


def test_a_slow_client_comes_back_when_its_age_makes_up_for_its_speed():
    # m = 1, speeds 1, 1 and 1/2.5. After a slow round the fast ones have the ages 1 and 2 and are
    # selected at products 2, 2 and 1; then the slow one, three rounds old, leads by 3/2.5 to 1.
    driver, selected = drive(AgeBased(tau_max=10.0), 3, 1), []
    for _ in range(60):
        driver.open()
        driver.respond({k: (1.0, 1.0, 2.5)[k] for k in driver.cohort})
        selected += driver.cohort
    slow = [t for t in range(20, 60) if selected[t] == 2]
    assert np.all(np.diff(slow) == 4)
    assert len(slow) == 10


def test_no_response_counts_as_the_deadline():
    driver = drive(AgeBased(tau_max=10.0), 2, 2)
    driver.run_round({0: 50.0}, cohort=[0, 1])
    assert driver.policy.speeds(driver.state, np.arange(2)) == pytest.approx([0.1, 0.1])


def after_joining(first_round, t):
    """Return a driver before round t of client 0 and one that joined in `first_round`."""
    driver = drive(AgeBased(tau_max=10.0), 1, 1)
    driver.task.round = first_round - 1
    driver.engine.run(Join(n_new=1))
    driver.task.round = t - 1
    return driver


def test_rounds_before_joining_do_not_age_a_client():
    assert ages(after_joining(8, t=9), np.arange(2)) == [8, 1]


def test_a_new_client_comes_before_the_oldest():
    driver = drive(AgeBased(tau_max=10.0), 1, 1)
    driver.run_round({0: 0.01})
    driver.task.round = 8
    driver.engine.run(Join(n_new=1))
    assert ages(driver, np.arange(2)) == [7, 0]
    assert driver.select().tolist() == [1], "it is unseen"


def test_bad_settings_are_rejected():
    with pytest.raises(InvalidInput, match="tau_max must be a finite number above 0, got 0"):
        AgeBased(tau_max=0)


def test_a_response_to_a_round_before_the_client_left_and_came_back(tmp_path):
    scheduler = Scheduler(AgeBased(tau_max=10.0), cohort_size=1, max_open_rounds=9)
    first = scheduler.select(["ann"])
    scheduler.leave(["ann"])
    for _ in range(5):
        scheduler.select(["bob"])
    scheduler.join(["ann"])
    scheduler.observe({"ann": 2.0}, round=first)
    assert scheduler.state.last_selected.tolist() == [0, 0], "its rounds count from round 7"
    scheduler.save(tmp_path / "state.bsfl")
    assert Scheduler.load(tmp_path / "state.bsfl").round == 6


def test_the_first_report_of_a_round_may_be_overtaken():
    scheduler = Scheduler(AgeBased(tau_max=10.0), cohort_size=1, max_open_rounds=3)
    for _ in range(3):
        scheduler.select(["ann"])
    for number in (2, 3, 1):
        scheduler.observe({"ann": 1.0}, round=number)
    assert scheduler.state.last_selected.tolist() == [3]
