"""What the server counts of its clients whatever the policy: chances to take part, and answers."""

from dataclasses import dataclass

import numpy as np

from bsfl import checks
from bsfl.records import BoolArray, FloatArray, IntArray, Report, pick
from bsfl.state import ClientState, number, per_client

PRIOR = 9.0, 1.0
"""Answers and misses that are supposed of a fleet before the first."""
STRENGTH = 5.0
"""Invitations that the fleet's own chance is worth beside a client's few."""


@dataclass(slots=True, kw_only=True)
class Ledger(ClientState):
    """Chances and answers of every client.

    Attributes:
        opportunity: e_k, its fair number of answers: the sum of min(1, m / |A|) over the rounds in
            which it was one of the available A. Who was away is owed nothing for that time.
        answered, missed: Invitations that it answered, and that it did not answer in time.
        n_answered, n_missed: The same of the whole fleet.
        last_chance: Mean chance to answer of the last cohort whose size was found by it.
    """

    opportunity: FloatArray = per_client(0.0, low=0.0, high=checks.LARGEST)
    answered: IntArray = per_client(0)
    missed: IntArray = per_client(0)
    n_answered: int = 0
    n_missed: int = 0
    last_chance: float = number(PRIOR[0] / sum(PRIOR), low=0.01, high=1.0)

    def offer(self, available: IntArray, quota: int) -> None:
        """Book a round in which `quota` of the available clients could take part."""
        share = min(1.0, quota / max(len(available), 1))
        if len(available) == len(self.opportunity):
            self.opportunity += share
        else:
            self.opportunity[available] += share

    def hear(self, report: Report) -> None:
        """Book what became of invitations."""
        answered: BoolArray = report.answered
        self.answered[report.clients[answered]] += 1
        self.missed[report.clients[~answered]] += 1
        self.n_answered += int(np.count_nonzero(answered))
        self.n_missed += int(np.count_nonzero(~answered))

    def chance(self, clients: IntArray) -> FloatArray:
        """Return s_k, the chance that each client answers in time: its own record and the fleet's.

        >>> ledger = Ledger.of(2)
        >>> ledger.chance(np.arange(2))
        array([0.9, 0.9])
        """
        answers, misses = PRIOR
        usual = (self.n_answered + answers) / (self.n_answered + self.n_missed + answers + misses)
        answered, missed = pick(self.answered, clients), pick(self.missed, clients)
        return np.asarray((answered + STRENGTH * usual) / (answered + missed + STRENGTH))
