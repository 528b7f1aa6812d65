"""A few simulated clients for tests, and what they train."""

from dataclasses import dataclass

import numpy as np

from bsfl.learning import Evaluation, Update
from bsfl.simulation import SimulatedClients, lognormal
from bsfl.simulation.latency import Recorded


def lognormal_clients(k=12, seed=0, **more):
    """Return k clients with medians of 2 to 30 s."""
    medians = np.random.default_rng(seed).uniform(2.0, 30.0, k)
    settings = {"latency": lognormal(medians, np.full(k, 0.2)), "tau_min": 1.0, "tau_max": 60.0}
    return SimulatedClients(**(settings | {"seed": seed} | more))


def steady_clients(*latencies, tau_max=100.0):
    """Return clients of which client k always takes latencies[k]."""
    known = [np.array([seconds]) for seconds in latencies]
    return SimulatedClients(latency=Recorded(known), tau_min=0.1, tau_max=tau_max)


@dataclass(frozen=True)
class HalfWay:
    """A task in one dimension: client k, with k + 1 samples, moves the model half way to k + 1."""

    first: float = 0.0
    n_clients: int = 12

    @property
    def samples(self):
        return np.arange(1, self.n_clients + 1)

    def init(self, seed):
        return np.array(self.first)

    def train(self, params, clients, *, t, seed):
        return [
            Update(client=k, params=params + (k + 1 - params) / 2, loss=float(k), samples=k + 1)
            for k in clients.tolist()
        ]

    def aggregate(self, params, updates, weights):
        return sum(w * u.params for w, u in zip(weights, updates, strict=True))

    def evaluate(self, params):
        return Evaluation(loss=float(params))
