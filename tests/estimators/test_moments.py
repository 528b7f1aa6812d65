"""Memories against their definitions, computed the long way from all values."""

import numpy as np
import pytest

from bsfl.estimators.moments import CumulativeMean, Discounted, SlidingWindow

K, ROUNDS = 6, 60


def history(seed=0):
    """Return (t, clients, values) of rounds in which some clients responded."""
    rng = np.random.default_rng(seed)
    for t in range(1, ROUNDS + 1):
        clients = np.flatnonzero(rng.random(K) < 0.4)
        clients = clients[clients != 5]  # client 5 never responds
        yield t, clients, rng.normal(size=len(clients)) + clients


def filled(memory, until=ROUNDS):
    state = memory.init(K)
    for t, clients, values in history():
        if t <= until:
            memory.add(state, clients, t, values)
    return state


def assert_recalled(memory, weight_of, now, until=ROUNDS):
    """Check the moments in round `now` against all values and their weights."""
    known = memory.recall(filled(memory, until), np.arange(K), now)
    for k in range(K):
        terms = [
            (weight_of(t), value)
            for t, clients, values in history()
            for value in values[clients == k]
            if t <= until
        ]
        w, v = np.array(terms).reshape(-1, 2).T
        assert known.count[k] == pytest.approx(w.sum())
        if w.sum():
            mean = w @ v / w.sum()
            assert known.mean[k] == pytest.approx(mean)
            assert known.spread[k] == pytest.approx(w @ (v - mean) ** 2, abs=1e-9)
        else:
            assert known.spread[k] == 0.0


def test_all_values_count_equally():
    memory = CumulativeMean()
    assert_recalled(memory, lambda t: 1.0, ROUNDS)
    assert memory.rounds(17) == 17


@pytest.mark.parametrize("gamma", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("later", [0, 7])
def test_old_values_are_discounted(gamma, later):
    memory, now = Discounted(gamma), ROUNDS + later
    assert_recalled(memory, lambda t: gamma ** (now - t), now)
    assert memory.rounds(3) == pytest.approx(1 + gamma + gamma**2)


@pytest.mark.parametrize("window", [2, 10, 16])
@pytest.mark.parametrize("until", [25, 40, 60])
def test_a_window_keeps_this_block_and_the_one_before(window, until):
    memory, half = SlidingWindow(window), window // 2

    def weight(t):
        return float(until // half - t // half <= 1)

    assert_recalled(memory, weight, until, until)
    assert memory.rounds(5) == min(5, window)
    youngest_expired = max((t for t in range(1, until + 1) if not weight(t)), default=None)
    if youngest_expired:
        assert half <= until - youngest_expired < window + 1, "between half and all of it"


def test_a_window_without_values_is_empty():
    memory = SlidingWindow(10)
    state = filled(memory)
    assert memory.recall(state, np.arange(K), ROUNDS + 100).count.tolist() == [0] * K
    memory.add(state, np.array([2]), ROUNDS + 100, np.array([7.0]))
    known = memory.recall(state, np.array([2]), ROUNDS + 101)
    assert (known.count[0], known.mean[0], known.spread[0]) == (1.0, 7.0, 0.0)


def test_a_late_value_does_not_make_the_others_younger():
    memory = Discounted(0.5)
    state = memory.init(1)
    memory.add(state, np.array([0]), 10, np.array([1.0]))
    memory.add(state, np.array([0]), 4, np.array([3.0]))
    known = memory.recall(state, np.array([0]), 10)
    assert known.count[0] == 2.0
