"""The records that cross module borders."""

import numpy as np
import pytest

from bsfl import Observation, RoundPlan, RoundRecord, RoundReport
from bsfl.errors import InvalidInput
from bsfl.types import CHUNK, OUTCOMES, in_chunks, max_invited, pick


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"latency_s": 1.0, "outcome": "slow"}, "outcome must be one of ok, .*, got 'slow'"),
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


def test_a_record_is_short_if_fewer_clients_were_available_than_wanted():
    def short(n_available):
        record = RoundRecord(round=1, cohort=("a",), n_invited=3, n_available=n_available)
        return record.is_short

    assert [short(n) for n in (2, 3, 4)] == [True, False, False]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"target_responses": 0}, "target_responses .* got 0"),
        ({"over_selection": 0.9}, "over_selection .* got 0.9"),
        ({"over_selection": "many"}, "over_selection .* got 'many'"),
        ({"late": "keep"}, "late .* got 'keep'"),
        ({"min_responses": -1}, "min_responses .* got -1"),
        ({"min_responses": 5, "deadline_s": 1.0}, "min_responses must not exceed .* got 5"),
        ({"min_responses": 2}, "min_responses=2 needs a deadline_s"),
        ({"deadline_s": 0.0}, "deadline_s .* got 0.0"),
        ({"lifetime_s": -1.0}, "lifetime_s .* got -1.0"),
        ({"deadline_s": 9.0, "lifetime_s": 8.0}, "lifetime_s .* at least 9, got 8.0"),
        ({"max_staleness": -1}, "max_staleness .* got -1"),
    ],
)
def test_impossible_plans(settings, field):
    with pytest.raises(InvalidInput, match=field):
        RoundPlan(**({"target_responses": 4} | settings))


@pytest.mark.parametrize(
    ("plan", "timeout_s", "times"),
    [
        ({"deadline_s": 10.0}, None, (10.0, 20.0, 20.0)),
        ({"deadline_s": 10.0}, 15.0, (10.0, 20.0, 15.0)),
        ({"deadline_s": 10.0}, 6.0, (6.0, 12.0, 6.0)),
        ({"deadline_s": 10.0, "lifetime_s": 12.0}, None, (10.0, 12.0, 12.0)),
        ({"lifetime_s": 12.0}, 30.0, (30.0, 30.0, 30.0)),
        ({"max_wait_s": 100.0}, None, (100.0, 200.0, 200.0)),
        ({}, None, (np.inf, np.inf, np.inf)),
        ({}, 7.0, (7.0, 14.0, 7.0)),
    ],
)
def test_when_responses_are_due_and_invitations_expire(plan, timeout_s, times):
    """The sooner of deadline and timeout counts, and a lifetime unless they are later."""
    plan = RoundPlan(target_responses=4, **plan)
    assert (plan.due_s(timeout_s), plan.expiry_s(timeout_s), plan.limit_s(timeout_s)) == times


def test_the_most_that_a_round_invites():
    assert [max_invited(x, 10) for x in (1, 1.01, 1.2, "auto")] == [10, 11, 12, 20]
    assert max_invited(1.1, 30) == 33, "and not 34 by a rounding error"
    assert RoundPlan(target_responses=2, over_selection=1.3).max_invited == 3


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
