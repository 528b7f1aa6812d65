"""What a log says about its clients: censored latencies, lost responses, a warm start."""

import numpy as np
import pytest

from bsfl import Pace, Scheduler
from bsfl.advisor import read_log, warm_start
from bsfl.advisor.log import uncensored

K, M = 24, 3


def test_a_censored_latency_is_distributed_over_the_longer_ones():
    # by hand: 2 s is censored between 1 and {5, 9}; each of these two gets half of both
    latencies, missed = uncensored(np.array([1.0, 5.0, 9.0]), np.array([2.0, 2.0]))
    assert (latencies.tolist(), missed) == ([1.0, 5.0, 5.0, 9.0, 9.0], 0.0)
    assert uncensored(np.array([]), np.array([60.0, 60.0]))[1] == 2.0


def test_timeouts_and_failures_are_lost_responses(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("client,latency,status\na,1.5,ok\nb,60,timeout\nb,,timeout\nc,,failed\n")
    posterior = read_log(path).posterior()
    assert (posterior.lost - posterior.lost.min()).tolist() == [0.0, 2.0, 1.0]


def test_a_warm_start_knows_what_the_log_knows(log_file, tmp_path):
    log = read_log(log_file)
    warm_start(log, Pace(tau_max=60.0), cohort_size=M, over_selection=1.3).save(tmp_path / "s.bsfl")
    scheduler = Scheduler.load(tmp_path / "s.bsfl")
    rows = {row["client"]: row for row in scheduler.table()}
    for k in range(K - 1):
        own, row = log.latency_s[log.client == k], rows[f"<i>c{k}"]
        assert row["latency_s"] == pytest.approx(np.exp(np.log(own).mean()), rel=1e-3)
        # no client has a participation deficit
        assert (row["participations"], row["participation_ratio"]) == (6, pytest.approx(1.0))
    assert rows[f"<i>c{K - 1}"]["timeouts"] == 6
    cohort = scheduler.select(available=log.clients)
    slowest = max(rows.values(), key=lambda row: row["latency_s"] or 0.0)["client"]
    assert (len(cohort), slowest in cohort) == (4, False)
