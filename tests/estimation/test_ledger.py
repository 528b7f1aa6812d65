"""What the server counts: fair numbers by opportunity, and the chance that a client answers."""

import numpy as np
import pytest

from bsfl.estimation.ledger import Ledger
from bsfl.records import Observation, Report


def test_a_fair_number_is_a_part_of_the_rounds_in_which_a_client_was_available():
    ledger = Ledger.of(4)
    ledger.offer(np.arange(4), 2)
    ledger.offer(np.array([0, 1, 2]), 2)
    ledger.offer(np.array([0]), 2)
    ledger.offer(np.array([], dtype=np.int64), 2)
    assert ledger.opportunity.tolist() == pytest.approx([0.5 + 2 / 3 + 1, 0.5 + 2 / 3, 7 / 6, 0.5])


def test_the_chance_to_answer_is_learned_of_the_client_and_of_the_fleet():
    ledger = Ledger.of(3)
    good, late, bad = (
        Observation(latency=1.0),
        Observation(latency=1.0, outcome="late"),
        Observation(outcome="failed"),
    )
    for t in range(20):
        ledger.hear(Report.of({0: late if t % 2 else good, 1: bad}, chosen=[0, 1]))
    chance = ledger.chance(np.arange(3))
    usual = (20 + 9) / (40 + 10)
    assert chance.tolist() == pytest.approx([(20 + 5 * usual) / 25, 5 * usual / 25, usual])
