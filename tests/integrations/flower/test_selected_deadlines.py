"""When a round ends: deadlines, stragglers, over-selection and failures."""

import itertools

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from fake_federation import Spy, federation, start
from fake_grid import GONE, RAISED, fleet
from flwr.serverapp.strategy import (
    FedAvg,
)

from bsfl import BSFL, Scheduler, UniformRandom
from bsfl.integrations.flower import Selected

# --- deadlines ------------------------------------------------------------------------------------


def test_the_deadline_ends_a_round():
    selected, grid = federation(fleet(2.0, None), deadline_s=10.0)
    result = start(selected, grid)
    (only,) = selected.rounds
    assert only.duration_s == pytest.approx(10.0, abs=0.05)
    assert (only.kept, only.timeouts, only.failed) == (("0",), ("1",), ())
    assert selected.scheduler.reported == [("0", "ok", 2.0), ("1", "timeout", 10.0)]
    assert selected.scheduler.pending() == []
    (opened,) = selected.scheduler.journal.of_kind("opened")
    (closed,) = selected.scheduler.journal.of_kind("closed")
    assert (opened["deadline_s"], closed["aggregated"]) == (10.0, ["0"])
    assert result.train_metrics_clientapp[1]["bsfl-timeouts"] == 1
    assert np.allclose(result.arrays["w"].numpy(), 0.0)


def test_the_deadline_is_the_policys_tau_max_by_default():
    scheduler = Spy(BSFL(tau_max=7.0), cohort_size=2)
    selected, grid = federation(fleet(2.0, None), scheduler=scheduler)
    start(selected, grid)
    assert selected.rounds[0].duration_s == pytest.approx(7.0, abs=0.05)


def test_without_a_deadline_the_timeout_of_start_ends_a_round():
    selected, grid = federation(fleet(2.0, None))
    start(selected, grid, timeout=20.0)
    assert selected.rounds[0].duration_s == pytest.approx(20.0, abs=0.2)
    assert selected.rounds[0].timeouts == ("1",)


def test_training_continues_after_a_round_without_replies():
    nodes = fleet(itertools.chain([None], itertools.repeat(1.0)), itertools.repeat(None))
    selected, grid = federation(nodes, deadline_s=5.0)
    result = start(selected, grid, rounds=2)
    assert [r.kept for r in selected.rounds] == [(), ("0",)]
    assert result.train_metrics_clientapp[1]["bsfl-slowest-s"] == pytest.approx(5.0, abs=0.05)
    assert "no response" in selected.rounds[0].line()


def test_without_a_deadline_unresponsive_clients_are_waited_for_until_they_expire():
    silent_once = [itertools.chain([None], itertools.repeat(1.0)) for _ in range(2)]
    selected, grid = federation(fleet(*silent_once))
    start(selected, grid, rounds=2, timeout=400.0)
    assert [len(r.kept) for r in selected.rounds] == [0, 2]
    assert grid.clock.now == pytest.approx(1000.0 + 800.0 + 1.0, abs=15.0), "twice the timeout"


def test_a_round_needs_one_free_client_even_with_min_train_nodes_0():
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=0)
    selected, grid = federation(fleet(99.0, 99.0), strategy=strategy, deadline_s=5.0)
    start(selected, grid, rounds=2)
    assert [len(r.cohort) for r in selected.rounds] == [2, 2]


def test_messages_live_as_long_as_stragglers_may_reply():
    selected, grid = federation(fleet(1, 1), deadline_s=10.0)
    start(selected, grid)
    assert grid.ttls == [20.0, 20.0]
    selected, grid = federation(fleet(1, 1), deadline_s=10.0, lifetime_s=12.0)
    start(selected, grid)
    assert grid.ttls == [12.0, 12.0]


def test_min_responses_are_waited_for_beyond_the_deadline():
    selected, grid = federation(
        fleet(1.0, 15.0, None), cohort_size=3, deadline_s=10.0, min_responses=2
    )
    start(selected, grid)
    (only,) = selected.rounds
    assert only.duration_s == pytest.approx(15.0, abs=0.4)
    assert (set(only.kept), only.timeouts) == ({"0", "1"}, ("2",))


def test_min_responses_that_never_come_are_waited_for_until_messages_expire():
    selected, grid = federation(
        fleet(1.0, None, None), cohort_size=3, deadline_s=10.0, min_responses=2
    )
    start(selected, grid)
    assert selected.rounds[0].duration_s == pytest.approx(20.0, abs=0.5), "the messages expired"
    assert sorted(selected.rounds[0].timeouts) == ["1", "2"]


# --- stragglers -----------------------------------------------------------------------------------


def test_a_straggler_is_busy_until_it_replies():
    nodes = fleet(1.0, 1.0, itertools.chain([17.0], itertools.repeat(1.0)))
    selected, grid = federation(nodes, cohort_size=3, deadline_s=10.0)
    start(selected, grid, rounds=12)
    cohorts = [set(r.cohort) for r in selected.rounds]
    assert cohorts[0] == {"0", "1", "2"}
    assert cohorts[1] == {"0", "1"}, "busy until second 17"
    back = cohorts.index({"0", "1", "2"}, 1)
    assert 10.0 + sum(r.duration_s for r in selected.rounds[1:back]) == pytest.approx(17.0, abs=1.5)
    assert [o for _, o, _ in selected.scheduler.reported].count("timeout") == 1
    assert sum(r.n_late for r in selected.rounds) == 1


def test_a_straggler_is_free_when_its_message_expires():
    nodes = fleet(1.0, 1.0, itertools.chain([None], itertools.repeat(1.0)))
    selected, grid = federation(nodes, cohort_size=3, deadline_s=10.0)
    start(selected, grid, rounds=14)
    busy = [set(r.cohort) == {"0", "1"} for r in selected.rounds]
    assert 8 <= sum(busy) <= 11, "from second 10 to second 20, rounds of one second"
    assert busy == [False, *[True] * sum(busy), *[False] * (13 - sum(busy))]


def test_over_selection_keeps_the_first_replies():
    scheduler = Spy(UniformRandom(), cohort_size=2)
    selected, grid = federation(
        fleet(1.0, 2.0, 8.0), scheduler=scheduler, over_selection=1.5, deadline_s=30.0
    )
    start(selected, grid)
    (first,) = selected.rounds
    assert len(first.cohort) == 3
    assert first.kept == ("0", "1")
    assert first.timeouts == ()
    assert first.duration_s == pytest.approx(2.0, abs=0.1)
    assert scheduler.in_flight == ["2"]


def test_late_replies_of_over_selected_clients_are_learned_from():
    scheduler = Spy(UniformRandom(), cohort_size=2)
    nodes = fleet(1.0, 2.0, itertools.chain([8.0], itertools.repeat(2.5)))
    selected, grid = federation(nodes, scheduler=scheduler, over_selection=1.5, deadline_s=30.0)
    start(selected, grid, rounds=6)
    assert ("2", "ok", 8.0) in [(c, o, round(s)) for c, o, s in scheduler.reported]
    assert not any(outcome == "timeout" for _, outcome, _ in scheduler.reported)
    assert (1, "2", "ok", True, True) in scheduler.journal.results(), "late, and dropped"
    row = scheduler.client("2")
    assert row["late"] >= 1
    assert row["participations"] == sum("2" in r.kept for r in selected.rounds)
    assert sum(r.n_late for r in selected.rounds) >= 1
    assert "2" not in selected.rounds[1].cohort, "busy with the first round"
    assert any("2" in r.cohort for r in selected.rounds[2:])


def test_over_selected_clients_that_never_reply_time_out_later():
    scheduler = Spy(UniformRandom(), cohort_size=2)
    selected, grid = federation(
        fleet(1.0, 2.0, itertools.repeat(None)),
        scheduler=scheduler,
        over_selection=1.5,
        deadline_s=5.0,
    )
    start(selected, grid, rounds=4)
    timeouts = [(k, s) for k, outcome, s in scheduler.reported if outcome == "timeout"]
    assert timeouts[0][0] == "2"
    assert timeouts[0][1] >= 5.0


@pytest.mark.parametrize(
    ("over_selection", "m", "n"), [(1.2, 10, 12), (1.1, 10, 11), (1.3, 2, 3), (1, 4, 4)]
)
def test_how_many_are_invited(over_selection, m, n):
    scheduler = Scheduler(UniformRandom(), cohort_size=m)
    assert Selected(FedAvg(), scheduler, over_selection=over_selection).limits.max_invited == n


def test_over_selection_of_few_clients_invites_all_of_them():
    selected, grid = federation(fleet(1, 1), over_selection=3.0)
    start(selected, grid)
    assert len(selected.rounds[0].cohort) == 2


# --- failures -------------------------------------------------------------------------------------


def test_a_client_that_fails():
    nodes = fleet(1.0, 2.0)
    nodes[102].fails = RAISED
    selected, grid = federation(nodes, deadline_s=60.0)
    start(selected, grid)
    (only,) = selected.rounds
    assert (only.kept, only.failed, only.timeouts) == (("0",), ("1",), ())
    assert only.duration_s == pytest.approx(2.0, abs=0.1), "no client is left to wait for"
    assert selected.scheduler.reported[1][:2] == ("1", "failed")


@pytest.mark.parametrize(("fails", "outcome"), [(GONE, "failed"), (None, "timeout")])
def test_the_superlink_replies_for_clients_that_are_gone(fails, outcome):
    """Such replies come from node 1; only the message that they reply to shows which client is meant."""
    nodes = fleet(1.0, 3.0 if fails else None)
    nodes[102].fails = fails
    selected, grid = federation(nodes, deadline_s=60.0, lifetime_s=60.0)
    start(selected, grid)
    assert selected.scheduler.reported[-1][:2] == ("1", outcome)


def test_a_message_that_could_not_be_sent():
    selected, grid = federation(fleet(1.0, 1.0), identity="node-id")
    grid.refused = {102}
    start(selected, grid)
    assert selected.rounds[0].failed == ("node-102",)
    assert selected.scheduler.in_flight == []
