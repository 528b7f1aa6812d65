"""A server that was killed resumes with its model, its strategy's arrays and its scheduler."""

import errno
import itertools

import numpy as np
import pytest
from fake_federation import ARRAYS, buffered, federation
from fake_grid import Adding, fleet
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM

from bsfl import Scheduler
from bsfl.errors import CorruptFile, InvalidInput
from bsfl.integrations.flower import checkpoint
from bsfl.integrations.flower.checkpoint import Checkpoint


def saving(folder, *, strategy=None, **options):
    """Return a Selected whose clients add their number to the model: all clients train."""
    return federation(
        fleet(1, 1, 1), strategy=strategy, cohort_size=3, grid=Adding, checkpoint=folder, **options
    )


@pytest.mark.parametrize("strategy", [FedAvg, FedAdam, FedAvgM])
def test_it_resumes_as_if_it_had_not_been_interrupted(strategy, tmp_path):
    class Killed(strategy):
        def configure_train(self, server_round, *args):
            if server_round == 4:
                raise KeyboardInterrupt
            return super().configure_train(server_round, *args)

    whole = saving(tmp_path / "whole", strategy=strategy(fraction_evaluate=0.0)).start(5)
    killed = saving(tmp_path / "parts", strategy=Killed(fraction_evaluate=0.0))
    with pytest.raises(KeyboardInterrupt):
        killed.start(5)
    again = saving(tmp_path / "parts", strategy=strategy(fraction_evaluate=0.0)).start(5)
    assert again.model == pytest.approx(whole.model)
    assert [played.server_round for played in again.rounds] == [4, 5]
    assert list(again.result.train_metrics_clientapp) == [4, 5]
    assert Scheduler.load(tmp_path / "parts" / "scheduler.bsfl").round >= 5
    done = saving(tmp_path / "parts").start(5)
    assert (done.rounds, done.model) == ([], again.model), "nothing is left to do"


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

    saving(tmp_path, strategy=Noting()).start(2, evaluate_fn=evaluate)
    second = saving(tmp_path, strategy=Noting()).start(4, evaluate_fn=evaluate)
    assert second.strategy.rounds_seen == (3, 4)
    assert evaluated == [0, 1, 2, 2, 3, 4]
    assert list(second.result.evaluate_metrics_clientapp) == [3, 4]
    assert list(second.result.evaluate_metrics_serverapp) == [2, 3, 4]


def test_a_round_without_replies_counts_too(tmp_path):
    run = saving(tmp_path, deadline_s=5.0)
    for node in run.grid.nodes.values():
        node.takes = None
    run.start()
    saved = Checkpoint(tmp_path).load()
    assert saved.server_round == 1
    assert saved.arrays["w"].numpy().tolist() == [0.0, 0.0]


def test_buffered_resumes_too(tmp_path):
    models = []
    for done, versions in ((0, 3), (3, 5), (5, 5)):
        strategy = FedAdam(fraction_evaluate=0.0)
        run = buffered(fleet(1, 1, 1), strategy=strategy, checkpoint=tmp_path).start(versions)
        assert [one.server_round for one in run.rounds] == list(range(done + 1, versions + 1))
        models.append(run.model)
    assert Checkpoint(tmp_path).load().server_round == 5
    assert models[0] != models[1] == models[2]


def test_arrays_of_the_strategy_that_training_changed_are_saved(tmp_path):
    class Learning(FedAvg):
        def aggregate_train(self, server_round, replies):
            self.moments, self.steps = {"w": np.ones(2)}, [np.zeros(1), np.ones(1)]
            self.one, self.last = np.arange(3), ArrayRecord({"w": Array(np.ones(1))})
            self.objects, self.note = np.array([None]), ["a", "b"]
            return super().aggregate_train(server_round, replies)

    strategy = Learning(fraction_evaluate=0.0)
    strategy.test_set = np.zeros(1000)
    saving(tmp_path, strategy=strategy).start()
    held = Checkpoint(tmp_path).load().strategy
    assert list(held) == ["moments", "steps", "one", "last"]
    assert held["moments"]["w"].tolist() == [1.0, 1.0]
    assert [array.tolist() for array in held["steps"]] == [[0.0], [1.0]]
    assert held["one"].tolist() == [0, 1, 2]
    assert held["last"]["w"].numpy().tolist() == [1.0]


@pytest.mark.parametrize("content", [b"", b"not a model", b"PK\x03\x04 cut short"])
def test_a_damaged_model_is_rejected(content, tmp_path):
    (tmp_path / "model.npz").write_bytes(content)
    with pytest.raises(CorruptFile, match="model.npz is not a model of a checkpoint"):
        saving(tmp_path).start()


def test_a_full_disk_costs_no_training(tmp_path, monkeypatch, caplog):
    """The disk is full in the first two of four rounds, for the model and for the scheduler."""

    def until_round(function, n):
        calls = itertools.count(1)

        def on_a_full_disk(*args, **kwargs):
            if next(calls) <= n:
                raise OSError(errno.ENOSPC, "No space left on device")
            return function(*args, **kwargs)

        return on_a_full_disk

    monkeypatch.setattr(checkpoint, "replace_file", until_round(checkpoint.replace_file, 2))
    monkeypatch.setattr(Scheduler, "save", until_round(Scheduler.save, 2))
    run = saving(tmp_path).start(4)
    assert [len(played.kept) for played in run.rounds] == [3] * 4
    for name in ("model.npz", "scheduler.bsfl"):
        assert caplog.text.count(f"{name} cannot be written") == 1
        assert caplog.text.count(f"{name} is written again") == 1
    assert Scheduler.load(tmp_path / "scheduler.bsfl").round == 4


def test_wrong_use(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="checkpoint must be a folder"):
        saving(tmp_path / "file")
    with pytest.raises(InvalidInput, match="checkpoint .* leave out state_path"):
        saving(tmp_path, state_path=tmp_path / "x")

    class Short(FedAvg):
        def start(self, grid, arrays):
            return super().start(grid, arrays, 1)

    first, second = (saving(tmp_path, strategy=Short(fraction_evaluate=0.0)) for _ in range(2))
    first.strategy.start(first.grid, ARRAYS)
    with pytest.raises(InvalidInput, match="checkpoint .* initial_arrays and num_rounds"):
        second.strategy.start(second.grid, ARRAYS)
