"""Clients that stop answering."""

import numpy as np
import pytest

from bsfl import BSFL, Scheduler
from bsfl.policies import make_policy


@pytest.mark.parametrize(
    "policy",
    [
        BSFL(),
        BSFL(radius="bernstein"),
        BSFL(discount=0.95),
        BSFL(window=20),
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
