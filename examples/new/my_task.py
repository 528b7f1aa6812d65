"""A custom task that cohorts train: MyTask.

In a scenario file:

    [learning]
    task = "my_task.py:MyTask"
    learning_rate = 0.1          # a setting of the task

or, in Python, bsfl.compare(["pace", "random"], "phones", MyTask).
"""

from collections.abc import Sequence

import numpy as np

from bsfl import FloatArray, IntArray, Rng
from bsfl.learning import Evaluation, Update
from bsfl.random import stream


class MyTask:
    """Linear regression in numpy; replace it with your model and data.

    One task is created for each seed, with the number of clients and a random generator; all other
    arguments are settings. A parameter `ids` would get the names of the clients, in their order.
    Model parameters may have any type: bsfl never inspects them.
    """

    def __init__(self, n_clients: int, rng: Rng, *, learning_rate: float = 0.1) -> None:
        self.n_clients, self.learning_rate = n_clients, learning_rate
        self.samples: IntArray = rng.integers(10, 50, n_clients)
        truth = rng.normal(size=5)
        self.x = [rng.normal(size=(n, 5)) for n in self.samples.tolist()]
        self.y = [x @ truth + 0.1 * rng.normal(size=len(x)) for x in self.x]
        self.x_test = rng.normal(size=(500, 5))
        self.y_test = self.x_test @ truth

    def init(self, seed: int) -> FloatArray:
        """Return an untrained model."""
        return np.zeros(5)

    def train(self, params: FloatArray, clients: IntArray, *, t: int, seed: int) -> list[Update]:
        """Return the update of each client in a cohort, without changing `params`.

        A client's update must not depend on the rest of the cohort: draw from
        stream(seed, name, t, client).
        """
        return [self.train_one(params, k, stream(seed, "mine", t, k)) for k in clients.tolist()]

    def train_one(self, params: FloatArray, client: int, rng: Rng) -> Update:
        """Train for one epoch on a client's data."""
        x, y, learned = self.x[client], self.y[client], params.copy()
        loss = float(np.mean((x @ params - y) ** 2))
        for rows in np.array_split(rng.permutation(len(x)), max(1, len(x) // 10)):
            error = x[rows] @ learned - y[rows]
            learned -= self.learning_rate * x[rows].T @ error / len(rows)
        return Update(client=client, params=learned, loss=loss, samples=len(x))

    def aggregate(
        self, params: FloatArray, updates: Sequence[Update], weights: FloatArray
    ) -> FloatArray:
        """Return the next model; without updates, the current one."""
        if not updates:
            return params
        models = np.stack([update.params for update in updates])
        return np.asarray(weights @ models)

    def evaluate(self, params: FloatArray) -> Evaluation:
        """Evaluate a model on test data; a classifier should also return its accuracy."""
        return Evaluation(loss=float(np.mean((self.x_test @ params - self.y_test) ** 2)))
