"""Clients that stop responding."""

from collections import Counter

import numpy as np
import pytest

from bsfl import BSFL, CsUcb, Discounted, Scheduler, SlidingWindow, UCBIndex
from bsfl.policies import make_policy


@pytest.mark.parametrize(
    "policy",
    [
        BSFL(),
        BSFL(index=UCBIndex(confidence_width="bernstein")),
        BSFL(memory=Discounted(0.95)),
        BSFL(memory=SlidingWindow(20)),
        make_policy("cs-ucb", tau_max=60.0),
        make_policy("cs-ucb-q", tau_max=60.0),
    ],
    ids=repr,
)
def test_a_client_that_stops_responding_is_not_selected_for_ever(policy):
    scheduler = Scheduler(policy, cohort_size=5)
    scheduler.join(range(50))
    for t in range(400):
        cohort = scheduler.select()
        scheduler.observe({k: 1.0 + k for k in cohort if k >= 5 or t <= 10}, round=cohort)
    selected = np.array([row["invitations"] for row in scheduler.table()])
    assert selected[:5].max() < 3 * np.median(selected[5:])


def test_unresponsive_clients_do_not_take_over():
    """Two clients never report; with m = 2 a cohort of both must not look infinitely good."""
    for policy in (BSFL(alpha=1.0, tau_max=10.0), CsUcb(tau_max=10.0)):
        scheduler, selected = Scheduler(policy, cohort_size=2), Counter()
        for _ in range(200):
            cohort = scheduler.select(available=range(10))
            selected.update(cohort)
            scheduler.observe({k: 1.0 + k for k in cohort if k not in (3, 7)}, round=cohort)
        assert selected[3] + selected[7] < 0.25 * selected.total()
