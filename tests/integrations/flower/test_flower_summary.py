"""Summaries: of rounds, of clients, and all latencies as a file."""

import csv

import pytest
from fake_federation import train
from fake_grid import RAISED, fleet

from bsfl.advisor import read_log
from bsfl.integrations.flower import Participation, write_latencies


def test_summaries_of_a_round_and_of_each_client():
    nodes = fleet(1.0, 3.0, None, 1.0)
    nodes[104].fails = RAISED
    run = train(nodes, cohort_size=4, deadline_s=10.0)
    line = run.rounds[0].line()
    assert "slowest '1' after 3.0 s, 1 timed out ('2'), 1 failed ('3')" in line
    fast, slow = (run.rounds[0].latencies[client] for client in "01")
    assert run.strategy.participation == {
        "0": Participation(n_invited=1, n_kept=1, latencies_s=[fast]),
        "1": Participation(n_invited=1, n_kept=1, latencies_s=[slow]),
        "2": Participation(n_invited=1, n_timeouts=1),
        "3": Participation(n_invited=1, n_failed=1),
    }
    assert run.start().strategy.participation["1"].mean_s == pytest.approx(3.0, abs=0.1)
    assert run.strategy.participation["2"].mean_s is None


def test_a_line_names_no_more_than_five():
    run = train(fleet(1.0, *[None] * 7), cohort_size=8, deadline_s=10.0)
    assert "7 timed out ('1', '2', '3', '4', '5' and 2 more)" in run.rounds[0].line()


def test_latencies_are_written_as_the_advisor_reads_them(tmp_path):
    path, nodes = tmp_path / "log.csv", fleet(1.0, 3.0, 60.0, 1.0)
    nodes[104].fails = RAISED
    write_latencies(path, train(nodes, cohort_size=4, deadline_s=10.0).rounds)
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["client", "latency_s", "outcome", "round"]
    written = sorted((client, s and round(float(s)), how, t) for client, s, how, t in rows)
    assert written == [
        ("0", 1, "ok", "1"),
        ("1", 3, "ok", "1"),
        ("2", 10, "timeout", "1"),
        ("3", "", "failed", "1"),
    ]
    log = read_log(path, ids="text")
    assert "2" in log.unresponsive()
    assert log.deadline_s == pytest.approx(10.0, abs=0.2)
