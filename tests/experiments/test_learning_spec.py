"""The table [learning]: data, partition and training, or a task."""

import json

import pytest

pytest.importorskip("jax", reason="training needs the extra sim")

from bsfl.errors import InvalidInput
from bsfl.experiments import run_scenario
from small_scenario import parse, parse_training


def test_data_sizes_of_the_clients_are_those_of_the_partition():
    uneven = parse_training(partition={"kind": "quantity", "sigma": 1.0, "quality": [0.5, 1.0]})
    partition = uneven.learning.make_partition(20, seed=3)
    clients = uneven.simulated_clients(3)
    assert clients.samples.tolist() == partition.sizes.tolist()
    assert clients.quality.tolist() == partition.quality.tolist()
    assert uneven.training(3).task.samples.tolist() == partition.sizes.tolist()


IMAGES = {"dataset": "fashion-mnist-small"}
SHARED = {"kind": "iid", "samples": 2000, "reuse": True, "quality": [0.0, 1.0]}


@pytest.mark.parametrize(
    ("learning", "message"),
    [
        ({"dataset": "mnist"}, r"\[learning\]: unknown data set 'mnist'; known are fashion"),
        ({"learning_rat": 1}, r"\[learning\]: .*'learning_rat'; did you mean 'learning_r"),
        ({"learning_rate": -1.0}, r"\[learning\]: learning_rate must be"),
        ({"optimizer": "adm"}, r"\[learning\]: optimizer must be 'sgd' or 'adam'"),
        ({"evaluate_every_s": -1}, r"\[learning\]: evaluate_every_s must be .* at least 0"),
        ({"target_accuracy": 0.8}, r"\[learning\]: target_accuracy belongs to labels"),
        ({**IMAGES, "target_accuracy": 80}, "target_accuracy must be between 0 and 1, got 80"),
        ({"engine": "torch"}, "engine must be 'jax' or 'fast', got 'torch'"),
        ({"engine": "fast"}, 'engine "fast" is for images'),
        ({"network": "cnn"}, "network 'cnn' is for images"),
        ({"partition": "iid"}, r"\[learning.partition\]: expected a table, got 'iid'"),
        ({"partition": {"kind": "random"}}, r"\[learning.partition\]: unknown partition 'random'"),
        ({"partition": {"kind": "dirichlet"}}, r"\[learning.partition\]: missing key 'alpha'"),
        ({"partition": {"kind": "iid", "alpha": 1}}, r"\[learning.partition\]: .* key 'alpha'"),
    ],
)
def test_mistakes_are_named_with_their_table(learning, message):
    with pytest.raises(InvalidInput, match=f"^study.toml .*{message}"):
        parse_training(**learning)


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ({"kind": "iid", "samples": 10**6}, r"\[learning.partition\]: samples"),
        ({"kind": "dirichlet", "alpha": -1.0}, r"\[learning.partition\]: alpha must be a finite"),
        (SHARED, "noise needs a partition in which no two clients share"),
    ],
)
def test_a_partition_that_cannot_be_made_is_named_before_anything_runs(
    tmp_path, partition, message
):
    with pytest.raises(InvalidInput, match=rf"^study .*{message}"):
        run_scenario(parse_training(partition=partition), tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()


def test_one_table_says_how_much_data_there_is():
    with pytest.raises(InvalidInput, match="both say how much data there is"):
        parse(learning={"dataset": "linear"}, clients__data={"mean_samples": 10})


@pytest.mark.slow
def test_the_fast_engine_is_chosen_in_the_scenario(tmp_path):
    """Two runs have equal bytes, and the manifest names numba."""
    pytest.importorskip("numba")
    fast = parse_training(**IMAGES, batch_size=100, evaluate_every_s=300.0, engine="fast")
    short = fast.changed(time_s=40.0, seeds=1)
    one, two = (run_scenario(short, tmp_path / name, jobs=1) for name in ("one", "two"))
    for run in one.runs():
        assert one.run(*run).records.tobytes() == two.run(*run).records.tobytes()
    assert "numba" in json.loads((one.folder / "manifest.json").read_text())["versions"]
