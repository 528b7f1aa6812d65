"""REFL: the slot by hand, and the clients that are expected to leave in the next one."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from policy_rounds import assert_frequencies, cohorts_of, drive, timeouts

from bsfl._core.events import OpenRound
from bsfl.policies import Refl


def slot_s(driver):
    return driver.policy.slot_s(driver.state)


def test_the_slot_is_a_moving_average_of_durations():
    # 10; 0.75 x 20 + 0.25 x 10 = 17.5; 0.75 x 8 + 0.25 x 17.5 = 10.375
    driver, found = drive(Refl(), 4, 2), []
    for latencies in ({}, {0: 10.0, 1: 3.0}, {1: 20.0}, {2: 8.0, 3: 1.0}):
        driver.run_round(latencies)
        found.append(slot_s(driver))
    assert found == [0.0, 10.0, 17.5, 10.375]
    half = drive(Refl(history=0.5), 4, 2)
    half.run_round({0: 10.0})
    half.run_round({1: 20.0})
    assert slot_s(half) == 15.0


def test_a_round_lasts_as_long_as_the_server_waits():
    driver = drive(Refl(), 6, 2)
    first = driver.open([0, 1, 2])
    driver.respond({0: 4.0})
    assert slot_s(driver) == 4.0
    driver.respond(timeouts({1: 6.0}))
    assert slot_s(driver) == 6.0, "reports of one round come one at a time"
    driver.open([3, 4])
    driver.respond({})
    assert slot_s(driver) == 6.0
    driver.respond({3: 10.0})
    assert slot_s(driver) == 0.75 * 10 + 0.25 * 6
    driver.respond({2: 50.0}, first)
    assert slot_s(driver) == 9.0, "a response to an earlier round"


def test_a_dropped_response_prolongs_no_round():
    driver = drive(Refl(), 4, 2)
    first = driver.run_round({0: 4.0}, cohort=[0, 1])
    driver.respond({1: 30.0}, first)
    assert slot_s(driver) == 4.0, "it came after the round had closed"


def test_a_buffered_round_lasts_as_long_as_its_client():
    driver = drive(Refl(), 4, 1, max_open_rounds=2, late="apply")
    first = driver.open([0])
    driver.respond({1: 4.0}, driver.open([1]))
    driver.respond({0: 50.0}, first)
    assert slot_s(driver) == 0.75 * 50 + 0.25 * 4


def at_slot_10(policy, online_s, m):
    """Return a driver after a round of 10 s, and a context with the seconds online so far."""
    driver = drive(policy, 6, 2)
    driver.run_round({0: 10.0})
    return driver, replace(driver.context(target_responses=m), online_s=np.array(online_s))


def test_clients_come_first_that_stay_for_this_round_and_not_for_the_next():
    # expected to stay as long again: 10 s and 19.9 s last for one slot of 10 s and not for two
    driver, here = at_slot_10(Refl(), [5.0, 10.0, 19.9, 20.0, 100.0, np.nan], 2)
    leaving = driver.policy.leaving(driver.state, here)
    assert leaving.tolist() == [False, True, True, False, False, False]
    assert driver.select(here).tolist() == [1, 2]
    # stay = 2: 10 s to 19.9 s are left after 5 s to 9.95 s
    assert Refl(stay=2.0).leaving(driver.state, here).tolist() == [True] + [False] * 5


def test_the_rest_is_drawn_at_random():
    driver, here = at_slot_10(Refl(), [5.0, 10.0, 19.9, 20.0, 100.0, 0.0], 3)
    expected = [1 / 4, 1, 1, 1 / 4, 1 / 4, 1 / 4]
    assert_frequencies(lambda rng: driver.select(here, rng), expected, 4000)


@pytest.mark.parametrize("has_slot", [True, False])
def test_without_online_times_or_a_slot_all_is_random(has_slot):
    driver, here = at_slot_10(Refl(), [0.0, 1.0, 2.0, 10.0, 15.0, 20.0], 2)
    if has_slot:
        here = driver.context()
    else:
        driver.state.duration_s = 0.0
    assert not driver.policy.leaving(driver.state, here).any()
    assert cohorts_of(driver, here) == set(combinations(range(6), 2))


def test_the_engine_passes_online_times_of_available_clients_on():
    driver, _ = at_slot_10(Refl(), [], 2)
    driver.set_available([0, 2, 3, 4])
    online_s = np.array([5.0, 10.0, 19.9, 20.0, 15.0, 11.0])
    opened = driver.engine.run(OpenRound(online_s=online_s))
    assert opened.cohort.tolist() == [2, 4], "19.9 s and 15 s; clients 1 and 5 are offline"
