"""Use bsfl in a custom training loop: select clients, train in parallel, record the responses.

python examples/plain_loop.py
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait

import numpy as np

from bsfl import Pace, RoundPlan, Scheduler, UniformRandom
from bsfl.rounds import RoundManager

TRUTH = np.array([2.0, -1.0, 0.5])


class Device:
    """A remote client: it fits a line to its own data, and some take longer than others."""

    def __init__(self, seed: int, seconds: float, *, is_broken: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.x = rng.normal(size=(50, len(TRUTH)))
        self.y = self.x @ TRUTH + rng.normal(scale=0.1, size=50)
        self.seconds, self.is_broken = seconds, is_broken

    def train(self, w: np.ndarray) -> np.ndarray:
        """Return new weights after some work."""
        time.sleep(self.seconds)
        if self.is_broken:
            raise RuntimeError("out of battery")
        return w - 0.2 * self.x.T @ (self.x @ w - self.y) / len(self.y)


def run_round(
    rounds: RoundManager[Future],
    clients: Mapping[str, Callable[[np.ndarray], np.ndarray]],
    w: np.ndarray,
    pool: Executor,
) -> np.ndarray:
    """Train one cohort and return the average of the models that count."""
    idle = clients.keys() - rounds.invitations.busy
    jobs = {name: pool.submit(clients[name], w) for name in rounds.open(idle)}
    rounds.sent(jobs)
    while not rounds.is_over():
        pending = rounds.invitations.tokens  # stragglers of earlier rounds, too
        done, _ = wait(pending, timeout=rounds.pause_s(), return_when=FIRST_COMPLETED)
        rounds.record({job: "failed" if job.exception() else "ok" for job in done})
    kept = rounds.close().kept
    return np.mean([jobs[name].result() for name in kept], axis=0) if kept else w


def main(n_rounds: int = 40) -> None:
    """Train under both policies and print how long each took."""
    plan = RoundPlan(target_responses=4, over_selection=1.25, deadline_s=10.0, late="drop")
    for name, policy in (("pace", Pace()), ("random", UniformRandom())):
        devices = {f"device-{k}": Device(k, 0.01 if k < 6 else 0.1) for k in range(12)}
        devices["device-5"].is_broken = True
        clients = {client: device.train for client, device in devices.items()}
        rounds: RoundManager[Future] = RoundManager(Scheduler(policy, cohort_size=4), plan)
        w, start = np.zeros(len(TRUTH)), time.monotonic()
        with ThreadPoolExecutor(max_workers=12) as pool:
            for _ in range(n_rounds):
                w = run_round(rounds, clients, w, pool)
        print(f"{name}: {time.monotonic() - start:.2f} s, weights {w.round(2)}")


if __name__ == "__main__":
    main()
