"""Pisces: staleness and scores by hand, without a barrier and with one."""

import numpy as np
import pytest
from policy_rounds import context, losses_of, report

from bsfl.errors import InvalidInput
from bsfl.policies import Pisces

RNG = np.random.default_rng(0)
ONES = dict.fromkeys(range(9), 1)


def invite(policy, state, t, client):
    policy.observe(state, context(t, 1, 4), report({}, chosen=[client]))


def hear(policy, state, t, client, loss):
    policy.observe(state, context(t, 1, 4), losses_of({client: loss}, samples=ONES, chosen=[]))


def two_at_work(policy):
    """Client 0 is at work during four questions, 1 and 2 take turns beside it."""
    state = policy.init(4)
    invite(policy, state, 1, 0)
    for t, client, loss in ((2, 1, 3.0), (3, 2, 4.0), (4, 1, 3.0), (5, 2, 4.0)):
        invite(policy, state, t, client)
        hear(policy, state, t, client, loss)
    hear(policy, state, 1, 0, 6.0)
    return state


def test_staleness_counts_invitations_over_clients_at_work():
    state = two_at_work(Pisces())
    assert (state.most_at_work, state.n_at_work) == (2, 0)
    assert state.mean.tolist() == [4 / 2, 0, 0, 0]
    # another answer, one question old: the mean of 2 and 1/2
    policy = Pisces()
    invite(policy, state, 6, 0)
    invite(policy, state, 7, 1)
    hear(policy, state, 6, 0, 6.0)
    assert state.mean[0] == 1.25
    assert (state.most_at_work, state.n_at_work) == (2, 1)


@pytest.mark.parametrize(
    ("penalty", "order"),
    [
        (0.5, [2, 0, 1]),  # 6 / sqrt(3) = 3.46 between 4 and 3
        (0.0, [0, 2, 1]),  # 6, 4, 3
        (1.0, [2, 1, 0]),  # 6 / 3 = 2 below 3
    ],
)
def test_scores_by_hand(penalty, order):
    policy = Pisces(penalty=penalty)
    state = two_at_work(policy)
    left = [0, 1, 2]
    for best in order:
        assert policy.select(state, context(6, 1, 4, available=left), RNG).tolist() == [best]
        left.remove(best)


def test_new_clients_come_first_and_silent_ones_last():
    policy = Pisces()
    state = two_at_work(policy)
    assert policy.select(state, context(6, 1, 4), RNG).tolist() == [3]
    invite(policy, state, 6, 3)
    assert policy.select(state, context(7, 3, 4), RNG).tolist() == [0, 1, 2], "3 told nothing"
    drawn = {
        int(policy.select(policy.init(4), context(1, 1, 4), np.random.default_rng(s))[0])
        for s in range(50)
    }
    assert drawn == {0, 1, 2, 3}


def test_behind_a_barrier_only_late_answers_are_stale():
    # rounds of 2; client 1 is late: after {0, 1} came {2, 3} and {0, 2}, 4 invitations; at work
    # together were 2, then 1 and two more = 3
    policy = Pisces()
    state = policy.init(4)

    def tell(t, losses, chosen):
        policy.observe(state, context(t, 2, 4), losses_of(losses, samples=ONES, chosen=chosen))

    tell(1, {0: 1.0}, [0, 1])
    tell(2, {2: 1.0, 3: 1.0}, [2, 3])
    tell(3, {0: 1.0, 2: 1.0}, [0, 2])
    tell(1, {1: 9.0}, [])
    assert state.mean.tolist() == pytest.approx([0, 4 / 3, 0, 0])
    assert policy.select(state, context(4, 1, 4), RNG).tolist() == [1], "9 / sqrt(7/3) = 5.9"


def test_a_client_that_is_never_reported_is_at_work_once():
    policy = Pisces()
    state = policy.init(4)
    for t in range(1, 50):
        invite(policy, state, t, 0)
    assert state.most_at_work == state.n_at_work == 1


def test_a_late_answer_or_a_timeout_is_stale_and_tells_no_utility():
    policy = Pisces()
    state = two_at_work(policy)
    invite(policy, state, 6, 2)
    invite(policy, state, 7, 1)
    policy.observe(state, context(6, 1, 4), report({2: 9.0}, chosen=[], outcome="late"))
    assert state.mean[2] == pytest.approx((0 + 0 + 1 / 2) / 3)
    invite(policy, state, 8, 2)
    invite(policy, state, 9, 0)
    policy.observe(state, context(7, 1, 4), report({1: 9.0}, chosen=[], outcome="timeout"))
    # three were at work together in question 9
    assert state.mean[1] == pytest.approx((0 + 0 + 2 / 3) / 3)
    assert state.utility.tolist() == [6, 3, 4, 0]


def test_a_bad_penalty_is_refused():
    with pytest.raises(InvalidInput, match="penalty must be between 0 and 100, got -1"):
        Pisces(penalty=-1)
