"""A Selected on a fake grid, and a scheduler that remembers what was reported to it."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from fake_grid import FakeGrid
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg

from bsfl import Scheduler, UniformRandom
from bsfl.integrations.flower import Selected
from fake_clock import FakeClock
from memory_journal import MemoryJournal

ARRAYS = ArrayRecord({"w": Array(np.zeros(2))})


class Spy(Scheduler):
    """A scheduler that remembers what was reported to it, and publishes to memory."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, journal=MemoryJournal(), **kwargs)
        self.reported = []

    @property
    def journal(self):
        return self._publisher.journal

    def observe(self, responses, **options):
        rejected = super().observe(responses, **options)
        timed = {k: o for k, o in responses.items() if o.latency_s}
        self.reported += [(k, o.outcome, round(o.latency_s, 1)) for k, o in timed.items()]
        return rejected


def federation(nodes, *, strategy=None, scheduler=None, cohort_size=2, **options):
    """Return a Selected on a fake grid, and the grid."""
    grid = FakeGrid(nodes, FakeClock())
    scheduler = scheduler or Spy(UniformRandom(), cohort_size=cohort_size)
    selected = Selected(strategy or FedAvg(fraction_evaluate=0.0), scheduler, **options)
    selected._clock = grid.clock
    return selected, grid


def start(selected, grid, rounds=1, **kwargs):
    return selected.start(grid=grid, initial_arrays=ARRAYS, num_rounds=rounds, **kwargs)
