"""A journal that keeps its entries in memory, for tests of what is published."""

from bsfl.dashboard.follow import Followed
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
        sums = Followed()
        for entry in self.entries:
            sums.add(entry)
        return sums
