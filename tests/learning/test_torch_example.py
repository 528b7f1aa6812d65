"""The PyTorch example keeps the promises of a Task."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the example needs the extra torch")

pytestmark = pytest.mark.slow


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
    for one, two in zip(first, again, strict=True):
        assert all(torch.equal(one.params[k], two.params[k]) for k in start)
    assert [(update.client, update.samples) for update in first] == [(0, 30), (1, 10)]
    alone = [task.train(start, np.array([k]), t=1, seed=0)[0] for k in (0, 1)]
    assert [update.loss for update in first] == [update.loss for update in alone]
    average = task.aggregate(start, first, np.array([0.75, 0.25]))
    for k in start:
        expected = 0.75 * alone[0].params[k] + 0.25 * alone[1].params[k]
        assert torch.allclose(average[k], expected, atol=1e-6)
    assert all(torch.equal(before[k], start[k]) for k in start)
    assert task.aggregate(start, [], np.zeros(0)) is start
