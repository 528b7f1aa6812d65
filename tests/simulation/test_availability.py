"""Who can be reached, as phones are."""

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.simulation import SimulatedClients, lognormal
from bsfl.simulation.availability import phones_availability


def test_phones_come_and_go_as_recorded_phones_did():
    rng = np.random.default_rng(0)
    record = phones_availability(20_000, rng, probability=0.08)
    there = record.state == 1
    share = there.mean(axis=0)
    assert there.mean() == pytest.approx(0.08, abs=0.003)
    assert (share == 0).mean() > 0.29, "29 % can never be reached"
    assert np.quantile(share, 0.95) > 0.25, "and some often are"
    stays = (there[1:] & there[:-1]).sum() / there[:-1].sum()
    assert stays == pytest.approx(0.76, abs=0.01)


def test_phones_cannot_be_made_to_be_there_all_the_time():
    with pytest.raises(InvalidInput, match="probability must be"):
        phones_availability(10, np.random.default_rng(0), probability=0.5)


class Numbers:
    """Returns the available clients by their numbers, not a truth value for each client."""

    def reachable(self, t, clock_s, n_clients, rng):
        return np.arange(3)


def test_who_is_there_is_a_yes_or_no_for_each_client():
    latency = lognormal(np.ones(12), np.full(12, 0.1))
    clients = SimulatedClients(latency=latency, tau_min=0.5, tau_max=9.0, availability=Numbers())
    with pytest.raises(InvalidInput, match=r"of the 12 clients, got .* int64 with shape \(3,\)"):
        clients.available(1, 0.0)
