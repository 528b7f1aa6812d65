"""A Selected or a Buffered on a fake grid, and a scheduler that remembers what was reported."""

import numpy as np
from fake_grid import Adding, FakeGrid
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg

from bsfl import Scheduler, UniformRandom
from bsfl.integrations.flower import Buffered, Selected
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


class Run:
    """A wrapped strategy on a fake grid; it may be started several times."""

    def __init__(self, strategy, grid):
        self.strategy, self.grid, self.result = strategy, grid, None
        strategy._clock = grid.clock

    def start(self, rounds=1, **arguments):
        self.result = self.strategy.start(
            grid=self.grid, initial_arrays=ARRAYS, num_rounds=rounds, **arguments
        )
        return self

    @property
    def scheduler(self):
        return self.strategy.scheduler

    @property
    def clients(self):
        return self.scheduler.clients

    @property
    def rounds(self):
        return self.strategy.rounds

    @property
    def cohorts(self):
        return [sorted(played.cohort) for played in self.rounds]

    @property
    def model(self):
        """The first weight of the model."""
        return float(self.result.arrays["w"].numpy()[0])

    @property
    def seconds(self):
        """How long it has taken on the server's clock."""
        return self.grid.clock.now - 1000.0


def federation(nodes, *, strategy=None, scheduler=None, cohort_size=2, grid=FakeGrid, **options):
    """Return a Selected that has not been started."""
    scheduler = scheduler or Spy(UniformRandom(), cohort_size=cohort_size)
    strategy = strategy or FedAvg(fraction_evaluate=0.0)
    return Run(Selected(strategy, scheduler, **options), grid(nodes, FakeClock()))


def train(nodes, rounds=1, **options):
    """Return a Selected after some rounds."""
    return federation(nodes, **options).start(rounds)


def buffered(nodes, *, strategy=None, scheduler=None, concurrency=2, buffer=1, **options):
    """Return a Buffered that has not been started."""
    scheduler = scheduler or Spy(UniformRandom(), cohort_size=concurrency)
    strategy = strategy or FedAvg(fraction_evaluate=0.0)
    made = Buffered(strategy, scheduler, concurrency=concurrency, buffer=buffer, **options)
    return Run(made, Adding(nodes, FakeClock()))
