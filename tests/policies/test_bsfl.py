"""BSFL by hand for rounds 1, 2 and 3, in both settings, and the traps around them."""

from math import log, sqrt

import numpy as np
import pytest
from policy_rounds import context, report

from bsfl.errors import InvalidInput
from bsfl.estimation import Means
from bsfl.policies import BSFL

RNG = np.random.default_rng(0)


def speed(policy, state, clients):
    """Return the mean of tau_min / tau."""
    return state.memory.mean[clients] * policy._tau_min(state)


def test_rounds_one_to_three_by_hand_iid():
    # K = 4, m = 2, tau_min = 1 s, alpha = 3, beta = 1, r = m/K = 1/2
    policy = BSFL(alpha=3.0, tau_min=1.0)
    state = policy.init(4)

    # Round 1: nobody was met; all indices are infinite and g = 1/2 - 0/1 for everyone.
    first = context(1, 2, 4)
    assert policy.ucb(state, first).tolist() == [np.inf] * 4
    assert policy.g(state, first).tolist() == [0.5] * 4
    policy.observe(state, first, report({0: 2.0, 1: 4.0}))

    # Round 2 uses ucb(k, 1) = mean + sqrt(3 ln 1 / 1) = 1/2 and 1/4, and g = 1/2 - 1/2 = 0.
    second = context(2, 2, 4)
    assert policy.ucb(state, second).tolist() == [0.5, 0.25, np.inf, np.inf]
    assert policy.g(state, second).tolist() == [0.0, 0.0, 0.5, 0.5]
    assert policy.select(state, second, RNG).tolist() == [2, 3]
    policy.observe(state, second, report({2: 1.25, 3: 10.0}))

    # Round 3 uses ln 2 and c/3: everyone was chosen once.
    third = context(3, 2, 4)
    radius = sqrt(3 * log(2))
    assert policy.ucb(state, third) == pytest.approx(np.array([0.5, 0.25, 0.8, 0.1]) + radius)
    assert policy.g(state, third) == pytest.approx([1 / 2 - 1 / 3] * 4)
    # g is the same for all, so the two fastest win
    assert policy.select(state, third, RNG).tolist() == [0, 2]
    policy.observe(state, third, report({0: 1.0, 2: 1.0}))

    # Round 4: means (1/2 + 1)/2, 1/4, (0.8 + 1)/2, 1/10; counts 2, 1, 2, 1; ln 3
    fourth = context(4, 2, 4)
    wide, narrow = sqrt(3 * log(3)), sqrt(3 * log(3) / 2)
    assert policy.ucb(state, fourth) == pytest.approx(
        [0.75 + narrow, 0.25 + wide, 0.9 + narrow, 0.1 + wide]
    )
    assert policy.g(state, fourth) == pytest.approx([0.0, 0.25, 0.0, 0.25])
    # E{1,3} = 0.1 + 1.8154 + 1.5 * 0.5; E{0,2} = 0.75 + 1.2837 + 0; the neglected pair wins
    assert policy.select(state, fourth, RNG).tolist() == [1, 3]


def test_rounds_one_to_three_by_hand_weighted():
    # K = 3, m = 1, d = q n = 6, 3, 1 -> r = 0.6, 0.3, 0.1; beta = 2
    policy = BSFL(alpha=1.0, beta=2, tau_min=1.0, generalization="weighted")
    roster = {"samples": np.array([6.0, 6.0, 1.0]), "quality": np.array([1.0, 0.5, 1.0])}
    state = policy.init(3)

    first = context(1, 1, 3, **roster)
    assert policy.g(state, first) == pytest.approx([0.36, 0.09, 0.01])
    assert policy.select(state, first, RNG).tolist() == [0], "unexplored: the largest g first"
    policy.observe(state, first, report({0: 2.0}))

    second = context(2, 1, 3, **roster)
    # 0.6 - 1/2 = 0.1; the others stand at c/t = 0
    assert policy.g(state, second) == pytest.approx([0.01, 0.09, 0.01])
    assert policy.select(state, second, RNG).tolist() == [1]
    policy.observe(state, second, report({1: 5.0}))

    third = context(3, 1, 3, **roster)
    # 0.6 - 1/3 = 4/15; 0.3 - 1/3 = -1/30, whose square keeps its sign
    assert policy.g(state, third) == pytest.approx([(4 / 15) ** 2, -((1 / 30) ** 2), 0.01])
    assert policy.ucb(state, third) == pytest.approx(
        [0.5 + sqrt(2 * log(2)), 0.2 + sqrt(2 * log(2)), np.inf]
    )
    assert policy.select(state, third, RNG).tolist() == [2]


def test_fewer_unexplored_than_places_fill_up_with_the_best_of_the_rest():
    # m = 3, client 4 unexplored, t = 10, alpha = 3, so (alpha / m) = 1 for the two free places:
    # E{0,1} = 0.8 + 0.2 + 0.2 = 1.2 beats E{2,3} = 0.1 + 0.5 + 0.5 = 1.1.
    # Dividing by the free places instead, 3/2, would choose {2,3}: 1.6 against 1.4.
    policy = BSFL(alpha=3.0, tau_min=1.0, index=Means(radius="none"))
    state = policy.init(5)
    state.selected[:] = state.memory.observed[:] = [4, 4, 1, 1, 0]
    state.memory.mean[:] = [0.9, 0.8, 0.1, 0.1, 0.0]
    assert policy.select(state, context(10, 3, 5), RNG).tolist() == [0, 1, 4]


def test_tau_min_may_be_learned_late_without_spoiling_the_means():
    given, learned = BSFL(tau_min=0.5), BSFL()
    states = [p.init(2) for p in (given, learned)]
    for t, latencies in enumerate(({0: 4.0, 1: 1.0}, {0: 2.0, 1: 0.5}), start=1):
        for policy, state in zip((given, learned), states, strict=True):
            policy.observe(state, context(t, 2, 2), report(latencies))
    everyone = np.arange(2)
    assert states[1].fastest_s == 0.5
    assert speed(learned, states[1], everyone) == pytest.approx(speed(given, states[0], everyone))
    assert speed(learned, states[1], everyone) == pytest.approx([0.1875, 0.75])


def test_a_timeout_counts_as_the_deadline_and_a_failure_is_never_fast():
    policy = BSFL(tau_min=1.0, tau_max=10.0)
    state = policy.init(4)
    policy.observe(
        state, context(1, 4, 4), report({0: 3.0}, chosen=[0, 1, 2, 3], outcome="timeout")
    )
    policy.observe(state, context(1, 4, 4), report({1: 0.001}, chosen=[], outcome="failed"))
    policy.observe(state, context(1, 4, 4), report({2: 25.0}, chosen=[]))
    assert speed(policy, state, np.arange(3)) == pytest.approx([0.1, 0.1, 0.1])
    assert state.selected.tolist() == [1, 1, 1, 1]
    assert state.memory.observed.tolist() == [1, 1, 1, 0], "client 3 has not answered yet"


def test_without_a_deadline_a_failure_is_an_answer_that_never_comes():
    policy = BSFL()
    state = policy.init(2)
    policy.observe(state, context(1, 2, 2), report({0: 0.001}, outcome="failed"))
    assert speed(policy, state, np.arange(2)).tolist() == [0.0, 0.0]
    assert state.fastest_s == np.inf, "a failure says nothing about tau_min"
    policy.observe(state, context(2, 2, 2), report({0: 7.0}, outcome="timeout"))
    assert state.fastest_s == np.inf, "nor does a timeout, which is censored"
    policy.observe(state, context(3, 2, 2), report({0: 3.5}))
    # mean of 0, 1/7 and 1/3.5, times tau_min = 3.5
    assert speed(policy, state, np.arange(1)) == pytest.approx([0.5])


def test_slow_clients_are_put_into_the_same_rounds():
    # four fast, four slow, m = 4, no radius: the paper's insight is that slow ones come together
    policy = BSFL(alpha=4.0, tau_min=1.0, index=Means(radius="none"))
    state = policy.init(8)
    latency = np.array([1.0] * 4 + [10.0] * 4)
    mixed = 0
    for t in range(1, 60):
        cohort = policy.select(state, context(t, 4, 8), np.random.default_rng(t))
        policy.observe(
            state,
            context(t, 4, 8),
            report(dict(zip(cohort.tolist(), latency[cohort], strict=True))),
        )
        mixed += t > 10 and 0 < np.sum(latency[cohort] > 5) < 4
    assert mixed == 0
    assert state.selected[4:].min() > 5


def test_plugged_in_functions_are_used():
    def favourite(clients, history, context):
        return np.where(clients == 3, 1.0, 0.0)

    def flat(count, *, t, m, variance):
        return np.zeros(len(count))

    def last_ones(u, g, m, alpha, rng):
        return np.arange(len(u))[-m:]

    state = BSFL().init(5)
    state.selected[:] = state.memory.observed[:] = 1
    by_g = BSFL(alpha=50.0, generalization=favourite, index=Means(radius=flat))
    assert by_g.g(state, context(9, 1, 5)).tolist() == [0, 0, 0, 1, 0]
    assert by_g.select(state, context(9, 1, 5), RNG).tolist() == [3]
    assert BSFL(solver=last_ones).select(state, context(9, 2, 5), RNG).tolist() == [3, 4]


@pytest.mark.parametrize("solver", ["exhaustive", "annealing-drop-weakest"])
def test_solvers_by_name(solver):
    state = BSFL().init(6)
    state.selected[:] = state.memory.observed[:] = 1
    state.memory.mean[:] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    chosen = BSFL(solver=solver, tau_min=1.0).select(state, context(5, 2, 6), RNG)
    assert chosen.tolist() == [4, 5]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": -1.0}, "alpha must be a finite number of at least 0, got -1.0"),
        ({"alpha": np.nan}, "alpha must be a finite number of at least 0, got nan"),
        ({"alpha": "x"}, "alpha must be a finite number of at least 0, got 'x'"),
        ({"beta": 0}, "beta must be a whole number of at least 1, got 0"),
        ({"beta": 1.5}, "beta must be a whole number of at least 1, got 1.5"),
        ({"tau_min": 0.0}, "tau_min must be a finite number above 0, got 0.0"),
        ({"tau_max": -2}, "tau_max must be a finite number above 0, got -2"),
        ({"tau_min": 3.0, "tau_max": 2.0}, "tau_min must not exceed tau_max, got 3.0 > 2.0"),
        (
            {"generalization": "fair"},
            "generalization must be one of equal, opportunity, weighted, loss",
        ),
        ({"solver": "magic"}, "solver must be one of exact, exhaustive, annealing-swap"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        BSFL(**settings)
