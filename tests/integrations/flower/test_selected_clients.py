"""Who the clients are, how long they took, and waiting for enough of them."""

import itertools
import logging

import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from fake_federation import federation, start
from fake_grid import FakeGrid, fleet
from flwr.serverapp.strategy import (
    FedAvg,
)

from bsfl import BSFL, Scheduler
from bsfl.errors import InvalidInput, NotEnoughClients

# --- identity -------------------------------------------------------------------------------------


def test_a_restarted_node_is_recognised():
    selected, grid = federation(fleet(1.0, 2.0, 3.0), cohort_size=3, deadline_s=10.0)

    class Restart(FakeGrid):
        """After the second round node 102 comes back as node 202; for a while both are listed."""

        def push_messages(self, messages):
            if self.sent.count(101) == 3 and 202 not in self.nodes:
                self.nodes[202] = self.nodes[102]
                self.online |= {202}
            if self.sent.count(101) == 4:
                self.online -= {102}
            return super().push_messages(messages)

    grid.__class__ = Restart
    start(selected, grid, rounds=6)
    assert selected.scheduler.clients == ["0", "1", "2"], "no stranger"
    assert grid.sent.count(202) >= 2
    assert grid.sent[-3:] != [101, 102, 103]


def test_nodes_that_cannot_say_who_they_are_go_by_node_id(caplog):
    caplog.set_level(logging.WARNING, logger="flwr")
    nodes = fleet(1.0, 1.0)
    nodes[102].answers_queries = False
    selected, grid = federation(nodes)
    start(selected, grid, rounds=2)
    assert selected.scheduler.clients == ["0", "node-102"]
    assert grid.queries == ["0", "1"], "not asked again"
    assert "1 node(s) do not answer a query with their partition-id" in caplog.text


def test_node_ids_are_free():
    selected, grid = federation(fleet(1.0, 1.0), identity="node-id")
    start(selected, grid)
    assert selected.scheduler.clients == ["node-101", "node-102"]
    assert grid.queries == []


def test_a_function_names_clients():
    selected, grid = federation(fleet(1.0, 1.0), identity=lambda node: f"phone {node.name}")
    start(selected, grid)
    assert selected.scheduler.clients == ["phone 0", "phone 1"]


def test_a_node_that_never_says_who_it_is_delays_only_the_first_round():
    selected, grid = federation(fleet(1.0, 1.0, 1.0))
    answer = grid._query
    grid._query = lambda node, m: (
        answer(node, m) if node.name != "2" else grid._answer(m, None, 1e9)
    )
    before = grid.clock.now
    start(selected, grid, rounds=3)
    assert set(selected.scheduler.clients) == {"0", "1"}
    assert 15.0 <= grid.clock.now - before <= 20.0


def test_answers_that_keep_coming_are_waited_for():
    """Each node says who it is ten seconds after the one before."""
    selected, grid = federation(fleet(1, 1, 1, 1, 1, 1))
    answer, turn = grid._answer, itertools.count(1)
    grid._answer = lambda m, reply, s: answer(
        m, reply, s if m.metadata.message_type == "train" else 10.0 * next(turn)
    )
    start(selected, grid)
    assert len(selected.scheduler.clients) == 6
    assert 60.0 <= grid.clock.now - 1000.0 <= 65.0


def test_newcomers_that_keep_coming_do_not_stop_a_fleet_that_is_large_enough():
    selected, grid = federation(fleet(1, 1, 1, 1, 1, 1), wait_s=25.0)
    answer, turn = grid._answer, itertools.count(1)
    grid._answer = lambda m, reply, s: answer(
        m, reply, s if m.metadata.message_type == "train" else 10.0 * next(turn)
    )
    start(selected, grid)
    assert len(selected.rounds[0].cohort) == 2


# --- latency --------------------------------------------------------------------------------------


def test_reported_durations_are_bounded():
    """The fastest round trip ever seen bounds from below, each one's own from above."""
    nodes = fleet(2.0, 4.0, 6.0, 8.0, 9.0)
    for node, claim in zip(nodes.values(), (1.5, 3.0, 1e-9, 1e9, float("nan")), strict=True):
        node.metrics = {"duration-s": claim}
    selected, grid = federation(nodes, cohort_size=5, latency="reported")
    start(selected, grid)
    expected = {"0": 2.0, "1": 3.0, "2": 2.0, "3": 8.0, "4": 9.0}
    assert selected.rounds[0].latencies == pytest.approx(expected, rel=0.03)


def test_without_a_report_the_round_trip_counts():
    selected, grid = federation(fleet(2.0, 4.0), latency="reported")
    start(selected, grid)
    assert selected.rounds[0].latencies["1"] == pytest.approx(4.0, abs=0.1)


def test_a_function_tells_latencies():
    selected, grid = federation(
        fleet(1.0, 1.0), latency=lambda client, reply, seconds: 100.0 + int(client)
    )
    start(selected, grid)
    assert selected.rounds[0].latencies == {"0": 100.0, "1": 101.0}
    selected, grid = federation(fleet(1.0, 1.0), latency=lambda client, reply, seconds: -1.0)
    with pytest.raises(InvalidInput, match=r"your latency function, for client '.': latency must"):
        start(selected, grid)


def test_losses_and_samples_reach_the_policy():
    scheduler = Scheduler(BSFL(generalization="loss"), cohort_size=2)
    selected, grid = federation(fleet(1.0, 1.0), scheduler=scheduler, loss_key="train_loss")
    start(selected, grid)
    assert scheduler.state.loss.tolist() == [0.5, 0.5]


# --- waiting --------------------------------------------------------------------------------------


def test_too_few_clients_is_an_error_not_a_wait_for_ever():
    selected, grid = federation(fleet(1.0), min_clients=3, wait_s=60.0)
    with pytest.raises(
        NotEnoughClients,
        match=r"waited 6\d s for 3 clients \(2 of them free\): 1 nodes are connected, "
        "1 have said who they are, 1 are free",
    ):
        start(selected, grid)


def test_nodes_that_share_a_name_are_told_apart_from_silent_ones():
    selected, grid = federation(fleet(1, 1, 1), identity=lambda node: "same")
    with pytest.raises(NotEnoughClients, match="3 have said who they are as 1 clients, 1 are free"):
        start(selected, grid)


@pytest.mark.parametrize("name", [None, ["a"], 1.5])
def test_a_function_must_name_clients(name):
    selected, grid = federation(fleet(1, 1), identity=lambda node: name)
    with pytest.raises(InvalidInput, match="a client id must be a str or an int, got"):
        start(selected, grid)


def test_clients_that_come_later_are_waited_for():
    selected, grid = federation(fleet(1.0, 1.0, 1.0), min_clients=3)

    class Slowly(FakeGrid):
        def get_node_ids(self):
            return [101, 102, 103][: int((self.clock.now - 1000.0) / 20.0)]

    grid.__class__ = Slowly
    start(selected, grid)
    assert 1060.0 < grid.clock.now < 1075.0
    assert set(selected.scheduler.clients) == {"0", "1", "2"}


def test_fewer_clients_than_the_cohort_if_allowed():
    selected, grid = federation(
        fleet(1.0, 1.0), cohort_size=5, min_clients=2, strategy=FedAvg(fraction_evaluate=0.0)
    )
    start(selected, grid)
    assert len(selected.rounds[0].cohort) == 2
