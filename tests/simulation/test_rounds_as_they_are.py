"""Over-selection, late answers and rounds without a barrier, on the virtual clock."""

from dataclasses import dataclass

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.estimation.averages import Selections
from bsfl.fleet import Fleet
from bsfl.fleet.latency import Recorded
from bsfl.learning import Evaluation, Update
from bsfl.policies import BSFL, F3ast, Luo, Oort, UniformRandom
from bsfl.records import LATE, OK, TIMEOUT, Observation, Report, RoundContext
from bsfl.rounds import BufferPlan, RoundPlan, staleness_weight
from bsfl.simulation import Training, simulate
from bsfl.simulation.training import Absence

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
class InTurn:
    """The available clients that were not chosen for longest; notes what it is told."""

    told: list
    asked: list

    def init(self, n_clients):
        return Selections.of(n_clients)

    def select(self, state, context, rng):
        self.asked.append((context.t, context.available.tolist(), context.cohort_size))
        order = np.argsort(state.selected[context.available], kind="stable")
        return np.sort(context.available[order[: context.cohort_size]])

    def observe(self, state, context, report):
        state.book(report)
        for k, outcome, latency, loss in zip(
            report.clients, report.outcome, report.latency, report.loss, strict=True
        ):
            self.told.append((context.t, int(k), int(outcome), float(latency), float(loss)))


def fleet(*latencies, tau_max=100.0):
    """A fleet in which client k always takes latencies[k]."""
    known = [np.array([seconds]) for seconds in latencies]
    return Fleet(latency=Recorded(known), tau_min=0.1, tau_max=tau_max)


def play(world, plan, rounds, training=None):
    policy = InTurn([], [])
    records = list(
        simulate(policy, world, cohort_size=2, rounds=rounds, plan=plan, training=training)
    )
    return records, policy


def barrier(**more):
    return RoundPlan(cohort_size=2, deadline_s=100.0, lifetime_s=100.0, **more)


def test_the_first_answers_end_a_round_and_the_others_come_late():
    # 3 invited for 2 places: 0, 1, 2 in 5 s; client 2 answers 7 s later, in the second round
    records, policy = play(fleet(3, 5, 12, 4, 4, 4), barrier(invite=1.5), 3)
    assert [r.duration_s for r in records] == [5.0, 4.0, 4.0]
    assert [r.kept for r in records] == [(0, 1), (3, 4), (0, 3)]
    assert policy.asked[1][1] == [0, 1, 3, 4, 5], "2 is still at work"
    assert policy.asked[2][1] == [0, 1, 3, 4, 5], "until 12 s, and it is 9 s now"
    assert (2, 5, LATE, 4.0) in [row[:4] for row in policy.told], "as quick, one too many"
    late = [row[:4] for row in policy.told if row[2] == LATE]
    assert (1, 2, LATE, 12.0) in late, "its latency is told with the round that it belongs to"


def test_who_is_overdue_is_told_once_and_is_free_again():
    world = fleet(1, 1, np.inf, 1, 1, 1, tau_max=10.0)
    plan = RoundPlan(cohort_size=2, deadline_s=10.0, lifetime_s=10.0, invite=1.5)
    records, policy = play(world, plan, 14)
    assert {r.duration_s for r in records} == {1.0}
    told = [row for row in policy.told if row[1] == 2]
    assert told[0][:4] == (1, 2, TIMEOUT, 10.0)
    busy = [t for t, available, _ in policy.asked if 2 not in available]
    assert busy[:9] == list(range(2, 11)), "from the end of round 1 to its deadline"


def test_a_late_answer_is_applied_with_its_staleness():
    # round 1: 0 and 1 answer (targets 1, 2; weights 1/3, 2/3), 2 needs 12 s of 5 + 7
    training = Training(Walk(), seed=0)
    records, _ = play(fleet(3, 5, 9, 4, 4, 50), barrier(invite=1.5, late="apply"), 2, training)
    first = 0.5 / 3 + 2 * 1.0 / 3
    assert records[0].test_loss == pytest.approx(first)
    # round 2 keeps 3 and 4 (4 and 5 samples), and 2 (3 samples) comes after 9 s, trained from 0
    share = np.array([4, 5, 3]) / 12
    moves = np.array([(4 - first) / 2, (5 - first) / 2, 1.5])
    stale = np.array([1.0, 1.0, staleness_weight(1)])
    assert records[1].kept == (3, 4, 2)
    assert records[1].test_loss == pytest.approx(first + float(np.sum(share * stale * moves)))


def buffered_reference(latencies, concurrency, buffer, versions):
    """FedBuff in plain Python: always the idle client that was asked least, lowest number first."""
    w, version, clock = 0.0, 0, 0.0
    asked = [0] * len(latencies)
    at_work, held, models = [], [], []
    while version < versions:
        while len(at_work) < concurrency:
            idle = [k for k in range(len(latencies)) if k not in [job[2] for job in at_work]]
            k = min(idle, key=lambda k: (asked[k], k))
            asked[k] += 1
            at_work.append((clock + latencies[k], sum(asked), k, version, w))
        at_work.sort()
        clock, _, k, base_version, base = at_work.pop(0)
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
    assert {size for _, _, size in policy.asked} == {1}, "one replacement at a time"
    assert all(len(r.kept) == buffer for r in records)


def test_no_barrier_gives_up_who_does_not_answer():
    plan = BufferPlan(concurrency=2, buffer=1, deadline_s=10.0)
    records, policy = play(fleet(1, np.inf, 1, 1, 1, 1), plan, 25)
    assert sum(r.n_timeouts for r in records) == sum(row[2] == TIMEOUT for row in policy.told) > 0
    assert all(row[3] == 10.0 for row in policy.told if row[2] == TIMEOUT)


def test_a_run_without_a_barrier_ends_with_its_time():
    policy = UniformRandom()
    plan = BufferPlan(concurrency=3, buffer=3)
    records = list(
        simulate(policy, fleet(3, 5, 12, 4, 7, 2), cohort_size=2, rounds=99, time_s=40.0, plan=plan)
    )
    assert records[-1].clock_s >= 40.0
    assert [r.t for r in records] == list(range(1, len(records) + 1))
    assert sum(r.duration_s for r in records) == pytest.approx(records[-1].clock_s)


def test_a_late_answer_teaches_its_latency_and_has_no_loss():
    late = Report.of({3: Observation(latency=9.0, outcome="late")}, chosen=[])
    here = RoundContext(t=1, available=np.arange(6), cohort_size=2)
    for policy in (
        BSFL(),
        Oort(tau_max=20.0) if "tau_max" in Oort.__dataclass_fields__ else Oort(),
    ):
        state = policy.init(6)
        policy.observe(state, here, Report.of({}, chosen=[3, 4]))
        policy.observe(state, here, late)
        assert policy.select(state, here, np.random.default_rng(0)).shape == (2,)
    state = BSFL().init(6)
    BSFL().observe(state, here, Report.of({}, chosen=[3, 4]))
    BSFL().observe(state, here, late)
    assert state.slowest_s == 9.0
    assert (state.selected[3], state.served(np.array([3]))[0]) == (1, 0), "it is still owed a round"


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
    # clients 0 and 1 move 0 by 1/2 and 1: 0.1 x 0.5 + 0.1 x 1 in one round; in a buffer they answer
    # two questions, each a round of one, and the mean of the two counts
    assert record.test_loss == pytest.approx(moved)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", [F3ast(), Luo(tau_max=100.0)], ids=lambda one: type(one).__name__
)
def test_unbiased_weights_lead_to_the_mean_of_all_data(policy):
    """Who holds more data, or is quicker, is chosen more often, and weighs less for it."""
    seconds = [np.array([s]) for s in (3.0, 5.0, 12.0, 4.0, 7.0, 2.5)]
    world = Fleet(latency=Recorded(seconds), tau_min=0.1, tau_max=100.0, samples=SAMPLES * 1.0)
    training = Training(Walk(), seed=0)
    records = simulate(policy, world, cohort_size=2, rounds=1500, training=training)
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
            lambda: RoundPlan(cohort_size=2, invite=0.9),
            "invite must be a finite number of at least 1",
        ),
        (lambda: RoundPlan(cohort_size=2, quorum=3, deadline_s=1.0), "quorum must not exceed the"),
        (lambda: RoundPlan(cohort_size=2, late="keep"), "late must be one of drop, apply, got"),
        (
            lambda: BufferPlan(concurrency=3, buffer=4),
            "buffer must not exceed the concurrency of 3",
        ),
    ],
)
def test_wrong_plans(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_outcomes_are_stored_by_their_position():
    assert (OK, TIMEOUT, LATE) == (0, 1, 3)
