"""A server that was killed resumes with its model, its strategy's arrays and its scheduler."""

import errno

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from fake_federation import ARRAYS, start
from fake_federation import federation as selected_on
from fake_grid import fleet
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM
from test_buffered import Adding, buffered

from bsfl import Scheduler, UniformRandom
from bsfl.errors import CorruptFile, InvalidInput
from bsfl.integrations.flower.checkpoint import Checkpoint


def federation(strategy, folder, **options):
    """Return a Selected whose clients add their number to the model: all clients train."""
    scheduler = Scheduler(UniformRandom(), cohort_size=3)
    selected, grid = selected_on(
        fleet(1, 1, 1), strategy=strategy, scheduler=scheduler, checkpoint=folder, **options
    )
    grid.__class__ = Adding
    return selected, grid


@pytest.mark.parametrize("strategy", [FedAvg, FedAdam, FedAvgM])
def test_it_resumes_as_if_it_had_not_been_interrupted(strategy, tmp_path):
    whole, grid = federation(strategy(fraction_evaluate=0.0), tmp_path / "whole")
    expected = start(whole, grid, rounds=5)

    class Killed(strategy):
        def configure_train(self, server_round, *args):
            if server_round == 4:
                raise KeyboardInterrupt
            return super().configure_train(server_round, *args)

    killed, grid = federation(Killed(fraction_evaluate=0.0), tmp_path / "parts")
    with pytest.raises(KeyboardInterrupt):
        start(killed, grid, rounds=5)
    again, grid = federation(strategy(fraction_evaluate=0.0), tmp_path / "parts")
    result = start(again, grid, rounds=5)
    assert np.allclose(result.arrays["w"].numpy(), expected.arrays["w"].numpy())
    assert [played.server_round for played in again.rounds] == [4, 5]
    assert list(result.train_metrics_clientapp) == [4, 5]
    assert Scheduler.load(tmp_path / "parts" / "scheduler.bsfl").round >= 5


def test_round_numbers_continue(tmp_path):
    class Noting(FedAvg):
        rounds_seen = ()

        def configure_evaluate(self, server_round, *args):
            self.rounds_seen = (*self.rounds_seen, server_round)
            return super().configure_evaluate(server_round, *args)

    evaluated = []

    def evaluate(server_round, arrays):
        evaluated.append(server_round)
        return MetricRecord({"at": server_round})

    first, grid = federation(Noting(), tmp_path)
    start(first, grid, rounds=2, evaluate_fn=evaluate)
    second, grid = federation(Noting(), tmp_path)
    result = start(second, grid, rounds=4, evaluate_fn=evaluate)
    assert second.rounds_seen == (3, 4)
    assert evaluated == [0, 1, 2, 2, 3, 4]
    assert list(result.evaluate_metrics_clientapp) == [3, 4]
    assert list(result.evaluate_metrics_serverapp) == [2, 3, 4]


def test_nothing_is_left_to_do(tmp_path):
    first, grid = federation(FedAvg(fraction_evaluate=0.0), tmp_path)
    done = start(first, grid, rounds=2)
    second, grid = federation(FedAvg(fraction_evaluate=0.0), tmp_path)
    result = start(second, grid, rounds=2)
    assert second.rounds == []
    assert np.allclose(result.arrays["w"].numpy(), done.arrays["w"].numpy())


def test_a_round_without_replies_counts_too(tmp_path):
    selected, grid = federation(FedAvg(fraction_evaluate=0.0), tmp_path, deadline_s=5.0)
    for node in grid.nodes.values():
        node.takes = None
    start(selected, grid, rounds=1)
    saved = Checkpoint(tmp_path).load()
    assert saved.server_round == 1
    assert np.allclose(saved.arrays["w"].numpy(), 0.0)


def test_buffered_resumes_too(tmp_path):
    for n, versions in ((0, 3), (3, 5)):
        made, grid = buffered(
            fleet(1, 1, 1),
            scheduler=Scheduler(UniformRandom(), cohort_size=2),
            strategy=FedAdam(fraction_evaluate=0.0),
            checkpoint=tmp_path,
        )
        result = made.start(grid, ARRAYS, versions)
        assert [version.server_round for version in made.rounds] == list(range(n + 1, versions + 1))
    assert Checkpoint(tmp_path).load().server_round == 5
    made, grid = buffered(
        fleet(1, 1, 1), scheduler=Scheduler(UniformRandom(), cohort_size=2), checkpoint=tmp_path
    )
    assert np.allclose(made.start(grid, ARRAYS, 5).arrays["w"].numpy(), result.arrays["w"].numpy())


def test_what_was_there_before_training_is_not_saved(tmp_path):
    strategy = FedAvg(fraction_evaluate=0.0)
    strategy.test_set, strategy.names = np.zeros(1000), ["a", "b"]
    selected, grid = federation(strategy, tmp_path)
    start(selected, grid)
    assert Checkpoint(tmp_path).load().strategy == {}
    strategy.moments, strategy.steps = {"w": np.ones(2)}, [np.zeros(1), np.ones(1)]
    strategy.one, strategy.last = np.arange(3), ArrayRecord({"w": Array(np.ones(1))})
    selected._checkpoint.save(1, ARRAYS, strategy)
    held = Checkpoint(tmp_path).load().strategy
    assert list(held) == ["moments", "steps", "one", "last"]
    assert held["moments"]["w"].tolist() == [1.0, 1.0]
    assert [a.tolist() for a in held["steps"]] == [[0.0], [1.0]]
    assert held["one"].tolist() == [0, 1, 2]
    assert held["last"]["w"].numpy().tolist() == [1.0]


@pytest.mark.parametrize("content", [b"", b"not a model", b"PK\x03\x04 cut short"])
def test_a_damaged_model_is_rejected(content, tmp_path):
    (tmp_path / "model.npz").write_bytes(content)
    selected, grid = federation(FedAvg(fraction_evaluate=0.0), tmp_path)
    with pytest.raises(CorruptFile, match="model.npz is not a model of a checkpoint"):
        start(selected, grid)


def test_a_full_disk_costs_no_training(tmp_path, monkeypatch, caplog):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    selected, grid = federation(FedAvg(fraction_evaluate=0.0), tmp_path)
    monkeypatch.setattr("bsfl.integrations.flower.checkpoint.replace_file", full)
    start(selected, grid, rounds=3)
    assert caplog.text.count("model.npz cannot be written") == 1


def test_wrong_use(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="checkpoint must be a folder"):
        federation(FedAvg(), tmp_path / "file")
    with pytest.raises(InvalidInput, match="checkpoint .* leave out state_path"):
        federation(FedAvg(), tmp_path, state_path=tmp_path / "x")

    class Short(FedAvg):
        def start(self, grid, arrays):
            return super().start(grid, arrays, 1)

    first, grid = federation(Short(fraction_evaluate=0.0), tmp_path)
    first.start(grid, ARRAYS)
    second, grid = federation(Short(fraction_evaluate=0.0), tmp_path)
    with pytest.raises(InvalidInput, match="checkpoint .* initial_arrays and num_rounds"):
        second.start(grid, ARRAYS)
