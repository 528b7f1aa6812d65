"""The loops: synchronous, over-selected and buffered rounds on the virtual clock."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.policies import BSFL, F3ast, Genie, Luo, UniformRandom
from bsfl.policy import Policy
from bsfl.rounds import BufferPlan, staleness_weight
from bsfl.simulation import (
    Flaky,
    Independent,
    Intervals,
    Objective,
    Recorded,
    SimulatedClients,
    Training,
    lognormal,
    simulate,
)
from bsfl.types import OK, TIMEOUT, RoundPlan, RoundReport
from small_clients import HalfWay, lognormal_clients, steady_clients


class Cheats(UniformRandom):
    """Selects any client, available or not, from round 4 on."""

    def select(self, state, context, rng):
        if context.round <= 3:
            return super().select(state, context, rng)
        return np.arange(context.n_invited)


@pytest.mark.parametrize("plan", [None, BufferPlan(concurrency=3, buffer=3)])
def test_no_policy_wins_by_selecting_clients_that_are_not_available(plan):
    clients = lognormal_clients(availability=Independent(0.3))
    rounds = simulate(Cheats(), clients, cohort_size=3, rounds=50, plan=plan)
    with pytest.raises(InvalidInput, match="must select . distinct available clients"):
        list(rounds)


@pytest.mark.parametrize(
    ("policy", "changes", "message"),
    [
        (UniformRandom, {}, "did you mean UniformRandom"),
        (UniformRandom(), {"rounds": -3}, "rounds must be a whole number of at least 1, got -3"),
        (BSFL(), {"cohort_size": 13}, "cohort_size must be between 1 and the 12 clients"),
    ],
)
def test_wrong_arguments_are_rejected(policy, changes, message):
    with pytest.raises(InvalidInput, match=message):
        next(simulate(policy, lognormal_clients(), **{"cohort_size": 3, "rounds": 5} | changes))


def test_the_clock_adds_up_what_the_clients_drew():
    clients = lognormal_clients()
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
        list(simulate(Recorder(), lognormal_clients(), cohort_size=8, rounds=10, seed=seed))
    for first, second in seen.values():
        common = set(first) & set(second)
        assert {k: first[k] for k in common} == {k: second[k] for k in common} != {}


def test_lost_responses_cost_the_deadline():
    clients = lognormal_clients(5, latency=Flaky(lognormal(np.full(5, 2.0), np.zeros(5)), 1.0))
    (record,) = simulate(UniformRandom(), clients, cohort_size=2, rounds=1)
    assert (record.duration_s, record.n_timeouts) == (60.0, 2)


def test_clients_come_and_go_while_the_clock_runs():
    """Everyone takes 2 s; clients 0 and 1 are online in [0, 5), client 2 in [3, 8) of every 100."""
    online = Intervals(
        np.array([0.0, 0.0, 3.0]), np.array([5.0, 5.0, 8.0]), np.arange(4), period_s=100.0
    )
    seen = []

    class Recorder(UniformRandom):
        def select(self, state, context, rng):
            seen.append((context.available.tolist(), context.online_s.tolist()))
            return super().select(state, context, rng)

    latency = lognormal(np.full(3, 2.0), np.zeros(3))
    clients = lognormal_clients(3, latency=latency, availability=online)
    records = list(simulate(Recorder(), clients, cohort_size=3, rounds=5))
    # at 4 clients 0 and 1 leave before they are done, and the round lasts 60 s; at 64 and 124
    # no client is online
    assert seen[:3] == [([0, 1], [0, 0]), ([0, 1], [2, 2]), ([0, 1, 2], [4, 4, 1])]
    assert [r.clock_s for r in records] == [2, 4, 64, 124, 184]
    assert [r.n_timeouts for r in records] == [0, 0, 2, 0, 0]


def test_no_client_available_is_a_round_too():
    clients = lognormal_clients(5, availability=Independent(0.0))
    records = list(simulate(BSFL(), clients, cohort_size=2, rounds=3, objective=Objective()))
    assert [r.cohort for r in records] == [()] * 3
    assert records[-1].clock_s == 3 * 60.0
    assert records[0].is_short


@pytest.mark.slow
def test_bsfl_is_faster_than_random_and_nearly_as_fast_as_the_genie():
    clients = lognormal_clients(40, seed=3)
    genie = Genie(mean_speed=clients.mean_speed(1), alpha=4.0)
    bsfl_s, random_s, genie_s = (
        list(simulate(policy, clients, cohort_size=5, rounds=400))[-1].clock_s
        for policy in (BSFL(alpha=4.0), UniformRandom(), genie)
    )
    assert bsfl_s < min(0.8 * random_s, 1.2 * genie_s)


def test_policies_get_reports_and_no_truth():
    class Nosy(UniformRandom):
        def observe(self, state, context, report):
            assert isinstance(report, RoundReport)
            assert set(report.clients.tolist()) == set(report.invited.tolist())
            assert context.pool.samples is None
            assert context.online_s is None, "it is not always known"

    list(simulate(Nosy(), lognormal_clients(), cohort_size=3, rounds=3))


@dataclass(frozen=True)
class InTurn(Policy):
    """Selects the available clients with the fewest invitations; keeps what it observes.

    Attributes:
        reports: (round, client, outcome, seconds, whether it was dropped) of every response.
        selections: (round, available clients, n_invited) of every selection.
    """

    reports: list
    selections: list

    def init(self, n_clients):
        return None

    def select(self, state, context, rng):
        self.selections.append((context.round, context.available.tolist(), context.n_invited))
        order = np.argsort(context.task.invitations[context.available], kind="stable")
        return np.sort(context.available[order[: context.n_invited]])

    def observe(self, state, context, report):
        assert context.round == report.round
        columns = report.clients, report.outcome, report.latency_s
        for k, outcome, seconds in zip(*(column.tolist() for column in columns), strict=True):
            self.reports.append((report.round, k, outcome, seconds, report.dropped))


def play(clients, plan, rounds, training=None):
    policy = InTurn([], [])
    records = list(
        simulate(policy, clients, cohort_size=2, rounds=rounds, plan=plan, training=training)
    )
    return records, policy


def synchronous(late="drop", **more):
    return RoundPlan(target_responses=2, deadline_s=100.0, lifetime_s=100.0, late=late, **more)


def test_the_first_responses_end_a_round_and_the_others_come_late():
    # 3 invited for 2 places: 0, 1, 2 in 5 s; client 2 responds 7 s later, in the second round
    records, policy = play(steady_clients(3, 5, 12, 4, 4, 4), synchronous(over_selection=1.5), 3)
    assert [r.duration_s for r in records] == [5.0, 4.0, 4.0]
    assert [r.kept for r in records] == [(0, 1), (3, 4, 5), (0, 3)], "three arrive together"
    assert [(r.n_invited, r.target_responses) for r in records] == [(3, 2)] * 3
    assert policy.selections[1][1] == [0, 1, 3, 4, 5], "2 is still in flight"
    assert policy.selections[2][1] == [0, 1, 3, 4, 5], "until 12 s, and it is 9 s now"
    late = [row for row in policy.reports if row[4]]
    assert (1, 2, OK, 12.0, True) in late, "it is reported with the round that it belongs to"


def test_an_overdue_client_is_reported_once_and_is_free_again():
    clients = steady_clients(1, 1, np.inf, 1, 1, 1, tau_max=10.0)
    plan = replace(synchronous(over_selection=1.5), deadline_s=10.0, lifetime_s=10.0)
    records, policy = play(clients, plan, 14)
    assert {r.duration_s for r in records} == {1.0}
    reports = [row for row in policy.reports if row[1] == 2]
    assert reports[0] == (1, 2, TIMEOUT, 10.0, True)
    assert len([row for row in reports if row[0] == 1]) == 1
    busy = [t for t, available, _ in policy.selections if 2 not in available]
    assert busy[:9] == list(range(2, 11)), "from the end of round 1 to its deadline"


def test_a_late_response_is_applied_with_its_staleness():
    # round 1: 0 and 1 respond (targets 1, 2; weights 1/3, 2/3), 2 needs 9 s of 5 + 4
    training = Training(HalfWay(n_clients=6), seed=0)
    clients, plan = steady_clients(3, 5, 9, 4, 4, 50), synchronous("apply", over_selection=1.5)
    records, policy = play(clients, plan, 2, training)
    assert (1, 2, OK, 9.0, False) in policy.reports, "late, and not dropped"
    first = 0.5 / 3 + 2 * 1.0 / 3
    assert records[0].test_loss == pytest.approx(first)
    # round 2 keeps 3 and 4 (4 and 5 samples), and 2 (3 samples) comes after 9 s, trained from 0
    share = np.array([4, 5, 3]) / 12
    moves = np.array([(4 - first) / 2, (5 - first) / 2, 1.5])
    stale = np.array([1.0, 1.0, staleness_weight(1)])
    assert records[1].kept == (3, 4, 2)
    assert records[1].test_loss == pytest.approx(first + float(np.sum(share * stale * moves)))


def buffered_reference(latencies, concurrency, buffer, versions):
    """FedBuff in plain Python: the idle client with the fewest invitations, lowest number first."""
    w, version, clock = 0.0, 0, 0.0
    invitations = [0] * len(latencies)
    in_flight, held, models = [], [], []
    while version < versions:
        while len(in_flight) < concurrency:
            idle = [k for k in range(len(latencies)) if k not in [one[2] for one in in_flight]]
            k = min(idle, key=lambda k: (invitations[k], k))
            invitations[k] += 1
            in_flight.append((clock + latencies[k], sum(invitations), k, version, w))
        in_flight.sort()
        clock, _, k, base_version, base = in_flight.pop(0)
        held.append((k, base + (k + 1 - base) / 2 - base, base_version))
        if len(held) == buffer:
            total = sum(k + 1 for k, _, _ in held)
            w += sum(
                (k + 1) / total * change / (1 + version - since) ** 0.5 for k, change, since in held
            )
            held, version = [], version + 1
            models.append((clock, w))
    return models


@pytest.mark.parametrize(("concurrency", "buffer"), [(3, 2), (4, 4), (2, 1), (5, 3)])
def test_buffered_rounds_equal_a_plain_reference(concurrency, buffer):
    latencies = [3.0, 5.0, 12.0, 4.0, 7.0, 2.5]
    plan = BufferPlan(concurrency=concurrency, buffer=buffer)
    records, policy = play(
        steady_clients(*latencies), plan, 5, Training(HalfWay(n_clients=6), seed=0)
    )
    expected = buffered_reference(latencies, concurrency, buffer, 5)
    assert [r.clock_s for r in records] == pytest.approx([clock for clock, _ in expected])
    assert [r.test_loss for r in records] == pytest.approx([w for _, w in expected])
    assert {size for _, _, size in policy.selections} == {1}, "one replacement at a time"
    assert all(len(r.kept) == buffer for r in records)


def test_in_buffered_rounds_an_unresponsive_client_times_out():
    plan = BufferPlan(concurrency=2, buffer=1, deadline_s=10.0)
    records, policy = play(steady_clients(1, np.inf, 1, 1, 1, 1), plan, 25)
    timeouts = [row for row in policy.reports if row[2] == TIMEOUT]
    assert sum(r.n_timeouts for r in records) == len(timeouts) > 0
    assert {row[3] for row in timeouts} == {10.0}


def test_a_run_of_buffered_rounds_ends_with_its_time():
    plan, clients = BufferPlan(concurrency=3, buffer=3), steady_clients(3, 5, 12, 4, 7, 2)
    run = simulate(UniformRandom(), clients, cohort_size=2, rounds=99, time_s=40.0, plan=plan)
    records = list(run)
    assert records[-1].clock_s >= 40.0
    assert [r.round for r in records] == list(range(1, len(records) + 1))
    assert sum(r.duration_s for r in records) == pytest.approx(records[-1].clock_s)


@pytest.mark.parametrize(
    ("plan", "moved"), [(None, 0.15), (BufferPlan(concurrency=2, buffer=2), 0.15 / 2)]
)
def test_weights_of_a_policy_move_the_model(plan, moved):
    class Weighty(InTurn):
        def weights(self, state, context, clients):
            return np.full(len(clients), 0.1)

    clients, training = steady_clients(1, 1, 1, 1, 1, 1), Training(HalfWay(n_clients=6), seed=0)
    policy = Weighty([], [])
    (record,) = simulate(policy, clients, cohort_size=2, rounds=1, training=training, plan=plan)
    # clients 0 and 1 move 0 by 1/2 and 1: 0.1 x 0.5 + 0.1 x 1 in one round; in a buffer they respond
    # to two invitations, each a round of one, and the mean of the two counts
    assert record.test_loss == pytest.approx(moved)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", [F3ast(), Luo(tau_max=100.0)], ids=lambda one: type(one).__name__
)
def test_unbiased_weights_lead_to_the_mean_of_all_data(policy):
    """A client with more data, or a faster one, is selected more often and weighs less for it."""
    latency = Recorded([np.array([s]) for s in (3.0, 5.0, 12.0, 4.0, 7.0, 2.5)])
    clients = SimulatedClients(
        latency=latency, tau_min=0.1, tau_max=100.0, samples=np.arange(1.0, 7.0)
    )
    training = Training(HalfWay(n_clients=6), seed=0)
    records = simulate(policy, clients, cohort_size=2, rounds=1500, training=training)
    model = np.array([record.test_loss for record in records])[300:]
    # clients draw the model to 1, ..., 6 with weights 1/21, ..., 6/21: to 91/21 = 4.33
    assert model.mean() == pytest.approx(91 / 21, abs=0.15)
