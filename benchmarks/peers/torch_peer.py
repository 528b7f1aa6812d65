"""The training benchmark's workload in PyTorch, as fast as we could make it.

One client per Python thread, one intra-operation thread each, channels last, gradients without
`.grad`, parameters updated together. Speaks the line protocol of benchmarks/training.py.
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

BATCH, RATE, DROPOUT = 20, 0.1, 0.25


def network() -> nn.Module:
    layers = (
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(7 * 7 * 32, 64), nn.ReLU(), nn.Dropout(DROPOUT)),
        nn.Linear(64, 10),
    )
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):  # as bsfl's networks start
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)


class Federation:
    """The global model, a copy for each thread, and the data."""

    def __init__(self, path: str):
        torch.set_num_threads(1)
        torch.manual_seed(0)
        work = np.load(path)
        self.x, self.x_test = (torch.from_numpy(work[k])[:, None] for k in ("x", "x_test"))
        self.y, self.y_test = (torch.from_numpy(work[k].astype(np.int64)) for k in ("y", "y_test"))
        self.clients, self.cohorts = work["clients"], work["cohorts"]
        self.model = network()
        n_threads = len(os.sched_getaffinity(0))
        self.models = [network() for _ in range(n_threads)]
        self.threads = ThreadPoolExecutor(n_threads)
        self.rng = np.random.default_rng(0)

    def inputs(self, x: torch.Tensor) -> torch.Tensor:
        """Return pixels as numbers between 0 and 1, channels last."""
        return (x.float() / 255).contiguous(memory_format=torch.channels_last)

    def train_some(self, model: nn.Module, cohort: np.ndarray, orders: np.ndarray) -> list:
        """Return the sum of the parameters that some clients learn, one after the other."""
        model.train()
        own, start = list(model.parameters()), list(self.model.parameters())
        total = [torch.zeros_like(p) for p in own]
        for client, order in zip(cohort, orders, strict=True):
            with torch.no_grad():
                torch._foreach_copy_(own, start)
            for rows in torch.from_numpy(self.clients[client][order]).split(BATCH):
                loss = F.cross_entropy(model(self.inputs(self.x[rows])), self.y[rows])
                slopes = torch.autograd.grad(loss, own)
                with torch.no_grad():
                    torch._foreach_add_(own, slopes, alpha=-RATE)
            with torch.no_grad():
                torch._foreach_add_(total, own)
        return total

    def round(self, i: int) -> float:
        """Train the i-th cohort and return how long it took."""
        start = time.perf_counter()
        cohort, n = self.cohorts[i], len(self.models)
        orders = np.array([self.rng.permutation(self.clients.shape[1]) for _ in cohort])
        shares = (self.models, np.array_split(cohort, n), np.array_split(orders, n))
        sums = list(self.threads.map(self.train_some, *shares))
        with torch.no_grad():
            for p, *parts in zip(self.model.parameters(), *sums, strict=True):
                p.copy_(sum(parts) / len(cohort))
        return time.perf_counter() - start

    def accuracy(self) -> float:
        """Return the share of right answers on the test data."""
        self.model.eval()
        with torch.no_grad():
            parts = zip(self.x_test.split(500), self.y_test.split(500), strict=True)
            return float(
                np.mean([(self.model(self.inputs(x)).argmax(1) == y).float().mean().item()
                         for x, y in parts])
            )  # fmt: skip


def main() -> None:
    federation = Federation(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        answer = federation.round(int(rest[0])) if word == "round" else federation.accuracy()
        print(answer, flush=True)


if __name__ == "__main__":
    main()
