"""Regret against exhaustive search."""

from dataclasses import replace

import numpy as np
import pytest

from bsfl._core.events import OpenRound
from bsfl.policies import BSFL, CsUcb, Genie, UniformRandom
from bsfl.simulation import (
    Independent,
    Objective,
    RegretMeter,
    Scaled,
    growth_exponent,
    lognormal,
    regret_bound,
    simulate,
)
from bsfl.simulation.simulate import Server
from bsfl.solvers import energy, solve_exhaustive
from bsfl.types import RoundPlan
from small_clients import lognormal_clients


@pytest.mark.parametrize("policy", [UniformRandom(), BSFL(alpha=2.0), CsUcb(tau_max=60.0)])
@pytest.mark.parametrize("availability", [1.0, 0.6])
def test_regret_equals_exhaustive_search_over_the_policys_own_history(policy, availability):
    clients = lognormal_clients(8, availability=Independent(availability))
    objective = Objective(alpha=2.0, beta=2)
    mu = clients.mean_speed(1)
    count = np.zeros(8)
    for record in simulate(policy, clients, cohort_size=3, rounds=40, objective=objective):
        available = clients.available(record.round, 0.0)
        deviation = 3 / 8 - count[available] / record.round
        g = np.sign(deviation) * deviation**2
        cohort = np.searchsorted(available, record.cohort)
        gap = 0.0
        if len(available) > 3:
            best = solve_exhaustive(mu[available], g, 3, 2.0)
            gap = energy(mu[available], g, best, 2.0) - energy(mu[available], g, cohort, 2.0)
        assert record.regret == pytest.approx(gap, abs=1e-12)
        count[list(record.cohort)] += 1


def test_the_genie_has_no_regret():
    clients = lognormal_clients(15)
    genie = Genie(mean_speed=clients.mean_speed(1), alpha=3.0)
    records = simulate(genie, clients, cohort_size=4, rounds=60, objective=Objective(alpha=3.0))
    assert sum(r.regret for r in records) == pytest.approx(0.0, abs=1e-9)


def test_the_meter_follows_clients_that_change():
    factor = np.array([10.0, 1, 1, 1, 1, 1])
    latency = Scaled(lognormal(np.full(6, 5.0), np.zeros(6)), factor, at=3)
    clients = lognormal_clients(6, latency=latency)
    meter = RegretMeter(Objective(alpha=0.0), clients)
    engine = Server(UniformRandom(), clients, RoundPlan(target_responses=2)).engine
    context = engine.decide(OpenRound(), 0.0).context
    cohort = np.array([0, 1])
    regrets = [meter.regret(replace(context, round=t), cohort) for t in (1, 2, 3, 4)]
    # speeds 1/5 for all; from round 3 on client 0 needs 50 s
    assert regrets == pytest.approx([0, 0, 1 / 5 - 1 / 50, 1 / 5 - 1 / 50])


def test_growth_exponents():
    rounds = np.arange(1.0, 10_001)
    assert growth_exponent(5 * rounds, 1000, 10_000) == pytest.approx(1.0)
    assert growth_exponent(np.log(rounds + 1), 1000, 10_000) == pytest.approx(0.125, abs=0.01)
    assert np.isnan(growth_exponent(np.zeros(100), 10, 100))


def test_the_bound_by_hand():
    # 2 * 3 * (4 * 3 * ln e / 0.5^2 + 1 + pi^2 / 3), at n = e
    bound = regret_bound(np.array([np.e]), n_clients=3, cohort_size=2, delta_max=2.0, delta_min=0.5)
    assert bound == pytest.approx([6 * (48 + 1 + np.pi**2 / 3)])
