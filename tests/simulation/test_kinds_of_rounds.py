"""Over-selection, late responses and asynchronous rounds, on the virtual clock."""

from dataclasses import dataclass

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.learning import Evaluation, Update
from bsfl.policies import F3ast, Luo, UniformRandom
from bsfl.policy import Policy
from bsfl.rounds import BufferPlan, staleness_weight
from bsfl.simulation import SimulatedClients, Training, simulate
from bsfl.simulation.latency import Recorded
from bsfl.simulation.training import Absence
from bsfl.types import OK, TIMEOUT, RoundPlan

SAMPLES = np.array([1, 2, 3, 4, 5, 6])


class Walk:
    """A task in one dimension: a client moves the model half of the way to its own number."""

    n_clients, samples = 6, SAMPLES

    def init(self, seed):
        return np.array(0.0)

    def train(self, params, clients, *, t, seed):
        return [
            Update(client=k, params=params + (k + 1 - params) / 2, loss=float(k), samples=k + 1)
            for k in clients.tolist()
        ]

    def aggregate(self, params, updates, weights):
        return sum(w * u.params for w, u in zip(weights, updates, strict=True))

    def evaluate(self, params):
        return Evaluation(loss=float(params))


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


def fleet(*latencies, tau_max=100.0):
    """A fleet in which client k always takes latencies[k]."""
    known = [np.array([seconds]) for seconds in latencies]
    return SimulatedClients(latency=Recorded(known), tau_min=0.1, tau_max=tau_max)


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
    records, policy = play(fleet(3, 5, 12, 4, 4, 4), synchronous(over_selection=1.5), 3)
    assert [r.duration_s for r in records] == [5.0, 4.0, 4.0]
    assert [r.kept for r in records] == [(0, 1), (3, 4, 5), (0, 3)], "three arrive together"
    assert [(r.n_invited, r.target_responses) for r in records] == [(3, 2)] * 3
    assert policy.selections[1][1] == [0, 1, 3, 4, 5], "2 is still in flight"
    assert policy.selections[2][1] == [0, 1, 3, 4, 5], "until 12 s, and it is 9 s now"
    late = [row for row in policy.reports if row[4]]
    assert (1, 2, OK, 12.0, True) in late, "it is reported with the round that it belongs to"


def test_an_overdue_client_is_reported_once_and_is_free_again():
    clients = fleet(1, 1, np.inf, 1, 1, 1, tau_max=10.0)
    plan = RoundPlan(
        target_responses=2, deadline_s=10.0, lifetime_s=10.0, over_selection=1.5, late="drop"
    )
    records, policy = play(clients, plan, 14)
    assert {r.duration_s for r in records} == {1.0}
    reports = [row for row in policy.reports if row[1] == 2]
    assert reports[0] == (1, 2, TIMEOUT, 10.0, True)
    assert len([row for row in reports if row[0] == 1]) == 1
    busy = [t for t, available, _ in policy.selections if 2 not in available]
    assert busy[:9] == list(range(2, 11)), "from the end of round 1 to its deadline"


def test_a_late_response_is_applied_with_its_staleness():
    # round 1: 0 and 1 respond (targets 1, 2; weights 1/3, 2/3), 2 needs 9 s of 5 + 4
    training = Training(Walk(), seed=0)
    records, policy = play(
        fleet(3, 5, 9, 4, 4, 50), synchronous(over_selection=1.5, late="apply"), 2, training
    )
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
    records, policy = play(fleet(*latencies), plan, 5, Training(Walk(), seed=0))
    expected = buffered_reference(latencies, concurrency, buffer, 5)
    assert [r.clock_s for r in records] == pytest.approx([clock for clock, _ in expected])
    assert [r.test_loss for r in records] == pytest.approx([w for _, w in expected])
    assert {size for _, _, size in policy.selections} == {1}, "one replacement at a time"
    assert all(len(r.kept) == buffer for r in records)


def test_in_buffered_rounds_an_unresponsive_client_times_out():
    plan = BufferPlan(concurrency=2, buffer=1, deadline_s=10.0)
    records, policy = play(fleet(1, np.inf, 1, 1, 1, 1), plan, 25)
    timeouts = [row for row in policy.reports if row[2] == TIMEOUT]
    assert sum(r.n_timeouts for r in records) == len(timeouts) > 0
    assert {row[3] for row in timeouts} == {10.0}


def test_a_run_of_buffered_rounds_ends_with_its_time():
    policy = UniformRandom()
    plan = BufferPlan(concurrency=3, buffer=3)
    records = list(
        simulate(policy, fleet(3, 5, 12, 4, 7, 2), cohort_size=2, rounds=99, time_s=40.0, plan=plan)
    )
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

    training = Training(Walk(), seed=0)
    policy = Weighty([], [])
    (record,) = simulate(
        policy, fleet(1, 1, 1, 1, 1, 1), cohort_size=2, rounds=1, training=training, plan=plan
    )
    # clients 0 and 1 move 0 by 1/2 and 1: 0.1 x 0.5 + 0.1 x 1 in one round; in a buffer they respond
    # to two invitations, each a round of one, and the mean of the two counts
    assert record.test_loss == pytest.approx(moved)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", [F3ast(), Luo(tau_max=100.0)], ids=lambda one: type(one).__name__
)
def test_unbiased_weights_lead_to_the_mean_of_all_data(policy):
    """A client with more data, or a faster one, is selected more often and weighs less for it."""
    seconds = [np.array([s]) for s in (3.0, 5.0, 12.0, 4.0, 7.0, 2.5)]
    clients = SimulatedClients(
        latency=Recorded(seconds), tau_min=0.1, tau_max=100.0, samples=SAMPLES * 1.0
    )
    training = Training(Walk(), seed=0)
    records = simulate(policy, clients, cohort_size=2, rounds=1500, training=training)
    model = np.array([record.test_loss for record in records])[300:]
    # clients draw the model to 1, ..., 6 with weights 1/21, ..., 6/21: to 91/21 = 4.33
    assert model.mean() == pytest.approx(91 / 21, abs=0.15)


def test_fedau_weighs_by_the_mean_time_between_two_participations():
    absence = Absence(np.array([1, 1, 2]), cutoff=3)
    assert absence.weights([0]) == pytest.approx([0.25 * 1])
    assert absence.weights([0, 1]) == pytest.approx([0.25 * 1, 0.25 * 2])
    # round 3: client 2 was away for 3 rounds, the cutoff; then it comes in round 5, after 2 more
    absence.weights([0])
    absence.weights([0])
    assert absence.weights([2]) == pytest.approx([0.5 * (3 + 2) / 2])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: RoundPlan(target_responses=2, over_selection=0.9),
            "over_selection must be a finite number of at least 1",
        ),
        (
            lambda: RoundPlan(target_responses=2, min_responses=3, deadline_s=1.0),
            "min_responses must not exceed the",
        ),
        (lambda: RoundPlan(target_responses=2, late="keep"), "late must be one of"),
        (
            lambda: BufferPlan(concurrency=3, buffer=4),
            "buffer must not exceed the concurrency of 3",
        ),
    ],
)
def test_wrong_plans(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()
