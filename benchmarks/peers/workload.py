"""What every peer trains, and the lines in which benchmarks/training.py tells it to.

A peer first writes `ready` and its versions. It answers a line `round I` with the seconds that it
took to train the I-th cohort, and a line `accuracy` with the share of right answers of its model on
the test images. It ends when there are no more lines.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np

BATCH, RATE, DROPOUT = 20, 0.1, 0.25
N_CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class Workload:
    """Images (uint8) and labels, who holds which, and who trains in which round."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    clients: np.ndarray
    cohorts: np.ndarray

    @classmethod
    def load(cls, path: str) -> "Workload":
        """Read the file that the benchmark wrote."""
        with np.load(path) as arrays:
            return cls(**{name: arrays[name] for name in cls.__slots__})


class Orders:
    """The benchmark's lines and our answers.

    Libraries print: whatever else goes to the standard output ends up on the standard error.
    """

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def ready(self, *packages: str) -> None:
        """Say that training can start, and with which versions."""
        self.answer("ready " + ", ".join(f"{name} {version(name)}" for name in packages))

    def answer(self, value: object) -> None:
        """Write one line."""
        print(value, file=self._answers, flush=True)

    def rounds(self, accuracy: Callable[[], float]) -> Iterator[int]:
        """Yield the number of each round to train, and answer how long it took."""
        for line in sys.stdin:
            word, *rest = line.split()
            if word == "accuracy":
                self.answer(accuracy())
                continue
            start = time.perf_counter()
            yield int(rest[0])
            self.answer(time.perf_counter() - start)
