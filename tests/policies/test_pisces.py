"""Pisces: staleness and scores by hand, in buffered rounds and in synchronous ones."""

import numpy as np
import pytest
from policy_rounds import cohorts_of, drive, losses_of, timeouts

from bsfl._core.state import validate
from bsfl.errors import InvalidInput
from bsfl.policies import Pisces


def buffered(policy):
    """Return a driver of overlapping rounds of one client."""
    return drive(policy, 4, 1, samples=np.ones(4), max_open_rounds=50)


def invite(driver, client):
    """Open a round of one client, and report who was invited."""
    number = driver.open([client])
    driver.respond({}, number)
    return number


def two_in_flight(policy):
    """Client 0 is in flight during four invitations; 1 and 2 take turns beside it."""
    driver = buffered(policy)
    first = invite(driver, 0)
    for client, loss in ((1, 3.0), (2, 4.0), (1, 3.0), (2, 4.0)):
        driver.respond(losses_of({client: loss}), invite(driver, client))
    driver.respond(losses_of({0: 6.0}), first)
    return driver


def test_staleness_counts_invitations_over_clients_in_flight():
    driver = two_in_flight(Pisces())
    assert (driver.state.max_in_flight, driver.state.n_in_flight) == (2, 0)
    assert driver.state.mean.tolist() == [4 / 2, 0, 0, 0]
    # another response, one invitation old: the mean of 2 and 1/2
    number = invite(driver, 0)
    invite(driver, 1)
    driver.respond(losses_of({0: 6.0}), number)
    assert driver.state.mean[0] == 1.25
    assert (driver.state.max_in_flight, driver.state.n_in_flight) == (2, 1)


@pytest.mark.parametrize(
    ("penalty", "order"),
    [
        (0.5, [2, 0, 1]),  # 6 / sqrt(3) = 3.46 between 4 and 3
        (0.0, [0, 2, 1]),  # 6, 4, 3
        (1.0, [2, 1, 0]),  # 6 / 3 = 2 below 3
    ],
)
def test_scores_by_hand(penalty, order):
    driver, left = two_in_flight(Pisces(penalty=penalty)), [0, 1, 2]
    for best in order:
        assert driver.select(available=left).tolist() == [best]
        left.remove(best)


def test_unseen_clients_come_first_and_unresponsive_ones_last():
    assert cohorts_of(buffered(Pisces()), seeds=50) == {(0,), (1,), (2,), (3,)}
    driver = two_in_flight(Pisces())
    assert driver.select().tolist() == [3]
    invite(driver, 3)
    assert driver.select(target_responses=3).tolist() == [0, 1, 2], "3 has no utility"


def test_in_synchronous_rounds_only_late_responses_are_stale():
    # rounds of 2; client 1 is late: after {0, 1} came {2, 3} and {0, 2}, 4 invitations; in flight
    # together were 2, then 1 and two more = 3
    driver = drive(Pisces(), 4, 2, samples=np.ones(4), late="apply")
    driver.run_round(losses_of({0: 1.0}), cohort=[0, 1])
    driver.run_round(losses_of({2: 1.0, 3: 1.0}))
    driver.run_round(losses_of({0: 1.0, 2: 1.0}))
    driver.respond(losses_of({1: 9.0}), 1)
    assert driver.state.mean.tolist() == pytest.approx([0, 4 / 3, 0, 0])
    assert driver.select(target_responses=1).tolist() == [1], "9 / sqrt(7/3) = 5.9"


def test_a_client_that_is_never_reported_is_in_flight_once():
    driver = buffered(Pisces())
    for _ in range(49):
        invite(driver, 0)
    assert driver.state.max_in_flight == driver.state.n_in_flight == 1


def test_a_dropped_response_or_a_timeout_is_stale_and_has_no_utility():
    driver = two_in_flight(Pisces())
    sixth, seventh = invite(driver, 2), invite(driver, 1)
    driver.close(sixth)
    driver.respond({2: 9.0}, sixth)
    assert driver.state.mean[2] == pytest.approx((0 + 0 + 1 / 2) / 3)
    invite(driver, 2)
    invite(driver, 0)
    driver.respond(timeouts({1: 9.0}), seventh)
    # three were in flight together at invitation 9
    assert driver.state.mean[1] == pytest.approx((0 + 0 + 2 / 3) / 3)
    assert driver.state.utility.tolist() == [6, 3, 4, 0]


@pytest.mark.parametrize(("column", "value"), [("mean", -0.1), ("in_flight", 1)])
def test_states_that_cannot_be_are_rejected(column, value):
    state = two_in_flight(Pisces()).state
    validate(state)
    getattr(state, column)[1] = value
    with pytest.raises(InvalidInput, match=column):
        validate(state)
