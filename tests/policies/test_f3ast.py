"""F3AST: rates and weights by hand and against the plain recursion."""

from itertools import combinations

import numpy as np
import pytest
from policy_rounds import cohorts_of, drive, overtaken

from bsfl import Scheduler
from bsfl._core.events import Join
from bsfl.policies import F3ast


def rates(driver):
    """Return r_k of four clients with equal data."""
    context = driver.context()
    return driver.policy.rates_by_share(driver.state, context, np.arange(4)) / 4


def test_clients_selected_less_come_first():
    # K = 4, m = 2, b = 0.1, equal data: r = 1/2 for all; {0, 1} selected: 0.9 / 2 + 0.1 = 0.55 and
    # 0.9 / 2 = 0.45; then {2, 3}: 0.9 x 0.55 = 0.495 and 0.9 x 0.45 + 0.1 = 0.505
    driver = drive(F3ast(step=0.1), 4, 2)
    driver.run_round({}, cohort=[0, 1])
    assert rates(driver) == pytest.approx([0.55, 0.55, 0.45, 0.45])
    assert driver.select().tolist() == [2, 3]
    driver.run_round({}, cohort=[2, 3])
    assert rates(driver) == pytest.approx([0.495, 0.495, 0.505, 0.505])
    assert driver.select().tolist() == [0, 1]


def test_weights_count_the_selection_of_the_round():
    # n = 1, 1, 2, 4: p = 1/8, 1/8, 1/4, 1/2; m = 2: r starts at 1/4, 1/4, 1/2 and 1.
    # Selected now, with b = 0.1: r = 0.9 x 0.25 + 0.1 = 0.325 and 0.9 x 0.5 + 0.1 = 0.55
    driver = drive(F3ast(step=0.1), 4, 2, samples=[1.0, 1.0, 2.0, 4.0])
    weights = driver.policy.weights(driver.state, driver.context(), np.array([1, 2]))
    assert weights == pytest.approx([0.125 / 0.325, 0.25 / 0.55])


def test_weights_do_not_count_a_selection_twice():
    # in buffered rounds a client is not available when its response is applied, and its selection
    # was counted: K = 4, m = 1: r = 0.9 / 4 + 0.1 = 0.325
    driver = drive(F3ast(step=0.1), 4, 1)
    driver.run_round({}, cohort=[2])
    weights = driver.policy.weights(driver.state, driver.context(available=[]), np.array([2]))
    assert weights == pytest.approx([0.25 / 0.325])


def test_the_plain_recursion_selects_and_weighs_the_same():
    k, m, b = 9, 3, 0.05
    rng = np.random.default_rng(1)
    sizes = rng.uniform(1.0, 2.0, k)
    driver, p = drive(F3ast(step=b), k, m, samples=sizes), sizes / sizes.sum()
    rate = m * p
    for _ in range(1, 200):
        available = np.flatnonzero(rng.random(k) < 0.6)
        here = driver.context(available=available)
        cohort = driver.select(here, rng)
        score = p / rate
        assert np.sort(score[cohort]) == pytest.approx(np.sort(score[available])[-m:])
        rate = (1 - b) * rate
        rate[cohort] += b
        weights = driver.policy.weights(driver.state, here, cohort)
        assert weights == pytest.approx(p[cohort] / rate[cohort])
        driver.run_round({}, cohort=cohort, available=available)


def test_a_dropped_response_takes_its_round_back():
    # K = 4, m = 2, b = 0.1: in round 4 a client never selected has r = 0.9^3 / 2 = 0.3645
    driver = drive(F3ast(step=0.1), 4, 2)
    driver.run_round({}, cohort=[0, 1])
    driver.run_round({}, cohort=[2, 3])
    driver.respond({3: 5.0}, 2)
    driver.respond({1: 9.0}, 1)
    driver.task.round = 3
    expected = [0.3645 + 0.1 * 0.9**2, 0.3645, 0.3645 + 0.1 * 0.9, 0.3645]
    assert rates(driver) == pytest.approx(expected)


def test_a_late_response_that_is_applied_keeps_its_round():
    driver = drive(F3ast(step=0.1), 4, 2, late="apply")
    driver.run_round({}, cohort=[0, 1])
    before = rates(driver)
    driver.respond({1: 9.0}, 1)
    assert rates(driver).tolist() == before.tolist()


def test_a_client_that_joins_later_starts_at_its_share():
    driver = drive(F3ast(step=0.1), 3, 2)
    driver.task.round = 10
    driver.engine.run(Join(n_new=1))
    assert rates(driver) == pytest.approx([0.5 * 0.9**10] * 3 + [0.5])


def test_clients_with_equal_rates_are_drawn_at_random():
    driver = drive(F3ast(), 5, 2, samples=[1.0, 2.0, 3.0, 5.0, 7.0])
    driver.task.round = 6
    # m p = 14/18 at most: no start is capped
    assert cohorts_of(driver) == set(combinations(range(5), 2))


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
def test_the_first_report_of_a_round_may_be_overtaken(order, tmp_path):
    # b = 1/2, selected in rounds 1 to 3: at the start of round 4 they have added 1/2 + 1/4 + 1/8
    scheduler = overtaken(F3ast(step=0.5), order)
    assert scheduler.state.added.tolist() == [0.875]
    assert scheduler.state.as_of.tolist() == [4]
    scheduler.save(tmp_path / "s")
    assert Scheduler.load(tmp_path / "s").state.added.tolist() == [0.875]
