"""Bring a PyTorch module into the simulator: any class with the methods of `Task` can train.

pip install 'bsfl[torch]'
python examples/torch_task.py
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from bsfl.learning import Evaluation, Task, Update, shares
from bsfl.random import stream

State = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class TorchTask:
    """A Task that trains a PyTorch classifier.

    Attributes:
        build: Returns the untrained module.
        x: Training inputs.
        y: Training labels.
        x_test: Test inputs.
        y_test: Test labels.
        clients: For each client, the rows of the training data that it holds.
        batch_size: Samples in a step.
        learning_rate: Of SGD.
    """

    build: Callable[[], nn.Module]
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    clients: Sequence[np.ndarray]
    batch_size: int = 20
    learning_rate: float = 0.1

    @property
    def n_clients(self) -> int:
        """How many clients hold data."""
        return len(self.clients)

    @property
    def samples(self) -> np.ndarray:
        """How many samples each client holds."""
        return np.array([len(rows) for rows in self.clients])

    def init(self, seed: int) -> State:
        """Return the parameters of an untrained model."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.build().state_dict()

    def train(self, params: State, clients: np.ndarray, *, t: int, seed: int) -> list[Update]:
        """Train every client from `params` and return what each one learned."""
        return [self._train_one(params, k, stream(seed, "torch", t, k)) for k in clients.tolist()]

    def aggregate(self, params: State, updates: Sequence[Update], weights: np.ndarray) -> State:
        """Return the weighted sum of what the clients learned."""
        if not updates:
            return params
        average = {name: torch.zeros_like(value) for name, value in params.items()}
        for update, weight in zip(updates, weights, strict=True):
            for name, value in update.params.items():
                average[name] += weight * value
        return average

    def evaluate(self, params: State) -> Evaluation:
        """Return loss and accuracy of a model on the test data."""
        model = self._model(params).eval()
        with torch.no_grad():
            outputs = model(self.x_test)
            loss = nn.functional.cross_entropy(outputs, self.y_test)
        right = (outputs.argmax(1) == self.y_test).double().numpy()
        labels = self.y_test.numpy()
        per_label = np.array([right[labels == k].mean() for k in range(outputs.shape[1])])
        return Evaluation(loss=loss.item(), accuracy=right.mean(), label_accuracy=per_label)

    def _train_one(self, params: State, client: int, rng: np.random.Generator) -> Update:
        model = self._model(params).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=self.learning_rate)
        rows = torch.from_numpy(rng.permutation(self.clients[client]))
        total = 0.0
        with torch.random.fork_rng(devices=[]):  # dropout follows the seed too
            torch.manual_seed(int(rng.integers(2**63)))
            for batch in rows.split(self.batch_size):
                loss = nn.functional.cross_entropy(model(self.x[batch]), self.y[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item() * len(batch)
        learned = {name: value.detach() for name, value in model.state_dict().items()}
        return Update(client=client, params=learned, loss=total / len(rows), samples=len(rows))

    def _model(self, params: State) -> nn.Module:
        model = self.build()
        model.load_state_dict(params)
        return model


def two_moons(n: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return points on two interleaved half circles, and which one each is on."""
    label = rng.integers(0, 2, n)
    angle = np.pi * (rng.random(n) + label)
    points = np.stack([np.cos(angle) + label, np.sin(angle) + 0.5 * label], axis=1)
    points += 0.1 * rng.normal(size=points.shape)
    return torch.tensor(points, dtype=torch.float32), torch.tensor(label)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))


def main(rounds: int = 20) -> float:
    """Train on 20 clients, 5 a round, and return the accuracy."""
    rng = np.random.default_rng(0)
    x, y = two_moons(1000, rng)
    x_test, y_test = two_moons(1000, rng)
    clients = np.array_split(np.arange(1000), 20)
    task: Task = TorchTask(
        build=network, x=x, y=y, x_test=x_test, y_test=y_test, clients=clients, learning_rate=0.5
    )
    params = task.init(0)
    for t in range(1, rounds + 1):
        cohort = stream(0, "cohort", t).choice(task.n_clients, 5, replace=False)
        updates = task.train(params, cohort, t=t, seed=0)
        params = task.aggregate(params, updates, shares([update.samples for update in updates]))
    accuracy = task.evaluate(params).accuracy
    assert accuracy is not None
    print(f"accuracy after {rounds} rounds: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
