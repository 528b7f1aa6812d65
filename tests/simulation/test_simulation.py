"""The loop, the clock, and regret against exhaustive search."""

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.fairness import gini, participation
from bsfl.fleet import Flaky, Fleet, Independent, Intervals, Scaled, lognormal
from bsfl.learning import Evaluation, Update
from bsfl.policies import BSFL, CsUcb, Genie, UniformRandom
from bsfl.records import Report, RoundContext
from bsfl.rounds import BufferPlan, RoundPlan
from bsfl.simulation import (
    Objective,
    RegretMeter,
    Training,
    growth_exponent,
    regret_bound,
    simulate,
)
from bsfl.simulation.barrier import run_round
from bsfl.solvers import energy, solve_exhaustive


def fleet(k=12, seed=0, **more):
    medians = np.random.default_rng(seed).uniform(2.0, 30.0, k)
    settings = {"latency": lognormal(medians, np.full(k, 0.2)), "tau_min": 1.0, "tau_max": 60.0}
    return Fleet(**(settings | {"seed": seed} | more))


def run(*cohort, latencies, **plan):
    settings = {"cohort_size": max(len(cohort), 1), "deadline_s": 60.0} | plan
    clients = np.array(cohort, dtype=int)
    return run_round(clients, np.array(latencies)[clients], RoundPlan(**settings))


class Cheats(UniformRandom):
    """Choose whoever it likes, there or not."""

    def select(self, state, context, rng):
        return (
            np.arange(context.cohort_size) if context.t > 3 else super().select(state, context, rng)
        )


@pytest.mark.parametrize("plan", [None, BufferPlan(concurrency=3, buffer=3)])
def test_nobody_wins_by_choosing_clients_that_are_not_there(plan):
    world = fleet(availability=Independent(0.3))
    rounds = simulate(Cheats(), world, cohort_size=3, rounds=50, plan=plan)
    with pytest.raises(
        InvalidInput, match="must choose . distinct available clients.* not available"
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
    quick = run(0, 1, latencies=latencies)
    assert (quick.duration_s, quick.n_timeouts) == (5.0, 0)
    late = run(1, 2, 3, latencies=latencies)
    assert (late.duration_s, late.n_timeouts) == (60.0, 2)
    assert late.report.latency.tolist() == [5.0, 60.0, 60.0]
    assert late.report.outcome.tolist() == [0, 1, 1]
    nobody = run(latencies=latencies)
    assert nobody.duration_s == 60.0, "waiting for somebody to come takes time, too"


def test_answers_at_the_deadline_are_in_time():
    round_ = run(0, 1, 2, 3, latencies=[60.0, 60.0, np.nextafter(60.0, 61.0), 2.0])
    assert (round_.duration_s, round_.n_timeouts) == (60.0, 1)
    assert round_.report.outcome.tolist() == [0, 0, 1, 0]


def test_rounds_on_the_virtual_clock_follow_the_plan():
    """Over-selection ends at the m-th answer, a quorum may come after the deadline."""
    first_two = run(0, 1, 2, latencies=[9.0, 3.0, 5.0], cohort_size=2)
    assert (first_two.duration_s, first_two.n_timeouts) == (5.0, 0)
    assert first_two.report.clients.tolist() == [1, 2]
    assert [part.tolist() for part in first_two.at_work] == [[0], [9.0]], "not overdue yet"
    ties = run(0, 1, 2, latencies=[5.0, 3.0, 5.0], cohort_size=2)
    assert (ties.duration_s, ties.n_timeouts) == (5.0, 0)
    for latencies, duration_s in (([1.0, 80.0, 80.0, 90.0], 80.0), ([1.0, 130.0, 99.0], 99.0)):
        waited = run(*range(len(latencies)), latencies=latencies, quorum=2)
        assert (waited.duration_s, waited.n_timeouts) == (duration_s, 1)
    given_up = run(0, 1, latencies=[1.0, 130.0], quorum=2)
    assert (given_up.duration_s, given_up.n_timeouts) == (120.0, 1)


def test_the_clock_adds_up_what_the_fleet_drew():
    world = fleet()
    records = list(simulate(UniformRandom(), world, cohort_size=3, rounds=20, seed=4))
    clock = 0.0
    for record in records:
        clock += min(world.latencies(record.t, clock)[list(record.cohort)].max(), 60.0)
        assert record.clock_s == pytest.approx(clock)
    assert [r.t for r in records] == list(range(1, 21))


def test_every_policy_meets_the_same_world():
    """Whoever chooses the same clients in a round sees the same latencies."""
    seen = {}

    class Recorder(UniformRandom):
        def observe(self, state, context, report):
            seen.setdefault(context.t, []).append(
                dict(zip(report.clients, report.latency, strict=True))
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
    world = fleet(8, availability=Independent(availability))
    objective = Objective(alpha=2.0, beta=2)
    mu = world.mean_speed(1)
    count = np.zeros(8)
    for record in simulate(policy, world, cohort_size=3, rounds=40, objective=objective):
        who = world.available(record.t, 0.0)
        deviation = 3 / 8 - count[who] / record.t
        g = np.sign(deviation) * deviation**2
        chosen = np.searchsorted(who, record.cohort)
        if len(who) > 3:
            best = solve_exhaustive(mu[who], g, 3, 2.0)
            gap = energy(mu[who], g, best, 2.0) - energy(mu[who], g, chosen, 2.0)
            assert record.regret == pytest.approx(gap, abs=1e-12)
        else:
            assert record.regret == 0.0
        count[list(record.cohort)] += 1


def test_the_genie_has_no_regret():
    world = fleet(15)
    genie = Genie(mean_speed=world.mean_speed(1), alpha=3.0)
    records = simulate(genie, world, cohort_size=4, rounds=60, objective=Objective(alpha=3.0))
    assert sum(r.regret for r in records) == pytest.approx(0.0, abs=1e-9)


def test_the_meter_follows_a_fleet_that_changes():
    k = 6
    factor = np.array([10.0, 1, 1, 1, 1, 1])
    world = fleet(k, latency=Scaled(lognormal(np.full(k, 5.0), np.zeros(k)), factor, at=3))
    meter = RegretMeter(Objective(alpha=0.0), world)
    regrets = [
        meter.regret(np.array([0, 1]), RoundContext(t=t, available=np.arange(k), cohort_size=2))
        for t in (1, 2, 3, 4)
    ]
    # speeds 1/5 for all; from round 3 on client 0 needs 50 s
    assert regrets == pytest.approx([0, 0, 1 / 5 - 1 / 50, 1 / 5 - 1 / 50])


def test_lost_answers_cost_the_deadline():
    world = fleet(5, latency=Flaky(lognormal(np.full(5, 2.0), np.zeros(5)), 1.0))
    (record,) = simulate(UniformRandom(), world, cohort_size=2, rounds=1)
    assert (record.duration_s, record.n_timeouts) == (60.0, 2)


def test_clients_come_and_go_while_the_clock_runs():
    """Everyone takes 2 s; clients 0 and 1 are online in [0, 5), client 2 in [3, 8) of every 100."""
    lives = Intervals(
        np.array([0.0, 0.0, 3.0]), np.array([5.0, 5.0, 8.0]), np.arange(4), period_s=100.0
    )
    told = []

    class Recorder(UniformRandom):
        def select(self, state, context, rng):
            told.append((context.available.tolist(), context.online_s.tolist()))
            return super().select(state, context, rng)

    world = fleet(3, latency=lognormal(np.full(3, 2.0), np.zeros(3)), availability=lives)
    records = list(simulate(Recorder(), world, cohort_size=3, rounds=5))
    # at 4 clients 0 and 1 leave before they are done, and the round lasts 60 s; at 64 and 124
    # nobody is there
    assert told[:3] == [([0, 1], [0, 0]), ([0, 1], [2, 2]), ([0, 1, 2], [4, 4, 1])]
    assert [r.clock_s for r in records] == [2, 4, 64, 124, 184]
    assert [r.n_timeouts for r in records] == [0, 0, 2, 0, 0]


def test_how_long_somebody_has_been_online_is_not_always_known():
    class Recorder(UniformRandom):
        def observe(self, state, context, report):
            assert context.online_s is None

    list(simulate(Recorder(), fleet(), cohort_size=3, rounds=2))


def test_nobody_available_is_a_round_too():
    world = fleet(5, availability=Independent(0.0))
    records = list(simulate(BSFL(), world, cohort_size=2, rounds=3, objective=Objective()))
    assert [r.cohort for r in records] == [()] * 3
    assert records[-1].clock_s == 3 * 60.0
    assert records[0].short


@pytest.mark.slow
def test_bsfl_beats_random_and_comes_close_to_the_genie():
    world = fleet(40, seed=3)
    policies = {
        "bsfl": BSFL(alpha=4.0),
        "random": UniformRandom(),
        "genie": Genie(mean_speed=world.mean_speed(1), alpha=4.0),
    }
    clock, spread = {}, {}
    for name, policy in policies.items():
        records = list(simulate(policy, world, cohort_size=5, rounds=400))
        clock[name] = records[-1].clock_s
        spread[name] = gini(participation(np.array([r.cohort for r in records]), 40))
    assert clock["bsfl"] < 0.8 * clock["random"]
    assert clock["bsfl"] < 1.2 * clock["genie"]
    assert spread["bsfl"] < 0.1


def test_policies_get_reports_and_no_truth():
    class Nosy(UniformRandom):
        def observe(self, state, context, report):
            assert isinstance(report, Report)
            assert set(report.clients.tolist()) == set(report.chosen.tolist())
            assert context.roster.samples is None

    list(simulate(Nosy(), fleet(), cohort_size=3, rounds=3))


def test_a_cohort_larger_than_the_fleet_is_refused():
    with pytest.raises(InvalidInput, match="between 1 and the 12 clients of the fleet, got 13"):
        next(simulate(BSFL(), fleet(), cohort_size=13, rounds=1))


class Constant:
    """A task whose client k always brings home the number k, from 1 + k samples."""

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
