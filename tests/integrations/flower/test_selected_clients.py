"""How long clients took, and waiting for enough of them."""

import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from fake_federation import Spy, federation, start
from fake_grid import FakeGrid, fleet
from flwr.serverapp.strategy import (
    FedAvg,
)

from bsfl import BSFL
from bsfl.errors import NotEnoughClients

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


def test_a_function_returns_latencies():
    selected, grid = federation(
        fleet(1.0, 1.0), latency=lambda client, reply, seconds: 100.0 + int(client)
    )
    start(selected, grid)
    assert selected.rounds[0].latencies == {"0": 100.0, "1": 101.0}


def test_losses_and_samples_reach_the_policy():
    scheduler = Spy(BSFL(generalization="loss"), cohort_size=2)
    selected, grid = federation(fleet(1.0, 1.0), scheduler=scheduler, loss_key="train_loss")
    start(selected, grid)
    (entry,) = scheduler.journal.of_kind("responses")
    assert (entry["loss"], entry["samples"]) == ([0.5, 0.5], [10.0, 10.0])


# --- waiting --------------------------------------------------------------------------------------


def test_too_few_clients_is_an_error_not_a_wait_for_ever():
    selected, grid = federation(fleet(1.0), min_clients=3, wait_s=60.0)
    with pytest.raises(
        NotEnoughClients,
        match=r"waited 6\d s .*wait_s.* for 3 clients .* at least 2 must be free: 1 nodes are connected",
    ):
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
