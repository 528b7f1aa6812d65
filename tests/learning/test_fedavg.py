"""Federated averaging against an independent implementation in plain numpy, in double precision."""

import numpy as np
import pytest

from bsfl.learning import shares
from bsfl.learning.samples import Holdings
from bsfl.learning.tasks import Local, image_task, linear_task
from bsfl.random import stream

RNG = np.random.default_rng(3)


def numpy_fedavg(params, gradient, x, y, clients, cohorts, *, lr, momentum, batch_size, seed):
    """McMahan et al. 2017, algorithm 1; the order of samples is the library's own."""
    holdings = Holdings.of(clients, len(x))
    for t, cohort in enumerate(cohorts, 1):
        total, n_total = {k: np.zeros_like(v) for k, v in params.items()}, 0
        for client in cohort:
            own = {k: v.copy() for k, v in params.items()}
            speed = {k: np.zeros_like(v) for k, v in params.items()}
            n = len(clients[client])
            rng = stream(seed, "training", t, client)
            rows, _ = holdings.batches(client, batch_size=batch_size, epochs=1, rng=rng)
            order = rows.ravel()[:n]
            assert sorted(order) == sorted(clients[client])
            for start in range(0, n, batch_size):
                batch = order[start : start + batch_size]
                for k, slope in gradient(own, x[batch], y[batch]).items():
                    speed[k] = momentum * speed[k] + slope
                    own[k] = own[k] - lr * speed[k]
            for k in total:
                total[k] += n * own[k]
            n_total += n
        params = {k: v / n_total for k, v in total.items()}
    return params


def linear_gradient(params, x, y):
    slope = 2 * (x @ params["output.weight"][:, 0] + params["output.bias"] - y) / len(x)
    return {"output.weight": (x.T @ slope)[:, None], "output.bias": slope.sum(keepdims=True)}


def conv(x, kernel):
    """Return the convolution by its definition, with zeros around."""
    _, height, width, _ = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return sum(
        np.einsum("nhwc,co->nhwo", padded[:, a : a + height, b : b + width], kernel[a, b])
        for a in range(3)
        for b in range(3)
    )


def conv_gradient(x, kernel, slope):
    _, height, width, _ = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    dk, dx = np.zeros_like(kernel), np.zeros_like(padded)
    for a in range(3):
        for b in range(3):
            dk[a, b] = np.einsum("nhwc,nhwo->co", padded[:, a : a + height, b : b + width], slope)
            dx[:, a : a + height, b : b + width] += slope @ kernel[a, b].T
    return dk, dx[:, 1:-1, 1:-1]


def pool(x):
    """Return block maxima and where they came from."""
    n, height, width, c = x.shape
    blocks = x.reshape(n, height // 2, 2, width // 2, 2, c).transpose(0, 1, 3, 5, 2, 4)
    blocks = blocks.reshape(n, height // 2, width // 2, c, 4)
    return blocks.max(-1), np.eye(4)[blocks.argmax(-1)]


def unpool(slope, where):
    n, height, width, c = slope.shape
    blocks = (slope[..., None] * where).reshape(n, height, width, c, 2, 2)
    return blocks.transpose(0, 1, 4, 2, 5, 3).reshape(n, 2 * height, 2 * width, c)


def cnn_gradient(p, x, y):
    """Back-propagation through conv - ReLU - pool twice and two dense layers, by hand."""
    n = len(x)
    z1 = conv(x, p["conv1.weight"]) + p["conv1.bias"]
    h1, where1 = pool(np.maximum(z1, 0))
    z2 = conv(h1, p["conv2.weight"]) + p["conv2.bias"]
    h2, where2 = pool(np.maximum(z2, 0))
    flat = h2.reshape(n, -1)
    z3 = flat @ p["dense.weight"] + p["dense.bias"]
    h3 = np.maximum(z3, 0)
    logits = h3 @ p["output.weight"] + p["output.bias"]
    odds = np.exp(logits - logits.max(1, keepdims=True))
    d4 = (odds / odds.sum(1, keepdims=True) - np.eye(logits.shape[1])[y]) / n
    d3 = (d4 @ p["output.weight"].T) * (z3 > 0)
    d2 = unpool((d3 @ p["dense.weight"].T).reshape(h2.shape), where2) * (z2 > 0)
    k2, dh1 = conv_gradient(h1, p["conv2.weight"], d2)
    d1 = unpool(dh1, where1) * (z1 > 0)
    k1, _ = conv_gradient(x, p["conv1.weight"], d1)
    return {
        "conv1.weight": k1,
        "conv1.bias": d1.sum((0, 1, 2)),
        "conv2.weight": k2,
        "conv2.bias": d2.sum((0, 1, 2)),
        "dense.weight": flat.T @ d3,
        "dense.bias": d3.sum(0),
        "output.weight": h3.T @ d4,
        "output.bias": d4.sum(0),
    }


def flat(params):
    return {
        f"{layer}.{name}": np.asarray(value, np.float64)
        for layer, values in params.items()
        for name, value in values.items()
    }


def three_rounds(task, cohorts, seed):
    params = task.init(seed)
    for t, cohort in enumerate(cohorts, 1):
        updates = task.train(params, cohort, t=t, seed=seed)
        params = task.aggregate(params, updates, shares([update.samples for update in updates]))
    return flat(params)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_linear_regression_matches_numpy_after_three_rounds(momentum):
    x = RNG.normal(size=(60, 10))
    y = x @ RNG.normal(size=10) + RNG.normal(size=60)
    clients = [np.arange(0, 7), np.arange(7, 27), np.arange(27, 31), np.arange(31, 60)]
    cohorts = [np.array(c) for c in ([0, 1], [3, 2, 0], [1, 2, 3])]
    local = Local(batch_size=5, learning_rate=0.02, momentum=momentum)
    task = linear_task((x, y), (x, y), clients, local)
    expected = numpy_fedavg(
        flat(task.init(4)), linear_gradient, x, y, clients, cohorts,
        lr=0.02, momentum=momentum, batch_size=5, seed=4,
    )  # fmt: skip
    found = three_rounds(task, cohorts, 4)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=2e-6, rtol=1e-5)


@pytest.mark.slow
def test_small_cnn_matches_numpy_after_three_rounds():
    x = RNG.integers(0, 256, (26, 12, 8, 1), dtype=np.uint8)
    y = RNG.integers(0, 4, 26)
    clients = [np.arange(0, 9), np.arange(9, 14), np.arange(14, 26)]
    cohorts = [np.array(c) for c in ([0, 1], [2, 1], [0, 2])]
    local = Local(batch_size=4, learning_rate=0.05)
    task = image_task((x, y), (x, y), clients, local, dropout=0.0, n_labels=4)
    expected = numpy_fedavg(
        flat(task.init(1)), cnn_gradient, x / 255, y, clients, cohorts,
        lr=0.05, momentum=0.0, batch_size=4, seed=1,
    )  # fmt: skip
    found = three_rounds(task, cohorts, 1)
    start = flat(task.init(1))
    for name, value in expected.items():
        assert np.abs(value - start[name]).max() > 1e-3, "the network has learned something"
        np.testing.assert_allclose(found[name], value, atol=1e-5, rtol=1e-4)
