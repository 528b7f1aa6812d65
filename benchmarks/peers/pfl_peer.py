"""pfl (Apple) on the training benchmark's workload.

Arranged as pfl's guide to fast simulations says: one worker process per core, joined through
PFL_WORKER_ADDRESSES, one intra-operation thread each, users' data as tensors in memory, no user
evaluated. The network is the one of the PyTorch peer, channels last; pfl trains it with its own
loop and torch.optim.SGD, and draws its own cohorts. A callback between two of its iterations waits
for the next line.
"""

import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from itertools import repeat

from workload import BATCH, N_CORES, RATE, Orders, Workload

RANK, ADDRESSES = "PFL_WORKER_RANK", "PFL_WORKER_ADDRESSES"


def free_address() -> str:
    """Return an address of this machine that nobody listens on."""
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return f"localhost:{one.getsockname()[1]}"


def start_workers() -> None:
    """Start the other workers, and make this process the first of them."""
    if RANK in os.environ:
        return
    os.environ[ADDRESSES] = ",".join(free_address() for _ in range(N_CORES))
    for rank in range(1, N_CORES):
        environment = os.environ | {RANK: str(rank)}
        subprocess.Popen([sys.executable, *sys.argv], env=environment, stdin=subprocess.DEVNULL)
    os.environ[RANK] = "0"


start_workers()  # before pfl is imported, which joins the workers

# ruff: noqa: E402
import numpy as np
import torch
import torch.distributed
import torch.nn.functional as F  # noqa: N812
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import nn
from torch_network import accuracy, network, tensors

NEVER = 10**9
"""More iterations than anybody asks for."""


class Classifier(nn.Module):
    """The network, with the methods that pfl calls."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean cross entropy of a batch."""
        return F.cross_entropy(self.network(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict:
        """Return nothing: no user is evaluated."""
        return {}


class Turns(TrainingProcessCallback):
    """Waits for the next round to be asked for, together with the other workers."""

    def __init__(self, rounds: Iterator[int]):
        self.rounds = rounds

    def go_on(self) -> bool:
        """Return what the first worker was told: whether there is one more round."""
        more = torch.tensor(next(self.rounds, None) is not None)
        torch.distributed.broadcast(more, 0)
        return bool(more)

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        """Wait for the first round."""
        self.go_on()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Wait for the next round, and have pfl stop when there is none."""
        return not self.go_on(), Metrics()


def federated_data(work: Workload, rank: int) -> FederatedDataset:
    """Return the users' data, in a new order each time a user is drawn."""
    x, y = tensors(work.x, work.y)
    rng = np.random.default_rng(rank)

    def user_data(user: int) -> PyTorchTensorDataset:
        rows = rng.permutation(work.clients[user])
        return PyTorchTensorDataset((x[rows], y[rows]))

    return FederatedDataset(user_data, get_user_sampler("random", range(len(work.clients))))


def main() -> None:
    warnings.simplefilter("ignore", FutureWarning)
    rank = int(os.environ[RANK])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  (pfl draws its seeds from there)
    work = Workload.load(sys.argv[1])
    data, classifier = federated_data(work, rank), Classifier()
    rounds: Iterator[int] = repeat(0)
    if rank == 0:
        orders = Orders()
        orders.ready("pfl", "torch")
        rounds = orders.rounds(lambda: accuracy(classifier.network, work.x_test, work.y_test))
    torch.manual_seed(rank)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=NEVER,
            evaluation_frequency=NEVER,
            train_cohort_size=work.cohorts.shape[1],
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=PyTorchModel(
            classifier,
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(classifier.parameters(), lr=1.0),
        ),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH
        ),
        callbacks=[Turns(rounds)],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main()
