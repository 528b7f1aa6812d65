"""Any strategy can be wrapped: its attributes, setters, own loops and samplers work from outside."""

import copy

import pytest
from fake_federation import federation, train
from fake_grid import fleet
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp.strategy import FedAvg, FedXgbCyclic

from bsfl import Scheduler
from bsfl.errors import InvalidInput, NotEnoughClients


class Saving(FedAvg):
    """As Flower's advanced examples have it: a setter, an own start and an own configure_train."""

    configured = ()

    def set_save_path(self, path):
        self.save_path = path

    def configure_train(self, server_round, arrays, config, grid):
        self.configured = (*self.configured, server_round)
        return super().configure_train(server_round, arrays, config, grid)

    def start(self, grid, initial_arrays, num_rounds=3, **kwargs):
        self.best = self.save_path
        return super().start(grid, initial_arrays, num_rounds, **kwargs)


def test_a_strategy_with_setters_and_a_loop_of_its_own():
    inner = Saving(fraction_evaluate=0.0)
    run = federation(fleet(1, 1, 1), strategy=inner)
    run.strategy.set_save_path("/models")
    run.strategy.note = "mine"
    assert (inner.save_path, inner.note) == ("/models", "mine")
    run.start(2)
    assert (run.strategy.best, run.strategy.configured) == ("/models", (1, 2))
    assert "bsfl-round-s" in run.result.train_metrics_clientapp[2]
    assert "configure_train" not in vars(inner), "restored"


def test_a_strategy_whose_methods_were_replaced():
    inner = FedAvg(fraction_evaluate=0.0)
    configure, seen = inner.configure_train, []

    def noting(server_round, *args):
        seen.append(server_round)
        return configure(server_round, *args)

    inner.configure_train = noting
    train(fleet(1, 1, 1), rounds=2, strategy=inner)
    assert seen == [1, 2]
    assert inner.configure_train is noting, "restored"


def test_its_own_attributes_are_not_those_of_the_wrapped_strategy():
    inner = FedAvg(fraction_evaluate=0.0)
    inner.scheduler, inner.rounds = "of learning rates", 7
    run = train(fleet(1, 1), strategy=inner)
    assert isinstance(run.scheduler, Scheduler)
    assert len(run.rounds) == 1
    run.strategy.rounds = []
    assert (inner.scheduler, inner.rounds) == ("of learning rates", 7)


def test_an_attribute_that_neither_strategy_has():
    strategy = federation(fleet(1, 1)).strategy
    with pytest.raises(AttributeError, match="neither Selected nor the FedAvg .* 'set_save_path'"):
        strategy.set_save_path("/models")
    assert copy.copy(strategy).strategy is strategy.strategy


def test_the_strategys_own_settings_are_left_alone():
    strategy = FedAvg(fraction_train=0.1, fraction_evaluate=0.0)
    run = federation(fleet(1, 1, 1, 1), strategy=strategy, cohort_size=3, wait_s=5.0)
    run.strategy.min_available_nodes = 4
    before = dict(vars(strategy))
    run.start()
    assert len(run.rounds[0].kept) == 3, "the cohort, not a tenth of it"
    assert vars(strategy) == before
    run.grid.online -= {101}
    with pytest.raises(NotEnoughClients, match="for 4 clients"):
        run.start()


def test_a_strategy_that_writes_its_own_messages():
    class Own(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            content = RecordDict({"arrays": arrays, "config": config})
            assert {node.node_id for node in grid.get_nodes()} == set(grid.get_node_ids())
            return [Message(content, node, MessageType.TRAIN) for node in grid.get_node_ids()]

    run = train(fleet(1, 1, 1), rounds=2, strategy=Own(fraction_evaluate=0.0))
    assert [len(played.kept) for played in run.rounds] == [2, 2]


def test_cyclic_boosting_with_one_client_a_round():
    strategy = FedXgbCyclic(fraction_evaluate=0.0)
    run = train(fleet(1, 1, 1), rounds=3, strategy=strategy, cohort_size=1)
    assert [len(played.kept) for played in run.rounds] == [1, 1, 1]


def test_other_messages_are_sent_as_usual():
    class Asking(FedAvg):
        def start(self, grid, initial_arrays, **kwargs):
            self.replies = grid.send_and_receive([Message(RecordDict(), 101, "query")])
            return super().start(grid, initial_arrays, **kwargs)

    run = train(fleet(1, 1), strategy=Asking(fraction_evaluate=0.0))
    assert len(run.strategy.replies) == 1


class Pair(FedAvg):
    def configure_train(self, *args):
        return list(super().configure_train(*args))[:2]


class Greedy(FedAvg):
    def configure_train(self, *args):
        self.min_train_nodes = 4  # decided on the spot
        return super().configure_train(*args)


class Stubborn(FedAvg):
    def start(self, grid, initial_arrays, **kwargs):
        messages = list(self.configure_train(1, initial_arrays, ConfigRecord(), grid))
        messages[0].metadata.dst_node_id = 999
        return grid.send_and_receive(messages)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (Pair, "Pair .* each of the 3 .* messages to 2 of them.* set cohort_size=2"),
        (Greedy, "waits for more than the 3 nodes"),
        (Stubborn, "training messages must go to the nodes .* node 999"),
    ],
)
def test_a_strategy_that_trains_others_is_stopped(strategy, message, monkeypatch):
    monkeypatch.setattr("flwr.serverapp.strategy.strategy_utils.sleep", lambda seconds: None)
    with pytest.raises(InvalidInput, match=message):
        train(fleet(1, 1, 1), strategy=strategy(), cohort_size=3)
