"""Federated averaging against an independent implementation in plain numpy, in double precision.

Clients of unequal size, batches that are not full, momentum, rounds, seeds and weights: all by hand.
"""

import numpy as np
import pytest

from bsfl.learning import shares
from bsfl.learning.tasks import Local, linear_task

RNG = np.random.default_rng(3)


def numpy_fedavg(params, gradient, x, y, clients, cohorts, *, task, lr, momentum, batch_size, seed):
    """McMahan et al. 2017, algorithm 1; the order of samples is the library's own."""
    for t, cohort in enumerate(cohorts, 1):
        total, n_total = {k: np.zeros_like(v) for k, v in params.items()}, 0
        for client in cohort:
            own = {k: v.copy() for k, v in params.items()}
            speed = {k: np.zeros_like(v) for k, v in params.items()}
            n = len(clients[client])
            order = task.steps(client, t, seed)[0].ravel()[:n]
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


def flat(params):
    return {f"output.{name}": np.asarray(x, np.float64) for name, x in params["output"].items()}


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
        task=task, lr=0.02, momentum=momentum, batch_size=5, seed=4,
    )  # fmt: skip
    params = task.init(4)
    for t, cohort in enumerate(cohorts, 1):
        updates = task.train(params, cohort, t=t, seed=4)
        params = task.aggregate(params, updates, shares([update.samples for update in updates]))
    for name, value in expected.items():
        np.testing.assert_allclose(flat(params)[name], value, atol=2e-6, rtol=1e-5)
