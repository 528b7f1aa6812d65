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


def weighted(weight_of, until=ROUNDS):
    """Return count, mean and spread of every client from all its values and their weights."""
    terms = [[] for _ in range(K)]
    for t, clients, values in history():
        if t <= until:
            for k, value in zip(clients, values, strict=True):
                terms[k].append((weight_of(t), value))
    rows = []
    for of_client in terms:
        w, v = (np.array([one[i] for one in of_client]) for i in (0, 1))
        if w.sum() == 0:
            rows.append((0.0, np.nan, 0.0))
            continue
        mean = w @ v / w.sum()
        rows.append((w.sum(), mean, w @ (v - mean) ** 2))
    return np.array(rows).T


def assert_same(known, expected):
    count, mean, spread = expected
    assert known.count == pytest.approx(count)
    observed = count > 0
    assert known.mean[observed] == pytest.approx(mean[observed])
    assert known.spread[observed] == pytest.approx(spread[observed], abs=1e-9)


def test_all_values_count_equally():
    memory = CumulativeMean()
    assert_same(memory.recall(filled(memory), np.arange(K), ROUNDS), weighted(lambda t: 1.0))
    assert memory.rounds(17) == 17


@pytest.mark.parametrize("gamma", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("later", [0, 7])
def test_old_values_are_discounted(gamma, later):
    memory, now = Discounted(gamma), ROUNDS + later
    known = memory.recall(filled(memory), np.arange(K), now)
    assert_same(known, weighted(lambda t: gamma ** (now - t)))
    assert memory.rounds(3) == pytest.approx(1 + gamma + gamma**2)


@pytest.mark.parametrize("window", [2, 10, 16])
@pytest.mark.parametrize("until", [25, 40, 60])
def test_a_window_keeps_this_block_and_the_one_before(window, until):
    memory, half = SlidingWindow(window), window // 2

    def weight(t):
        return float(until // half - t // half <= 1)

    known = memory.recall(filled(memory, until), np.arange(K), until)
    assert_same(known, weighted(weight, until))
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
