"""REFL: the slot by hand, and who is expected to leave in the next one."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from policy_rounds import context, report

from bsfl.errors import InvalidInput
from bsfl.policies import Refl
from bsfl.records import RoundContext


@dataclass(frozen=True, kw_only=True)
class Watched(RoundContext):
    """A round of which the server knows how long clients have been online."""

    online_s: Any = None


def slot_after(policy, *rounds):
    state = policy.init(4)
    for t, latencies in enumerate(rounds, start=1):
        policy.observe(state, context(t, 2, 4), report(latencies))
    return policy.slot_s(state)


def test_the_slot_is_a_moving_average_of_durations():
    # 10; 0.75 x 20 + 0.25 x 10 = 17.5; 0.75 x 8 + 0.25 x 17.5 = 10.375
    policy = Refl()
    assert slot_after(policy) == 0.0
    assert slot_after(policy, {0: 10.0, 1: 3.0}) == 10.0
    assert slot_after(policy, {0: 10.0}, {1: 20.0}) == 17.5
    assert slot_after(policy, {0: 10.0}, {1: 20.0}, {2: 8.0, 3: 1.0}) == 10.375
    assert slot_after(Refl(history=0.5), {0: 10.0}, {1: 20.0}) == 15.0


def test_a_round_lasts_as_long_as_the_server_waits():
    policy = Refl()
    state = policy.init(4)

    def tell(t, latency, outcome="ok", m=2):
        policy.observe(state, context(t, m, 4), report({0: latency}, chosen=[], outcome=outcome))
        return policy.slot_s(state)

    assert tell(1, 4.0) == 4.0
    assert tell(1, 6.0, "timeout") == 6.0, "reports of one round come one by one"
    assert tell(1, 30.0, "late") == 6.0, "it came when the round was over"
    policy.observe(state, context(2, 2, 4), report({}, chosen=[1, 2]))
    assert tell(2, 10.0) == 0.75 * 10 + 0.25 * 6
    assert tell(1, 50.0) == 9.0, "an answer to an earlier round, applied late"
    assert tell(1, 50.0, m=1) == 0.75 * 50 + 0.25 * 9, "one client is a round without a barrier"


def at_slot_10(policy):
    state = policy.init(6)
    policy.observe(state, context(1, 2, 6), report({0: 10.0}))
    return state


def watched(m, online_s):
    return Watched(t=2, available=np.arange(6), cohort_size=m, online_s=np.array(online_s))


def test_those_come_first_that_last_for_this_round_and_not_for_the_next():
    # expected to stay as long again: 10 s and 19.9 s last for one slot of 10 s and not for two
    policy = Refl()
    state = at_slot_10(policy)
    here = watched(2, [5.0, 10.0, 19.9, 20.0, 100.0, np.nan])
    assert policy.leaving(state, here).tolist() == [False, True, True, False, False, False]
    assert policy.select(state, here, np.random.default_rng(0)).tolist() == [1, 2]
    # stay = 2: 10 s to 19.9 s are left after 5 s to 9.95 s
    assert Refl(stay=2.0).leaving(state, here).tolist() == [True] + [False] * 5


def test_the_rest_is_drawn_at_random():
    policy, hits, draws = Refl(), Counter(), 4000
    state, here = at_slot_10(policy), watched(3, [5.0, 10.0, 19.9, 20.0, 100.0, 0.0])
    for seed in range(draws):
        hits.update(policy.select(state, here, np.random.default_rng(seed)).tolist())
    assert hits[1] == hits[2] == draws
    for k in (0, 3, 4, 5):  # one of four
        assert abs(hits[k] / draws - 1 / 4) < 4 * np.sqrt(3 / 16 / draws)


def test_without_a_watch_or_a_slot_all_is_random():
    policy = Refl()
    for state, here in (
        (at_slot_10(policy), context(2, 2, 6)),
        (policy.init(6), watched(2, [0.0, 1.0, 2.0, 10.0, 15.0, 20.0])),
    ):
        assert not policy.leaving(state, here).any()
        drawn = {
            tuple(policy.select(state, here, np.random.default_rng(s)).tolist()) for s in range(200)
        }
        assert len(drawn) == 15


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"history": 1.1}, "history must be between 0 and 1, got 1.1"),
        ({"stay": 0}, "stay must be a finite number above 0, got 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        Refl(**settings)
