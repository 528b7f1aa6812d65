"""Which nodes may train: those that are connected, eligible and not busy; clients come and go."""

import logging

import pytest
from fake_federation import train
from fake_grid import FakeGrid, fleet
from flwr.serverapp.strategy import FedAvg

from bsfl.errors import NotEnoughClients


def test_too_few_clients_is_an_error_not_a_wait_for_ever():
    with pytest.raises(
        NotEnoughClients,
        match=r"waited 6\d s .* for 3 clients .* at least 2 must be free: 1 nodes are connected",
    ):
        train(fleet(1.0), min_clients=3, wait_s=60.0)


class Slowly(FakeGrid):
    """A node connects every twenty seconds."""

    def get_node_ids(self):
        return [101, 102, 103][: int((self.clock.now - 1000.0) / 20.0)]


def test_clients_that_come_later_are_waited_for():
    run = train(fleet(1.0, 1.0, 1.0), min_clients=3, grid=Slowly)
    assert 60.0 < run.seconds < 75.0
    assert set(run.clients) == {"0", "1", "2"}


@pytest.mark.parametrize("over_selection", [1.0, "auto"])
def test_fewer_clients_than_the_cohort_if_allowed(over_selection):
    nodes = fleet(1.0, 1.0)
    run = train(nodes, cohort_size=5, min_clients=2, over_selection=over_selection)
    assert len(run.rounds[0].kept) == 2


def test_only_nodes_that_are_eligible_before_a_round_train_and_evaluate():
    allowed = {"0", "1"}
    options = {"eligible": lambda node: node.name in allowed, "wait_s": 5.0}
    run = train(fleet(1, 1, 1, 1), rounds=3, strategy=FedAvg(), **options)
    allowed ^= {"0", "2"}
    run.start(3)
    assert run.cohorts == [*[["0", "1"]] * 3, *[["1", "2"]] * 3]
    assert set(run.clients) == {"0", "1", "2"}
    assert 104 not in run.grid.sent
    allowed.clear()
    with pytest.raises(NotEnoughClients, match="4 nodes .* 0 are eligible, 0 are free"):
        run.start()


def test_a_function_that_fails_for_a_node_leaves_it_out(caplog):
    run = train(fleet(1, 1, 1), rounds=3, eligible=lambda node: 1 / int(node.name) > 0)
    assert 101 not in run.grid.sent
    assert caplog.text.count("your eligible function failed for node 101") == 1


def test_a_client_leaves_after_a_long_absence_and_is_remembered():
    run = train(fleet(1.0, 1.0, 1.0), rounds=5, leave_after_s=10.0)
    run.grid.online -= {103}
    assert run.start(5).clients == ["0", "1", "2"], "five seconds are not long"
    assert run.start(8).clients == ["0", "1"]
    run.grid.online |= {103}
    assert run.start().clients == ["0", "1", "2"], "back again"


def test_without_leave_after_s_no_client_leaves():
    run = train(fleet(1.0, 1.0, 1.0), leave_after_s=None)
    run.grid.online -= {103}
    run.grid.clock.now += 1e6
    assert run.start().clients == ["0", "1", "2"]


def test_a_restart_leaves_no_outdated_clients(tmp_path, caplog):
    """Nodes get new ids with every simulation, and with every restart of a SuperNode."""
    caplog.set_level(logging.INFO, logger="flwr")
    path = tmp_path / "scheduler.bsfl"
    train(fleet(1.0, 1.0, is_registered=False), state_path=path)
    nodes = dict(zip((301, 302), fleet(1.0, 1.0, is_registered=False).values(), strict=True))
    second = train(nodes, state_path=path)
    assert second.clients == ["node-301", "node-302"]
    assert "2 of 2 seen" in second.rounds[0].line()
    assert "2 clients have left after a long absence, among them 'node-101'" in caplog.text
