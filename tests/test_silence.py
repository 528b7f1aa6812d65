"""Clients that stop answering."""

from collections import Counter

import numpy as np
import pytest

from bsfl import BSFL, CsUcb, Discounted, Means, Scheduler, Windowed
from bsfl.policies import make_policy


@pytest.mark.parametrize(
    "policy",
    [
        BSFL(),
        BSFL(index=Means(radius="bernstein")),
        BSFL(memory=Discounted(0.95)),
        BSFL(memory=Windowed(20)),
        make_policy("cs-ucb", tau_max=60.0),
        make_policy("cs-ucb-q", tau_max=60.0),
    ],
    ids=repr,
)
def test_who_stops_answering_is_not_asked_for_ever(policy):
    scheduler = Scheduler(policy, cohort_size=5)
    scheduler.join(range(50))
    for t in range(400):
        cohort = scheduler.select()
        scheduler.observe({k: 1.0 + k for k in cohort if k >= 5 or t <= 10})
    asked = scheduler.state.selected
    assert asked[:5].max() < 3 * np.median(asked[5:])


def test_silent_clients_do_not_take_over():
    """Two clients never report; with m = 2 a cohort of both must not look infinitely good."""
    for policy in (BSFL(alpha=1.0, tau_max=10.0), CsUcb(tau_max=10.0)):
        scheduler, chosen = Scheduler(policy, cohort_size=2), Counter()
        for _ in range(200):
            cohort = scheduler.select(available=range(10))
            chosen.update(cohort)
            scheduler.observe({k: 1.0 + k for k in cohort if k not in (3, 7)})
        assert chosen[3] + chosen[7] < 0.25 * chosen.total()
