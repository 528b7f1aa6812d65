"""Clients that come once are forgotten, and unresponsive ones are not waited for without end."""

import pytest

from attacks import of_long_form
from bsfl import BSFL, Lognormal, Oort, Pace, Scheduler
from bsfl._core.rounds import Rounds
from bsfl.types import Observation

N_ONCE, N_ONCE_FEW = 1_000_000, 3_000
"""Clients that come once."""
N_SILENT, N_SILENT_FEW = 250_000, 900
"""Invitations that nobody answers."""
REGULARS = [f"regular-{k}" for k in range(50)]
FORGET_AFTER = 20
SLACK = 1.5
"""Times a scheduler may be as large as a fresh one of the living fleet."""


def pass_by(policy, n_once, n_each, folder):
    """Let clients come once, so many in each round, and compare with a fresh scheduler."""
    scheduler = Scheduler(policy, cohort_size=10, forget_after=FORGET_AFTER)
    most, rounds, seen = 0, n_once // n_each, []
    for t in range(rounds):
        seen.append([f"once-{t * n_each + k}" for k in range(n_each)])
        cohort = scheduler.select([*REGULARS, *seen[-1]])
        answer = Observation(latency_s=1.0 + t % 3, loss=1.0, samples=10)
        scheduler.observe(dict.fromkeys(cohort[: len(cohort) // 2], answer))
        most = max(most, len(scheduler._ids))
        del seen[: -FORGET_AFTER - 1]
    living = REGULARS + [client for one in seen for client in one]
    fresh = Scheduler(policy, cohort_size=10)
    fresh.observe(dict.fromkeys(fresh.select(living), answer))
    for name, one in (("old", scheduler), ("fresh", fresh)):
        one.save(folder / name)
    old_bytes, fresh_bytes = (folder / "old").stat().st_size, (folder / "fresh").stat().st_size
    print(
        f"{rounds * n_each:,} clients in {rounds:,} rounds: at most {most:,} in the table for "
        f"{len(living):,} that live, {old_bytes:,} bytes for {fresh_bytes:,}"
    )
    assert set(living) == set(scheduler._ids.names) & set(living)
    assert most <= SLACK * len(living)
    assert scheduler._engine.n_rows <= SLACK * len(living)
    assert old_bytes <= SLACK * fresh_bytes
    assert Scheduler.load(folder / "old").round == rounds


@pytest.mark.parametrize("policy", [Pace(), BSFL(index=Lognormal()), Oort(tau_max=20.0)], ids=repr)
def test_a_few_clients_that_come_once_are_forgotten(policy, fast_folder):
    pass_by(policy, N_ONCE_FEW, 30, fast_folder)


@pytest.mark.attack
def test_a_million_clients_that_come_once_are_forgotten(fast_folder):
    pass_by(Pace(), of_long_form(N_ONCE), 1_000, fast_folder)


def silence(n_invitations, n_each, most, folder):
    """Never answer; return how many answers are waited for."""
    scheduler = Scheduler(cohort_size=n_each)
    scheduler.join(range(3 * n_each))
    for _ in range(n_invitations // n_each):
        scheduler.select()
        assert scheduler._engine.rounds.n_pending <= most
    n_waiting, n_rounds = scheduler._engine.rounds.n_pending, len(scheduler._engine.rounds)
    print(f"{n_invitations:,} invitations: {n_waiting:,} waited for, of {n_rounds:,} rounds")
    assert most - n_each < n_waiting <= most
    assert n_rounds <= n_waiting
    scheduler.save(folder / "s.bsfl")
    loaded = Scheduler.load(folder / "s.bsfl")
    assert sorted(loaded.in_flight) == sorted(scheduler.in_flight)
    assert loaded.select() == scheduler.select()
    loaded.observe(dict.fromkeys(loaded.in_flight, 1.0), strict=True)


def test_a_few_silent_clients_are_not_waited_for(fast_folder, monkeypatch):
    monkeypatch.setattr(Rounds, "MAX_PENDING", 200)
    silence(N_SILENT_FEW, 10, 200, fast_folder)


@pytest.mark.attack
def test_many_silent_clients_are_not_waited_for(fast_folder):
    silence(N_SILENT, 100, Rounds.MAX_PENDING, fast_folder)
