"""The loop, the clock, and regret against exhaustive search."""

from dataclasses import replace

import numpy as np
import pytest

from bsfl._core.events import OpenRound
from bsfl.errors import InvalidInput
from bsfl.estimators.fairness import gini, participation
from bsfl.learning import Evaluation, Update
from bsfl.policies import BSFL, CsUcb, Genie, UniformRandom
from bsfl.rounds import BufferPlan
from bsfl.simulation import (
    Flaky,
    Independent,
    Intervals,
    Objective,
    RegretMeter,
    Scaled,
    SimulatedClients,
    Training,
    growth_exponent,
    lognormal,
    regret_bound,
    simulate,
)
from bsfl.simulation.in_flight import report_of, round_duration
from bsfl.simulation.simulate import engine_for
from bsfl.solvers import energy, solve_exhaustive
from bsfl.types import TIMEOUT, RoundPlan, RoundReport


def fleet(k=12, seed=0, **more):
    medians = np.random.default_rng(seed).uniform(2.0, 30.0, k)
    settings = {"latency": lognormal(medians, np.full(k, 0.2)), "tau_min": 1.0, "tau_max": 60.0}
    return SimulatedClients(**(settings | {"seed": seed} | more))


def run(*cohort, latencies, **settings):
    """Return the duration of a round, its report, and the clients that are still pending."""
    settings = {"target_responses": max(len(cohort), 1), "deadline_s": 60.0} | settings
    plan, clients = RoundPlan(**settings), np.array(cohort, dtype=int)
    latency_s = np.array(latencies)[clients]
    duration_s = round_duration(latency_s, plan)
    report, pending = report_of(clients, latency_s, duration_s, plan)
    return duration_s, report, clients[pending].tolist()


def n_timeouts(report):
    return np.count_nonzero(report.outcome == TIMEOUT)


class Cheats(UniformRandom):
    """Selects any client, available or not."""

    def select(self, state, context, rng):
        return (
            np.arange(context.n_invited)
            if context.round > 3
            else super().select(state, context, rng)
        )


@pytest.mark.parametrize("plan", [None, BufferPlan(concurrency=3, buffer=3)])
def test_no_policy_wins_by_selecting_clients_that_are_not_available(plan):
    clients = fleet(availability=Independent(0.3))
    rounds = simulate(Cheats(), clients, cohort_size=3, rounds=50, plan=plan)
    with pytest.raises(
        InvalidInput, match="must select . distinct available clients.* not available"
    ):
        list(rounds)


def test_a_policy_may_return_a_list_and_must_be_an_object():
    class Lists(UniformRandom):
        def select(self, state, context, rng):
            return super().select(state, context, rng).tolist()

    assert len(list(simulate(Lists(), fleet(), cohort_size=3, rounds=5))) == 5
    with pytest.raises(InvalidInput, match="did you mean UniformRandom"):
        list(simulate(UniformRandom, fleet(), cohort_size=3, rounds=5))


def test_a_round_lasts_as_long_as_its_slowest_member_up_to_the_deadline():
    latencies = [1.0, 5.0, 70.0, np.inf]
    duration_s, report, _ = run(0, 1, latencies=latencies)
    assert (duration_s, n_timeouts(report)) == (5.0, 0)
    duration_s, report, _ = run(1, 2, 3, latencies=latencies)
    assert (duration_s, n_timeouts(report)) == (60.0, 2)
    assert report.latency_s.tolist() == [5.0, 60.0, 60.0]
    assert report.outcome.tolist() == [0, 1, 1]
    duration_s, _, _ = run(latencies=latencies)
    assert duration_s == 60.0, "waiting for clients to come takes time, too"


def test_responses_at_the_deadline_are_in_time():
    latencies = [60.0, 60.0, np.nextafter(60.0, 61.0), 2.0]
    duration_s, report, _ = run(0, 1, 2, 3, latencies=latencies)
    assert (duration_s, n_timeouts(report)) == (60.0, 1)
    assert report.outcome.tolist() == [0, 0, 1, 0]


def test_rounds_on_the_virtual_clock_follow_the_plan():
    """Over-selection ends at the m-th response; min_responses may come after the deadline."""
    duration_s, report, pending = run(0, 1, 2, latencies=[9.0, 3.0, 5.0], target_responses=2)
    assert (duration_s, n_timeouts(report)) == (5.0, 0)
    assert report.clients.tolist() == [1, 2]
    assert pending == [0], "not overdue yet"
    duration_s, report, _ = run(0, 1, 2, latencies=[5.0, 3.0, 5.0], target_responses=2)
    assert (duration_s, n_timeouts(report)) == (5.0, 0), "a tie"
    for latencies, seconds in (([1.0, 80.0, 80.0, 90.0], 80.0), ([1.0, 130.0, 99.0], 99.0)):
        everyone = range(len(latencies))
        duration_s, report, _ = run(*everyone, latencies=latencies, min_responses=2)
        assert (duration_s, n_timeouts(report)) == (seconds, 1)
    duration_s, report, _ = run(0, 1, latencies=[1.0, 130.0], min_responses=2)
    assert (duration_s, n_timeouts(report)) == (120.0, 1), "the invitations expire"


def test_the_clock_adds_up_what_the_fleet_drew():
    clients = fleet()
    records = list(simulate(UniformRandom(), clients, cohort_size=3, rounds=20, seed=4))
    clock = 0.0
    for record in records:
        clock += min(clients.latencies(record.round, clock)[list(record.cohort)].max(), 60.0)
        assert record.clock_s == pytest.approx(clock)
    assert [r.round for r in records] == list(range(1, 21))


def test_every_policy_selects_among_the_same_clients():
    """Policies that select the same clients in a round see the same latencies."""
    seen = {}

    class Recorder(UniformRandom):
        def observe(self, state, context, report):
            seen.setdefault(context.round, []).append(
                dict(zip(report.clients, report.latency_s, strict=True))
            )

    for seed in (1, 2):
        for _ in simulate(Recorder(), fleet(), cohort_size=8, rounds=10, seed=seed):
            pass
    for first, second in seen.values():
        common = set(first) & set(second)
        assert common
        assert all(first[k] == second[k] for k in common)


@pytest.mark.parametrize("policy", [UniformRandom(), BSFL(alpha=2.0), CsUcb(tau_max=60.0)])
@pytest.mark.parametrize("availability", [1.0, 0.6])
def test_regret_equals_exhaustive_search_over_the_policys_own_history(policy, availability):
    clients = fleet(8, availability=Independent(availability))
    objective = Objective(alpha=2.0, beta=2)
    mu = clients.mean_speed(1)
    count = np.zeros(8)
    for record in simulate(policy, clients, cohort_size=3, rounds=40, objective=objective):
        available = clients.available(record.round, 0.0)
        deviation = 3 / 8 - count[available] / record.round
        g = np.sign(deviation) * deviation**2
        cohort = np.searchsorted(available, record.cohort)
        if len(available) > 3:
            best = solve_exhaustive(mu[available], g, 3, 2.0)
            gap = energy(mu[available], g, best, 2.0) - energy(mu[available], g, cohort, 2.0)
            assert record.regret == pytest.approx(gap, abs=1e-12)
        else:
            assert record.regret == 0.0
        count[list(record.cohort)] += 1


def test_the_genie_has_no_regret():
    clients = fleet(15)
    genie = Genie(mean_speed=clients.mean_speed(1), alpha=3.0)
    records = simulate(genie, clients, cohort_size=4, rounds=60, objective=Objective(alpha=3.0))
    assert sum(r.regret for r in records) == pytest.approx(0.0, abs=1e-9)


def test_the_meter_follows_a_fleet_that_changes():
    k = 6
    factor = np.array([10.0, 1, 1, 1, 1, 1])
    clients = fleet(k, latency=Scaled(lognormal(np.full(k, 5.0), np.zeros(k)), factor, at=3))
    meter = RegretMeter(Objective(alpha=0.0), clients)
    engine = engine_for(UniformRandom(), clients, RoundPlan(target_responses=2))
    context = engine.decide(OpenRound(), 0.0).context
    cohort = np.array([0, 1])
    regrets = [meter.regret(replace(context, round=t), cohort) for t in (1, 2, 3, 4)]
    # speeds 1/5 for all; from round 3 on client 0 needs 50 s
    assert regrets == pytest.approx([0, 0, 1 / 5 - 1 / 50, 1 / 5 - 1 / 50])


def test_lost_responses_cost_the_deadline():
    clients = fleet(5, latency=Flaky(lognormal(np.full(5, 2.0), np.zeros(5)), 1.0))
    (record,) = simulate(UniformRandom(), clients, cohort_size=2, rounds=1)
    assert (record.duration_s, record.n_timeouts) == (60.0, 2)


def test_clients_come_and_go_while_the_clock_runs():
    """Everyone takes 2 s; clients 0 and 1 are online in [0, 5), client 2 in [3, 8) of every 100."""
    lives = Intervals(
        np.array([0.0, 0.0, 3.0]), np.array([5.0, 5.0, 8.0]), np.arange(4), period_s=100.0
    )
    seen = []

    class Recorder(UniformRandom):
        def select(self, state, context, rng):
            seen.append((context.available.tolist(), context.online_s.tolist()))
            return super().select(state, context, rng)

    clients = fleet(3, latency=lognormal(np.full(3, 2.0), np.zeros(3)), availability=lives)
    records = list(simulate(Recorder(), clients, cohort_size=3, rounds=5))
    # at 4 clients 0 and 1 leave before they are done, and the round lasts 60 s; at 64 and 124
    # no client is online
    assert seen[:3] == [([0, 1], [0, 0]), ([0, 1], [2, 2]), ([0, 1, 2], [4, 4, 1])]
    assert [r.clock_s for r in records] == [2, 4, 64, 124, 184]
    assert [r.n_timeouts for r in records] == [0, 0, 2, 0, 0]


def test_how_long_a_client_has_been_online_is_not_always_known():
    class Recorder(UniformRandom):
        def observe(self, state, context, report):
            assert context.online_s is None

    list(simulate(Recorder(), fleet(), cohort_size=3, rounds=2))


def test_no_client_available_is_a_round_too():
    clients = fleet(5, availability=Independent(0.0))
    records = list(simulate(BSFL(), clients, cohort_size=2, rounds=3, objective=Objective()))
    assert [r.cohort for r in records] == [()] * 3
    assert records[-1].clock_s == 3 * 60.0
    assert records[0].is_short


@pytest.mark.slow
def test_bsfl_beats_random_and_comes_close_to_the_genie():
    clients = fleet(40, seed=3)
    policies = {
        "bsfl": BSFL(alpha=4.0),
        "random": UniformRandom(),
        "genie": Genie(mean_speed=clients.mean_speed(1), alpha=4.0),
    }
    clock, spread = {}, {}
    for name, policy in policies.items():
        records = list(simulate(policy, clients, cohort_size=5, rounds=400))
        clock[name] = records[-1].clock_s
        spread[name] = gini(participation(np.array([r.cohort for r in records]), 40))
    assert clock["bsfl"] < 0.8 * clock["random"]
    assert clock["bsfl"] < 1.2 * clock["genie"]
    assert spread["bsfl"] < 0.1


def test_policies_get_reports_and_no_truth():
    class Nosy(UniformRandom):
        def observe(self, state, context, report):
            assert isinstance(report, RoundReport)
            assert set(report.clients.tolist()) == set(report.invited.tolist())
            assert context.pool.samples is None

    list(simulate(Nosy(), fleet(), cohort_size=3, rounds=3))


def test_a_cohort_larger_than_the_number_of_clients_is_rejected():
    with pytest.raises(InvalidInput, match="cohort_size must be between 1 and the 12 clients"):
        next(simulate(BSFL(), fleet(), cohort_size=13, rounds=1))


class Constant:
    """A task whose client k always returns the number k, trained on 1 + k samples."""

    n_clients, samples = 12, np.arange(1, 13)

    def init(self, seed):
        return 0.0

    def train(self, params, clients, *, t, seed):
        return [
            Update(client=k, params=float(k), loss=0.1 * k, samples=1 + k) for k in clients.tolist()
        ]

    def aggregate(self, params, updates, weights):
        return sum(w * u.params for w, u in zip(weights, updates, strict=True)) or params

    def evaluate(self, params):
        return Evaluation(loss=params)


@pytest.mark.parametrize("weighting", ["samples", "equal"])
def test_the_simulation_weighs_the_clients(weighting):
    training = Training(Constant(), seed=0, weighting=weighting)
    records = list(simulate(UniformRandom(), fleet(), cohort_size=3, rounds=5, training=training))
    for record in records:
        k = np.array(record.cohort)
        weight = (1 + k) if weighting == "samples" else np.ones(3)
        assert record.test_loss == pytest.approx((weight * k).sum() / weight.sum())
        assert record.train_loss == pytest.approx(0.1 * k.mean())


def test_how_clients_are_weighed_is_checked():
    with pytest.raises(
        InvalidInput, match="weighting must be one of samples, equal, fedau, got 'loss'"
    ):
        Training(Constant(), seed=0, weighting="loss")


def test_gini_by_hand():
    # mean absolute difference of (1, 3) over twice the mean: (2*2/4) / (2*2) = 1/4
    assert gini(np.array([1, 3])) == pytest.approx(0.25)
    assert gini(np.array([0, 0])) == 0.0


def test_participation_ignores_empty_places():
    assert participation(np.array([[0, 2], [2, -1]]), 4).tolist() == [1, 0, 2, 0]


def test_growth_exponents():
    rounds = np.arange(1.0, 10_001)
    assert growth_exponent(5 * rounds, 1000, 10_000) == pytest.approx(1.0)
    assert growth_exponent(np.log(rounds + 1), 1000, 10_000) == pytest.approx(0.125, abs=0.01)
    assert np.isnan(growth_exponent(np.zeros(100), 10, 100))


def test_the_bound_by_hand():
    # 2 * 3 * (4 * 3 * ln e / 0.5^2 + 1 + pi^2 / 3), at n = e
    bound = regret_bound(np.array([np.e]), n_clients=3, cohort_size=2, delta_max=2.0, delta_min=0.5)
    assert bound == pytest.approx([6 * (48 + 1 + np.pi**2 / 3)])
