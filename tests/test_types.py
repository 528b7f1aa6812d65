"""The records that cross module borders."""

import numpy as np
import pytest

from bsfl import Cohort, Observation, RoundPlan, RoundRecord, RoundReport
from bsfl.errors import InvalidInput
from bsfl.types import CHUNK, OUTCOMES, in_chunks, max_invited, pick


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"latency_s": 1.0, "outcome": "slow"},
            "outcome must be one of ok, timeout, failed, got 'slow'",
        ),
        ({"latency_s": 1.0, "outcome": "late"}, "outcome must be one of"),
        ({}, "latency_s is required when the outcome is 'ok', got None"),
        ({"outcome": "timeout"}, "latency_s is required when the outcome is 'timeout', got None"),
        ({"latency_s": 0.0}, "latency_s must be a finite number above 0"),
        ({"latency_s": -1.0, "outcome": "failed"}, "latency_s"),
        ({"latency_s": 1e13}, "latency_s must be between"),
        ({"latency_s": 1.0, "loss": float("nan")}, "loss must be a finite number"),
        ({"latency_s": 1.0, "loss": 1e13}, "loss must be between"),
        ({"latency_s": 1.0, "samples": 0}, "samples must be a whole number of at least 1, got 0"),
        ({"latency_s": 1.0, "samples": 1.5}, "samples must be a whole number"),
    ],
)
def test_impossible_observations(settings, message):
    with pytest.raises(InvalidInput, match=message):
        Observation(**settings)
    Observation(outcome="failed")


def test_a_report_holds_observations_as_columns():
    report = RoundReport.of(
        {
            4: Observation(latency_s=2.5, loss=0.5, samples=10),
            1: Observation(latency_s=60.0, outcome="timeout"),
            7: Observation(outcome="failed"),
        },
        invited=[1, 4, 7, 9],
        round=3,
        staleness=2,
    )
    assert (report.round, report.staleness, report.dropped) == (3, 2, False)
    assert report.clients.tolist() == [4, 1, 7]
    assert [OUTCOMES[i] for i in report.outcome] == ["ok", "timeout", "failed"]
    assert report.latency_s.tolist() == [2.5, 60.0, pytest.approx(np.nan, nan_ok=True)]
    assert (
        np.isnan(report.loss).tolist() == np.isnan(report.samples).tolist() == [False, True, True]
    )
    assert report.invited.tolist() == [1, 4, 7, 9]
    assert report.responded.tolist() == report.usable.tolist() == [True, False, False]
    late = RoundReport.of({4: Observation(latency_s=2.5)}, dropped=True)
    assert (late.responded.tolist(), late.usable.tolist()) == ([True], [False])


def test_a_cohort_is_a_list_that_knows_its_round():
    cohort = Cohort(["ann", "bob"], round=3, n_invited=4, target_responses=2, pending=["bob"])
    assert cohort == ["ann", "bob"]
    assert (cohort.round, cohort.n_invited, cohort.target_responses) == (3, 4, 2)
    assert (cohort.pending, cohort.work, cohort.deadline_s) == (["bob"], {}, None)


def test_a_record_is_short_if_fewer_clients_were_available_than_wanted():
    def short(n_available):
        record = RoundRecord(round=1, cohort=("a",), n_invited=3, n_available=n_available)
        return record.is_short

    assert [short(n) for n in (2, 3, 4)] == [True, False, False]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"target_responses": 0}, "target_responses"),
        ({"over_selection": 0.5}, "over_selection"),
        ({"over_selection": "some"}, "over_selection"),
        ({"late": "keep"}, "late"),
        ({"deadline_s": 0.0}, "deadline_s"),
        ({"min_responses": 3}, "min_responses=3 needs a deadline_s"),
        ({"min_responses": 11, "deadline_s": 9.0}, "min_responses must not exceed"),
        ({"max_staleness": -1}, "max_staleness"),
        ({"lifetime_s": 5.0, "deadline_s": 9.0}, "lifetime_s"),
    ],
)
def test_impossible_plans(settings, field):
    with pytest.raises(InvalidInput, match=field):
        RoundPlan(**{"target_responses": 10, **settings})


def test_the_times_of_a_plan():
    plan = RoundPlan(target_responses=10, deadline_s=60.0, lifetime_s=300.0, min_responses=5)
    assert (plan.due_s(), plan.due_s(20.0), plan.expiry_s(), plan.limit_s()) == (
        60.0, 20.0, 300.0, 300.0,
    )  # fmt: skip
    assert plan.limit_s(90.0) == 90.0
    unlimited = RoundPlan(target_responses=10)
    assert (unlimited.due_s(), unlimited.expiry_s(), unlimited.limit_s(7.0)) == (
        np.inf, np.inf, 7.0,
    )  # fmt: skip


def test_the_most_that_a_round_invites():
    assert [max_invited(x, 10) for x in (1.0, 1.01, 1.3, "auto")] == [10, 11, 13, 20]
    assert max_invited(1.1, 30) == 33, "and not 34 by a rounding error"


def test_chunks_of_a_large_population_add_up_to_the_whole():
    x, y = np.arange(2.0 * CHUNK + 1), np.arange(2 * CHUNK + 1)[::-1]
    sizes = []

    def compute(x, y):
        sizes.append(len(x))
        return np.sqrt(x) + y

    assert np.array_equal(in_chunks(compute, x, y), np.sqrt(x) + y)
    assert sizes == [CHUNK, CHUNK, 1]


def test_all_rows_are_picked_without_a_copy():
    numbers = np.arange(5.0)
    assert pick(numbers, np.arange(5)) is numbers
    assert pick(numbers, np.array([1, 3])).tolist() == [1.0, 3.0]
