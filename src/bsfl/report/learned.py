"""What the server could learn about each client's speed, against the truth."""

from dataclasses import dataclass

import numpy as np

from bsfl.records import FloatArray, IntArray
from bsfl.runs import Results


@dataclass(frozen=True, slots=True)
class LearnedSpeeds:
    """Speeds tau_min / tau as observed in one run.

    Attributes:
        truth: True mean speed of every client at the end of the run.
        mean: Mean of what was observed, NaN for a client never chosen.
        half: Half width of its 95 % interval, NaN with fewer than two observations.
        count: Observations.
    """

    truth: FloatArray
    mean: FloatArray
    half: FloatArray
    count: IntArray


def learned_speeds(results: Results, label: str, seed: int) -> LearnedSpeeds:
    """Return what a run showed; the world is drawn again, so nothing extra is stored."""
    fleet = results.scenario.world(seed)
    records = results.run_file(label, seed).read()
    total, squares = np.zeros(fleet.n_clients), np.zeros(fleet.n_clients)
    count = np.zeros(fleet.n_clients, dtype=np.int64)
    started_s = np.append(0.0, records["clock_s"][:-1])  # a round starts when the one before ends
    for record, clock_s in zip(records, started_s.tolist(), strict=True):
        cohort = record["cohort"][record["cohort"] >= 0]
        latency = fleet.latencies(int(record["t"]), clock_s)[cohort]
        speed = fleet.tau_min / np.minimum(latency, fleet.tau_max)
        total[cohort] += speed
        squares[cohort] += speed**2
        count[cohort] += 1
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total / count
        variance = np.maximum(squares / count - mean**2, 0.0) * count / (count - 1)
        half = np.where(count > 1, 1.96 * np.sqrt(variance / count), np.nan)
    return LearnedSpeeds(fleet.mean_speed(int(records["t"][-1])), mean, half, count)
