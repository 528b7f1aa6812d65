"""Use the Scheduler in a training loop of your own: choose, train in parallel, report what you saw.

python examples/plain_loop.py
"""

import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed

import numpy as np

from bsfl import BSFL, Observation, Scheduler, UniformRandom

Update = np.ndarray
TRUTH = np.array([2.0, -1.0, 0.5])


class Device:
    """A client far away: it fits a line to data of its own, and some need longer than others."""

    def __init__(self, seed: int, seconds: float) -> None:
        rng = np.random.default_rng(seed)
        self.x = rng.normal(size=(50, len(TRUTH)))
        self.y = self.x @ TRUTH + rng.normal(scale=0.1, size=50)
        self.seconds = seconds

    def train(self, w: np.ndarray) -> Update:
        """Return new weights after some work."""
        time.sleep(self.seconds)
        return w - 0.2 * self.x.T @ (self.x @ w - self.y) / len(self.y)


def play_round(
    scheduler: Scheduler,
    clients: dict[str, Callable[[np.ndarray], Update]],
    w: np.ndarray,
    pool: Executor,
    deadline_s: float,
) -> np.ndarray:
    """Train one cohort and return the average of what came before the deadline."""
    cohort = scheduler.select(available=clients)
    start = time.monotonic()
    jobs = {pool.submit(clients[name], w): name for name in cohort}
    seen, updates = {}, []
    try:
        for job in as_completed(jobs, timeout=deadline_s):
            seconds = time.monotonic() - start
            if job.exception() is None:
                updates.append(job.result())
                seen[jobs[job]] = Observation(latency=seconds)
            else:
                seen[jobs[job]] = Observation(outcome="failed")
    except TimeoutError:
        late = Observation(latency=deadline_s, outcome="timeout")
        seen |= {name: late for name in cohort if name not in seen}
    scheduler.observe(seen)
    return np.mean(updates, axis=0) if updates else w


def main(rounds: int = 40) -> dict[str, float]:
    """Train under both policies; print and return the seconds that each one took."""
    taken = {}
    for name, policy in (("bsfl", BSFL(alpha=2.0)), ("random", UniformRandom())):
        devices = {f"device-{k}": Device(k, 0.01 if k < 8 else 0.1) for k in range(12)}
        clients = {client: device.train for client, device in devices.items()}
        scheduler = Scheduler(policy, cohort_size=3, seed=0)
        w = np.zeros(len(TRUTH))
        start = time.monotonic()
        with ThreadPoolExecutor(max_workers=12) as pool:
            for _ in range(rounds):
                w = play_round(scheduler, clients, w, pool, deadline_s=1.0)
        taken[name] = time.monotonic() - start
        print(f"{name}: {taken[name]:.2f} s, weights {w.round(2)}")
    return taken


if __name__ == "__main__":
    main()
