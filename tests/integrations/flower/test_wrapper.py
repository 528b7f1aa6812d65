"""Any strategy can be wrapped: its attributes, setters, own loops and samplers work from outside."""

import copy

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from fake_federation import federation, start
from fake_grid import FakeGrid, fleet
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import strategy as strategies
from flwr.serverapp.strategy import FedAvg, FedXgbCyclic

from bsfl import Scheduler, UniformRandom
from bsfl.errors import InvalidInput
from bsfl.integrations.flower import Selected


class Saving(FedAvg):
    """As Flower's advanced examples have it: a setter, an own start and an own configure_train."""

    best = None

    def set_save_path(self, path):
        self.save_path = path

    @property
    def rate(self):
        return self.__dict__.get("_rate", 1.0)

    @rate.setter
    def rate(self, value):
        self._rate = value

    def configure_train(self, server_round, arrays, config, grid):
        config["rate"] = self.rate
        self.configured = [*getattr(self, "configured", []), server_round]
        return super().configure_train(server_round, arrays, config, grid)

    def start(self, grid, initial_arrays, num_rounds=3, **kwargs):
        self.best = self.save_path
        return super().start(grid, initial_arrays, num_rounds, **kwargs)


def test_setters_are_called_and_attributes_set_after_it_was_wrapped():
    inner = Saving(fraction_evaluate=0.0)
    selected, grid = federation(fleet(1, 1, 1), strategy=inner)
    selected.set_save_path("/models")
    selected.rate = 0.5
    selected.note = "mine"
    assert (inner.save_path, inner.rate, inner.note) == ("/models", 0.5, "mine")
    assert (selected.save_path, selected.rate, selected.note) == ("/models", 0.5, "mine")
    start(selected, grid, rounds=2)
    assert selected.best == "/models"
    assert selected.configured == [1, 2]
    assert len(selected.rounds) == 2


def test_its_own_attributes_are_not_those_of_the_wrapped_strategy():
    inner = FedAvg(fraction_evaluate=0.0)
    inner.scheduler, inner.rounds = "of learning rates", 7
    selected, grid = federation(fleet(1, 1), strategy=inner)
    start(selected, grid)
    assert isinstance(selected.scheduler, Scheduler)
    assert len(selected.rounds) == 1
    assert (inner.scheduler, inner.rounds) == ("of learning rates", 7)
    selected.rounds = []
    assert inner.rounds == 7


def test_an_attribute_that_neither_strategy_has():
    selected, _ = federation(fleet(1, 1))
    with pytest.raises(AttributeError, match="neither Selected nor the FedAvg .* 'set_save_path'"):
        selected.set_save_path("/models")
    assert not hasattr(selected, "best")
    assert copy.copy(selected).strategy is selected.strategy


def test_settings_of_the_strategy_may_change_until_it_starts():
    selected, grid = federation(fleet(1, 1, 1), strategy=FedAvg(fraction_evaluate=0.0))
    selected.min_available_nodes = 3
    assert selected.limits.min_clients == 3
    selected.arrayrecord_key = "model"
    start(selected, grid)
    assert selected.strategy.arrayrecord_key == "model"


def test_a_strategy_whose_methods_were_replaced():
    inner = FedAvg(fraction_evaluate=0.0)
    configure, seen = inner.configure_train, []

    def noting(server_round, *args):
        seen.append(server_round)
        return configure(server_round, *args)

    inner.configure_train = noting
    selected, grid = federation(fleet(1, 1, 1), strategy=inner)
    start(selected, grid, rounds=2)
    assert seen == [1, 2]
    assert inner.configure_train is noting, "restored"


def test_a_strategy_that_writes_its_own_messages():
    class Own(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            content = RecordDict({"arrays": arrays, "config": config})
            return [Message(content, node, MessageType.TRAIN) for node in grid.get_node_ids()]

    selected, grid = federation(fleet(1, 1, 1), strategy=Own(fraction_evaluate=0.0))
    start(selected, grid, rounds=2)
    assert [len(r.kept) for r in selected.rounds] == [2, 2]


def test_cyclic_boosting_needs_one_client_a_round():
    for scheduler in (
        Scheduler(UniformRandom(), cohort_size=2),
        Scheduler(UniformRandom(), cohort_size=1, over_selection=2.0),
    ):
        with pytest.raises(InvalidInput, match="FedXgbCyclic .* cohort_size must be 1"):
            Selected(FedXgbCyclic(), scheduler)


def test_cyclic_boosting_with_one_client_a_round():
    strategy = FedXgbCyclic(fraction_evaluate=0.0)
    selected, grid = federation(fleet(1, 1, 1), strategy=strategy, cohort_size=1)
    start(selected, grid, rounds=3)
    assert [len(r.kept) for r in selected.rounds] == [1, 1, 1]


def test_a_strategy_that_trains_fewer_than_it_is_given_learns_how_many():
    class Pair(FedAvg):
        def configure_train(self, *args):
            return list(super().configure_train(*args))[:2]

    selected, grid = federation(fleet(1, 1, 1), strategy=Pair(), cohort_size=3)
    with pytest.raises(InvalidInput, match="Pair .* messages to 2 of them.* set cohort_size=2"):
        start(selected, grid)


def test_a_loop_that_trains_others_is_stopped():
    class Stubborn(FedAvg):
        def start(self, grid, initial_arrays, **kwargs):
            messages = list(self.configure_train(1, initial_arrays, ConfigRecord(), grid))
            messages[0].metadata.dst_node_id = 999
            return grid.send_and_receive(messages)

    selected, grid = federation(fleet(1, 1), strategy=Stubborn())
    with pytest.raises(InvalidInput, match="training messages must go to the nodes .* node 999"):
        start(selected, grid)


def test_other_messages_are_sent_as_usual():
    class Asking(FedAvg):
        def start(self, grid, initial_arrays, **kwargs):
            self.replies = grid.send_and_receive([Message(RecordDict(), 101, "query")])
            return super().start(grid, initial_arrays, **kwargs)

    selected, grid = federation(fleet(1, 1), strategy=Asking(fraction_evaluate=0.0))
    start(selected, grid)
    assert selected.replies == []


def test_plain_and_wrapped_give_the_same_model():
    """All clients train: the wrapped strategy, with its own methods, sees what it would see alone."""
    selected, grid = federation(
        fleet(1.0, 2.0, 3.0), strategy=Saving(fraction_evaluate=0.0), cohort_size=3
    )
    selected.set_save_path("here")
    arrays = ArrayRecord({"w": Array(np.zeros(2))})
    result = selected.start(grid, arrays, 2)
    assert np.allclose(result.arrays["w"].numpy(), 1.0)
    assert isinstance(selected._run.grid, FakeGrid)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("FedAdagrad", {}),
        ("FedYogi", {}),
        ("FedAvgM", {"server_momentum": 0.9}),
        ("FedTrimmedAvg", {}),
        ("Krum", {}),
        ("MultiKrum", {"num_malicious_nodes": 1, "num_nodes_to_select": 2}),
        ("Bulyan", {}),
        ("QFedAvg", {"client_learning_rate": 0.1, "train_loss_key": "train_loss"}),
    ],
)
def test_every_strategy_that_averages(name, settings):
    strategy = getattr(strategies, name)(fraction_evaluate=0.0, **settings)
    selected, grid = federation(fleet(1.0, 2.0, 3.0, 4.0), strategy=strategy, cohort_size=3)
    result = start(selected, grid, rounds=3)
    assert [len(r.kept) for r in selected.rounds] == [3, 3, 3]
    assert np.isfinite(result.arrays["w"].numpy()).all()
