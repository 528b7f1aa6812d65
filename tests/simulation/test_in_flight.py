"""When rounds end on the virtual clock, and what is reported then."""

from types import SimpleNamespace

import numpy as np
import pytest

from bsfl.simulation.in_flight import InFlight
from bsfl.types import TIMEOUT, RoundPlan


def run(cohort, latencies, **settings):
    """Return the duration of a round, its timeouts and report, and the clients still in flight."""
    settings = {"target_responses": max(len(cohort), 1), "deadline_s": 60.0} | settings
    clients = np.array(cohort, dtype=int)
    opened, in_flight = SimpleNamespace(round=1, cohort=clients, now_s=0.0), InFlight()
    in_flight.add(opened, np.array(latencies)[clients], 0, None)
    duration_s, [responses] = in_flight.end_round(opened, RoundPlan(**settings))
    report = responses.report
    n_timeouts = np.count_nonzero(report.outcome == TIMEOUT)
    return duration_s, n_timeouts, report, in_flight.rows["client"].tolist()


def test_a_round_lasts_as_long_as_its_slowest_member_up_to_the_deadline():
    latencies = [1.0, 5.0, 70.0, np.inf]
    assert run([0, 1], latencies)[:2] == (5.0, 0)
    duration_s, n_timeouts, report, _ = run([1, 2, 3], latencies)
    assert (duration_s, n_timeouts) == (60.0, 2)
    assert report.latency_s.tolist() == [5.0, 60.0, 60.0]
    assert report.outcome.tolist() == [0, 1, 1]
    assert run([], latencies)[0] == 60.0, "waiting for clients to come takes time, too"
    _, _, report, _ = run([0, 1, 2], [60.0, np.nextafter(60.0, 61.0), 2.0])
    assert report.outcome.tolist() == [0, 1, 0], "a response at the deadline is in time"


def test_over_selection_ends_the_round_at_the_last_target_response():
    duration_s, n_timeouts, report, pending = run([0, 1, 2], [9.0, 3.0, 5.0], target_responses=2)
    assert (duration_s, n_timeouts) == (5.0, 0)
    assert report.clients.tolist() == [1, 2]
    assert pending == [0], "not overdue yet"
    assert run([0, 1, 2], [5.0, 3.0, 5.0], target_responses=2)[:2] == (5.0, 0), "a tie"


@pytest.mark.parametrize(
    ("latencies", "seconds"),
    [
        ([1.0, 80.0, 80.0, 90.0], 80.0),
        ([1.0, 130.0, 99.0], 99.0),
        ([1.0, 130.0], 120.0),  # the invitations expire
    ],
)
def test_min_responses_may_come_after_the_deadline(latencies, seconds):
    assert run(range(len(latencies)), latencies, min_responses=2)[:2] == (seconds, 1)
