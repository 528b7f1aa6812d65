"""PyTorch without a framework on the training benchmark's workload, as fast as we could make it.

One client per Python thread, one intra-operation thread each, data as tensors in memory.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn
from torch_network import accuracy, network, tensors, train_client
from workload import N_CORES, Orders, Workload


class Federation:
    """The global model, a copy for each thread, and the data."""

    def __init__(self, work: Workload):
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.work = work
        self.x, self.y = tensors(work.x, work.y)
        self.model = network()
        self.models = [network() for _ in range(N_CORES)]
        self.threads = ThreadPoolExecutor(N_CORES)
        self.rng = np.random.default_rng(0)

    def train_some(self, model: nn.Module, shares: list[np.ndarray]) -> list[torch.Tensor]:
        """Return the sum of the parameters that some clients learn, one after the other."""
        own, start = list(model.parameters()), list(self.model.parameters())
        total = [torch.zeros_like(p) for p in own]
        for rows in shares:
            with torch.no_grad():
                torch._foreach_copy_(own, start)
            train_client(model, self.x[rows], self.y[rows])
            with torch.no_grad():
                torch._foreach_add_(total, own)
        return total

    def round(self, i: int) -> None:
        """Train the i-th cohort and average what it learned."""
        rows = [self.rng.permutation(self.work.clients[k]) for k in self.work.cohorts[i]]
        shares = [rows[first::N_CORES] for first in range(N_CORES)]
        sums = list(self.threads.map(self.train_some, self.models, shares))
        with torch.no_grad():
            for p, *parts in zip(self.model.parameters(), *sums, strict=True):
                p.copy_(sum(parts) / len(rows))


def main() -> None:
    orders = Orders()
    work = Workload.load(sys.argv[1])
    federation = Federation(work)
    orders.ready("torch")
    for i in orders.rounds(lambda: accuracy(federation.model, work.x_test, work.y_test)):
        federation.round(i)


if __name__ == "__main__":
    main()
