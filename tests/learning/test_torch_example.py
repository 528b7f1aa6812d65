"""The PyTorch example keeps the promises of a Task."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the example needs the extra torch")


@pytest.fixture(scope="module")
def example(load_example):
    return load_example("torch_task")


def test_it_learns(example):
    assert example.main(rounds=20) > 0.85


def test_training_is_deterministic_and_changes_nothing(example):
    x, y = example.two_moons(40, np.random.default_rng(1))
    task = example.TorchTask(
        build=example.network, x=x, y=y, x_test=x, y_test=y, clients=[np.arange(30), np.arange(10)]
    )
    start = task.init(0)
    before = {k: v.clone() for k, v in start.items()}
    first, again = (task.train(start, np.array([0, 1]), t=1, seed=0) for _ in range(2))
    assert all(torch.equal(first.params[k], again.params[k]) for k in start)
    assert all(torch.equal(before[k], start[k]) for k in start)
    assert first.samples.tolist() == [30, 10]
    alone = [task.train(start, np.array([k]), t=1, seed=0) for k in (0, 1)]
    assert first.losses.tolist() == [a.losses[0] for a in alone]
    for k in start:
        expected = 0.75 * alone[0].params[k] + 0.25 * alone[1].params[k]
        assert torch.allclose(first.params[k], expected, atol=1e-6)
