"""REFL: the slot by hand, and the clients that are expected to leave in the next one."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from policy_rounds import drive, timeouts

from bsfl._core.events import OpenRound
from bsfl.errors import InvalidInput
from bsfl.policies import Refl


def slot_after(policy, *rounds):
    driver = drive(policy, 4, 2)
    for latencies in rounds:
        driver.run_round(latencies)
    return policy.slot_s(driver.state)


def test_the_slot_is_a_moving_average_of_durations():
    # 10; 0.75 x 20 + 0.25 x 10 = 17.5; 0.75 x 8 + 0.25 x 17.5 = 10.375
    policy = Refl()
    assert slot_after(policy) == 0.0
    assert slot_after(policy, {0: 10.0, 1: 3.0}) == 10.0
    assert slot_after(policy, {0: 10.0}, {1: 20.0}) == 17.5
    assert slot_after(policy, {0: 10.0}, {1: 20.0}, {2: 8.0, 3: 1.0}) == 10.375
    assert slot_after(Refl(history=0.5), {0: 10.0}, {1: 20.0}) == 15.0


def test_a_round_lasts_as_long_as_the_server_waits():
    driver = drive(Refl(), 6, 4)

    def slot_s():
        return driver.policy.slot_s(driver.state)

    first = driver.open([0, 1, 2])
    driver.respond({0: 4.0})
    assert slot_s() == 4.0
    driver.respond(timeouts({1: 6.0}))
    assert slot_s() == 6.0, "reports of one round come one at a time"
    driver.open([3, 4])
    driver.respond({})
    assert slot_s() == 6.0
    driver.respond({3: 10.0})
    assert slot_s() == 0.75 * 10 + 0.25 * 6
    driver.respond({2: 50.0}, first)
    assert slot_s() == 9.0, "a response to an earlier round"


def test_a_dropped_response_prolongs_no_round():
    driver = drive(Refl(), 4, 2)
    first = driver.run_round({0: 4.0}, cohort=[0, 1])
    driver.respond({1: 30.0}, first)
    assert driver.policy.slot_s(driver.state) == 4.0, "it came after the round had closed"


def test_a_buffered_round_lasts_as_long_as_its_client():
    driver = drive(Refl(), 4, 1, max_open_rounds=2, late="apply")
    first = driver.open([0])
    driver.respond({1: 4.0}, driver.open([1]))
    driver.respond({0: 50.0}, first)
    assert driver.policy.slot_s(driver.state) == 0.75 * 50 + 0.25 * 4


def online_for(driver, online_s, m):
    """Return a context in which clients have been online for so many seconds."""
    return replace(driver.context(target_responses=m), online_s=np.array(online_s))


def at_slot_10(policy):
    driver = drive(policy, 6, 2)
    driver.run_round({0: 10.0})
    return driver


def test_clients_come_first_that_stay_for_this_round_and_not_for_the_next():
    # expected to stay as long again: 10 s and 19.9 s last for one slot of 10 s and not for two
    driver = at_slot_10(Refl())
    here = online_for(driver, [5.0, 10.0, 19.9, 20.0, 100.0, np.nan], 2)
    leaving = driver.policy.leaving(driver.state, here)
    assert leaving.tolist() == [False, True, True, False, False, False]
    assert driver.select(here).tolist() == [1, 2]
    # stay = 2: 10 s to 19.9 s are left after 5 s to 9.95 s
    assert Refl(stay=2.0).leaving(driver.state, here).tolist() == [True] + [False] * 5


def test_the_rest_is_drawn_at_random():
    driver, hits, draws = at_slot_10(Refl()), Counter(), 4000
    here = online_for(driver, [5.0, 10.0, 19.9, 20.0, 100.0, 0.0], 3)
    for seed in range(draws):
        hits.update(driver.select(here, np.random.default_rng(seed)).tolist())
    assert hits[1] == hits[2] == draws
    for k in (0, 3, 4, 5):  # one of four
        assert abs(hits[k] / draws - 1 / 4) < 4 * np.sqrt(3 / 16 / draws)


def test_without_online_times_or_a_slot_all_is_random():
    learned, fresh = at_slot_10(Refl()), drive(Refl(), 6, 2)
    for driver, here in (
        (learned, learned.context()),
        (fresh, online_for(fresh, [0.0, 1.0, 2.0, 10.0, 15.0, 20.0], 2)),
    ):
        assert not driver.policy.leaving(driver.state, here).any()
        drawn = {tuple(driver.select(here, np.random.default_rng(s)).tolist()) for s in range(200)}
        assert len(drawn) == 15


def test_the_engine_passes_online_times_of_available_clients_on():
    driver = at_slot_10(Refl())
    driver.set_available([0, 2, 3, 4])
    online_s = np.array([5.0, 10.0, 19.9, 20.0, 15.0, 11.0])
    opened = driver.engine.run(OpenRound(online_s=online_s))
    assert opened.cohort.tolist() == [2, 4], "19.9 s and 15 s; clients 1 and 5 are offline"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"history": 1.1}, "history must be between 0 and 1, got 1.1"),
        ({"stay": 0}, "stay must be a finite number above 0, got 0"),
    ],
)
def test_bad_settings_are_rejected(settings, message):
    with pytest.raises(InvalidInput, match=message):
        Refl(**settings)
