"""When rounds end on the virtual clock, and what is reported then."""

from types import SimpleNamespace

import numpy as np

from bsfl.simulation.in_flight import InFlight
from bsfl.types import TIMEOUT, RoundPlan


def run(*cohort, latencies, **settings):
    """Return the duration of a round, its report, and the clients that are still pending."""
    settings = {"target_responses": max(len(cohort), 1), "deadline_s": 60.0} | settings
    plan, clients = RoundPlan(**settings), np.array(cohort, dtype=int)
    latency_s = np.array(latencies)[clients]
    opened, in_flight = SimpleNamespace(round=1, cohort=clients, now_s=0.0), InFlight()
    in_flight.add(opened, latency_s, 0, None)
    duration_s, [responses] = in_flight.end_round(opened, plan)
    return duration_s, responses.report, in_flight.rows["client"].tolist()


def n_timeouts(report):
    return np.count_nonzero(report.outcome == TIMEOUT)


def test_a_round_lasts_as_long_as_its_slowest_member_up_to_the_deadline():
    latencies = [1.0, 5.0, 70.0, np.inf]
    duration_s, report, _ = run(0, 1, latencies=latencies)
    assert (duration_s, n_timeouts(report)) == (5.0, 0)
    duration_s, report, _ = run(1, 2, 3, latencies=latencies)
    assert (duration_s, n_timeouts(report)) == (60.0, 2)
    assert report.latency_s.tolist() == [5.0, 60.0, 60.0]
    assert report.outcome.tolist() == [0, 1, 1]
    duration_s, _, _ = run(latencies=latencies)
    assert duration_s == 60.0, "waiting for clients to come takes time, too"


def test_responses_at_the_deadline_are_in_time():
    latencies = [60.0, 60.0, np.nextafter(60.0, 61.0), 2.0]
    duration_s, report, _ = run(0, 1, 2, 3, latencies=latencies)
    assert (duration_s, n_timeouts(report)) == (60.0, 1)
    assert report.outcome.tolist() == [0, 0, 1, 0]


def test_rounds_on_the_virtual_clock_follow_the_plan():
    """Over-selection ends at the m-th response; min_responses may come after the deadline."""
    duration_s, report, pending = run(0, 1, 2, latencies=[9.0, 3.0, 5.0], target_responses=2)
    assert (duration_s, n_timeouts(report)) == (5.0, 0)
    assert report.clients.tolist() == [1, 2]
    assert pending == [0], "not overdue yet"
    duration_s, report, _ = run(0, 1, 2, latencies=[5.0, 3.0, 5.0], target_responses=2)
    assert (duration_s, n_timeouts(report)) == (5.0, 0), "a tie"
    for latencies, seconds in (([1.0, 80.0, 80.0, 90.0], 80.0), ([1.0, 130.0, 99.0], 99.0)):
        everyone = range(len(latencies))
        duration_s, report, _ = run(*everyone, latencies=latencies, min_responses=2)
        assert (duration_s, n_timeouts(report)) == (seconds, 1)
    duration_s, report, _ = run(0, 1, latencies=[1.0, 130.0], min_responses=2)
    assert (duration_s, n_timeouts(report)) == (120.0, 1), "the invitations expire"
