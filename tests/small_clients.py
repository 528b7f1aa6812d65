"""A few simulated clients for tests."""

import numpy as np

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
