"""Clients that come once are forgotten, and the scheduler does not grow."""

import pytest

from attacks import of_long_form
from bsfl import BSFL, Lognormal, Oort, Pace, Scheduler
from bsfl.types import Observation

REGULARS = [f"regular-{k}" for k in range(50)]
FORGET_AFTER = 20
SLACK = 1.5
"""Times a scheduler may be as large as a fresh one with the clients of the last rounds."""


def pass_by(policy, n_clients, n_each, folder):
    """Let clients come once, so many in each round, and compare with a fresh scheduler."""
    scheduler = Scheduler(policy, cohort_size=10, forget_after=FORGET_AFTER)
    most, n_rounds, lately = 0, n_clients // n_each, []
    for t in range(n_rounds):
        lately.append([f"once-{t * n_each + k}" for k in range(n_each)])
        cohort = scheduler.select([*REGULARS, *lately[-1]])
        response = Observation(latency_s=1.0 + t % 3, loss=1.0, samples=10)
        scheduler.observe(dict.fromkeys(cohort[: len(cohort) // 2], response))
        most = max(most, len(scheduler._ids))
        del lately[: -FORGET_AFTER - 1]
    living = REGULARS + [client for one in lately for client in one]
    fresh = Scheduler(policy, cohort_size=10)
    fresh.observe(dict.fromkeys(fresh.select(living), response))
    scheduler.save(folder / "old")
    fresh.save(folder / "fresh")
    assert set(living) <= set(scheduler.clients)
    assert most <= SLACK * len(living)
    assert scheduler._engine.n_rows <= SLACK * len(living)
    assert (folder / "old").stat().st_size <= SLACK * (folder / "fresh").stat().st_size
    assert Scheduler.load(folder / "old").round == n_rounds


@pytest.mark.parametrize("policy", [Pace(), BSFL(index=Lognormal()), Oort(tau_max=20.0)], ids=repr)
def test_a_few_clients_that_come_once_are_forgotten(policy, fast_folder):
    pass_by(policy, 3_000, 30, fast_folder)


@pytest.mark.attack
def test_a_million_clients_that_come_once_are_forgotten(fast_folder):
    pass_by(Pace(), of_long_form(1_000_000), 1_000, fast_folder)
