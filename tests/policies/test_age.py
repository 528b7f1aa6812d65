"""Age-based selection: ages and products by hand."""

import numpy as np
import pytest
from policy_rounds import drive, overtaken

from bsfl import Scheduler
from bsfl._core.events import Join
from bsfl.policies import AgeBased


def ages(driver, n_clients=3):
    return driver.policy.ages(driver.state, driver.context(), np.arange(n_clients)).tolist()


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
    speeds = driver.policy.speeds(driver.state, np.arange(3))
    assert speeds == pytest.approx([0.625, 0.5, 0.125])
    assert driver.select().tolist() == [1]


def test_no_response_counts_as_the_deadline():
    driver = drive(AgeBased(tau_max=10.0), 2, 2)
    driver.run_round({0: 50.0}, cohort=[0, 1])
    assert driver.policy.speeds(driver.state, np.arange(2)) == pytest.approx([0.1, 0.1])


def test_rounds_before_joining_do_not_age_a_client():
    driver = drive(AgeBased(tau_max=10.0), 1, 1)
    driver.run_round({0: 0.01})
    driver.task.round = 8
    driver.engine.run(Join(n_new=1))
    assert ages(driver, 2) == [7, 0]
    assert driver.select().tolist() == [1], "it is unseen"
    driver.task.round = 9
    assert ages(driver, 2) == [8, 1]


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
    scheduler = overtaken(AgeBased(tau_max=10.0), (2, 3, 1))
    assert scheduler.state.last_selected.tolist() == [3]
