"""Which nodes may train, deadlines by the round, over-selection, and summaries of all of it."""

import csv
import logging

import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from fake_federation import federation, start
from fake_grid import RAISED, fleet
from flwr.serverapp.strategy import FedAvg

from bsfl import Scheduler, UniformRandom
from bsfl.errors import InvalidInput, NotEnoughClients
from bsfl.integrations.flower import write_latencies
from bsfl.studies.advice.log import read_log

# --- eligible nodes -------------------------------------------------------------------------------


def test_only_eligible_nodes_train_and_evaluate():
    selected, grid = federation(
        fleet(1, 1, 1, 1), eligible=lambda node: node.name != "2", strategy=FedAvg()
    )
    start(selected, grid, rounds=6)
    assert set(selected.scheduler.clients) == {"0", "1", "3"}
    assert 103 not in grid.sent


def test_eligibility_is_checked_before_every_round():
    allowed = {"0", "1"}
    selected, grid = federation(fleet(1, 1, 1), eligible=lambda node: node.name in allowed)
    start(selected, grid)
    allowed ^= {"0", "2"}
    start(selected, grid)
    assert [set(r.cohort) for r in selected.rounds] == [{"0", "1"}, {"1", "2"}]


def test_too_few_eligible_nodes_are_counted():
    selected, grid = federation(fleet(1, 1, 1), eligible=lambda node: node.name == "0", wait_s=5.0)
    with pytest.raises(
        NotEnoughClients, match="3 nodes are connected, .* 1 are eligible, 1 are free"
    ):
        start(selected, grid)


def test_a_function_that_fails_for_a_node_leaves_it_out(caplog):
    selected, grid = federation(fleet(1, 1, 1), eligible=lambda node: 1 / int(node.name) > 0)
    start(selected, grid, rounds=3)
    assert 101 not in grid.sent
    assert caplog.text.count("your eligible function failed for node 101") == 1


# --- deadlines and invitations --------------------------------------------------------------------


def test_a_deadline_by_the_round():
    selected, grid = federation(fleet(2.0, 7.0), deadline_s=lambda t: 4.0 * t)
    start(selected, grid, rounds=2)
    assert selected.rounds[0].duration_s == pytest.approx(4.0, abs=0.1)
    assert [r.timeouts for r in selected.rounds] == [("1",), ()]
    assert grid.ttls[0] == 8.0, "twice the deadline of its own round"


def test_a_round_may_have_no_deadline():
    selected, grid = federation(fleet(2.0, 9.0), deadline_s=lambda t: None if t == 1 else 5.0)
    start(selected, grid, rounds=2)
    assert [len(r.kept) for r in selected.rounds] == [2, 1]


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), "soon"])
def test_a_deadline_function_must_return_seconds(seconds):
    with pytest.raises(InvalidInput, match="round 1: deadline_s must be"):
        federation(fleet(1, 1), deadline_s=lambda t: seconds)


def test_min_responses_need_a_deadline_in_every_round():
    with pytest.raises(InvalidInput, match="min_responses=1 needs a deadline_s"):
        federation(fleet(1, 1), min_responses=1, deadline_s=lambda t: None)


@pytest.mark.parametrize("place", ["Scheduler", "Selected"])
def test_as_many_are_invited_as_it_takes(place):
    auto = {"over_selection": "auto"}
    scheduler = Scheduler(UniformRandom(), cohort_size=4, **(auto if place == "Scheduler" else {}))
    selected, grid = federation(
        fleet(*[1.0] * 12),
        scheduler=scheduler,
        deadline_s=10.0,
        **(auto if place == "Selected" else {}),
    )
    start(selected, grid, rounds=2)  # no client can have been late twice before
    assert selected.limits.max_invited == 8
    for played in selected.rounds:
        assert 6 <= len(played.cohort) <= 8, "at least 1.3 and at most twice as many"
        assert len(played.kept) == 4
    few, grid = federation(fleet(1.0, 1.0), cohort_size=4, min_clients=2, over_selection="auto")
    start(few, grid)
    assert len(few.rounds[0].kept) == 2


# --- summaries -------------------------------------------------------------------------------------


def test_a_line_names_the_slowest_client_and_those_without_a_reply(caplog):
    caplog.set_level(logging.INFO, logger="flwr")
    nodes = fleet(1.0, 2.0, None, 1.0)
    nodes[104].fails = RAISED
    selected, grid = federation(nodes, cohort_size=4, deadline_s=10.0)
    start(selected, grid)
    line = selected.rounds[0].line()
    assert line in caplog.messages
    assert "slowest '1' after 2.0 s, 1 timed out ('2'), 1 failed ('3')" in line


def test_a_line_names_no_more_than_five():
    selected, grid = federation(fleet(1.0, *[None] * 7), cohort_size=8, deadline_s=10.0)
    start(selected, grid)
    assert "7 timed out ('1', '2', '3', '4', '5' and 2 more)" in selected.rounds[0].line()


def test_what_each_client_did():
    nodes = fleet(1.0, 3.0, None, 1.0)
    nodes[104].fails = RAISED
    selected, grid = federation(nodes, cohort_size=4, deadline_s=10.0)
    start(selected, grid)
    done = selected.participation
    assert set(done) == {"0", "1", "2", "3"}
    assert [done[c].n_invited for c in "0123"] == [1, 1, 1, 1]
    assert [done[c].n_kept for c in "0123"] == [1, 1, 0, 0]
    assert (done["2"].n_timeouts, done["3"].n_failed) == (1, 1)
    assert done["1"].mean_s == pytest.approx(3.0, abs=0.1)
    assert done["2"].mean_s is None


def test_latencies_are_written_as_the_advisor_reads_them(tmp_path):
    nodes = fleet(1.0, 3.0, 60.0)
    selected, grid = federation(nodes, cohort_size=3, deadline_s=10.0)
    start(selected, grid)
    write_latencies(tmp_path / "log.csv", selected.rounds)
    with (tmp_path / "log.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["client", "latency_s", "outcome", "round"]
    written = sorted((client, round(float(s)), how, t) for client, s, how, t in rows)
    assert written == [("0", 1, "ok", "1"), ("1", 3, "ok", "1"), ("2", 10, "timeout", "1")]
    log = read_log(tmp_path / "log.csv", ids="text")
    assert (log.unresponsive(), log.deadline_s) == (["2"], pytest.approx(10.0, abs=0.2))


def test_a_relative_state_path_does_not_follow_the_working_folder(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="flwr")
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    selected, grid = federation(fleet(1.0, 1.0), state_path="phones.bsfl")
    monkeypatch.chdir(tmp_path / "there")
    start(selected, grid)
    assert (tmp_path / "here" / "phones.bsfl").is_file()
    assert f"saved in {tmp_path / 'here' / 'phones.bsfl'}" in caplog.text
