"""A journal that keeps its entries in memory, for tests of what is published."""

from bsfl import Scheduler, UniformRandom
from bsfl.dashboard.sums import Sums
from bsfl.monitoring import Journal


class MemoryJournal(Journal):
    """Entries in the order in which they were published."""

    def __init__(self, *, availability=False):
        self.entries, self.availability = [], availability

    def put(self, entries):
        self.entries += entries

    def flush(self):
        pass

    def of_kind(self, *kinds):
        return [entry for entry in self.entries if entry["kind"] in kinds]

    def results(self):
        """Return (round, client, outcome, whether late, whether dropped) of every report."""
        return [
            (entry["round"], client, outcome, entry["is_late"], entry["dropped"])
            for entry in self.of_kind("responses")
            for client, outcome in zip(entry["clients"], entry["outcome"], strict=True)
        ]

    def followed(self):
        """Return the sums over all entries."""
        sums = Sums()
        for entry in self.entries:
            sums.add(entry)
        return sums


def started(policy=None, **settings):
    """Return a scheduler, by default with random selection of two clients, and its journal."""
    journal = MemoryJournal()
    settings = {"cohort_size": 2, "journal": journal, **settings}
    return Scheduler(policy or UniformRandom(), **settings), journal


def run(scheduler, rounds, clients):
    """Run rounds in which the first client responds in 1 s, the second in 2 s, and so on."""
    for _ in range(rounds):
        cohort = scheduler.select(clients)
        scheduler.observe({c: 1.0 + clients.index(c) for c in cohort})
