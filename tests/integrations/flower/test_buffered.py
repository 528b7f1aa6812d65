"""Buffered: clients always at work, old answers brought up to date, every few of them a version."""

import itertools
import math

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from fake_federation import ARRAYS, Spy
from fake_grid import GONE, RAISED, FakeGrid, fleet
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedMedian, FedXgbBagging

from bsfl import BSFL, Scheduler, UniformRandom
from bsfl.errors import InvalidInput, NotEnoughClients
from bsfl.integrations.flower import Buffered, simulated
from bsfl.integrations.flower.versions import Versions
from bsfl.rounds import staleness_weight
from fake_clock import FakeClock


class Adding(FakeGrid):
    """Every client adds its own number to the model that it was sent."""

    def _train(self, node, message):
        super()._train(node, message)
        _, reply = self.on_the_way[message.metadata.message_id]
        if reply.has_content() and "arrays" in reply.content and node.spoils is None:
            sent = next(iter(message.content.array_records.values()))["w"].numpy()
            reply.content["arrays"] = ArrayRecord({"w": Array(sent + float(node.name))})


def buffered(nodes, *, strategy=None, scheduler=None, concurrency=2, buffer=1, **options):
    grid = Adding(nodes, FakeClock())
    scheduler = scheduler or Spy(UniformRandom(), cohort_size=concurrency)
    strategy = strategy or FedAvg(fraction_evaluate=0.0)
    made = Buffered(strategy, scheduler, concurrency=concurrency, buffer=buffer, **options)
    made._clock = grid.clock
    return made, grid


def start(made, grid, versions, **options):
    return made.start(grid, ARRAYS, versions, **options)


def w(result):
    return float(result.arrays["w"].numpy()[0])


def test_nobody_waits_for_a_straggler():
    """Client 1 answers every second, client 2 after 10: so do 10 versions, and then a stale one."""
    nodes = dict(itertools.islice(fleet(1.0, 1.0, 10.0).items(), 1, 3))
    made, grid = buffered(nodes)
    result = start(made, grid, 11)
    assert 10.0 <= grid.clock.now - 1000.0 <= 12.0, "11 rounds would have taken 110 s"
    kept = [client for version in made.rounds for client in version.kept]
    assert kept.count("2") == 1
    assert kept.count("1") == 10
    assert w(result) == pytest.approx(10 * 1.0 + 2.0), "every update counts in full, none is undone"
    (stale,) = [version for version in made.rounds if version.kept == ("2",)]
    assert 8 <= stale.staleness[0] <= 10
    assert result.train_metrics_clientapp[stale.server_round]["bsfl-staleness"] >= 8


def test_as_many_are_at_work_as_was_said():
    made, grid = buffered(fleet(*[3.0] * 8), concurrency=4, buffer=2)
    seen = []
    push = grid.push_messages

    def counting(messages):
        sent = push(messages)
        seen.append(len(grid.on_the_way))
        return sent

    grid.push_messages = counting
    start(made, grid, 6)
    assert seen[0] == 4
    assert max(seen) == 4
    assert [len(version.kept) for version in made.rounds] == [2] * 6, "B answers each"


def test_the_strategy_aggregates_every_b_answers():
    class Noting(FedAvg):
        sizes = ()

        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            self.sizes = (*self.sizes, (server_round, len(replies)))
            return super().aggregate_train(server_round, replies)

    made, grid = buffered(
        fleet(1, 2, 3, 4), strategy=Noting(fraction_evaluate=0.0), concurrency=4, buffer=3
    )
    start(made, grid, 3)
    assert made.sizes == ((1, 3), (2, 3), (3, 3))


@pytest.mark.parametrize("strategy", [FedAvg, FedMedian, FedAdam, FedAvgM])
def test_without_stale_answers_it_is_the_strategy_itself(strategy):
    """All start together, end together and are averaged: rounds by another name."""
    made, grid = buffered(
        fleet(1.0, 1.0, 1.0), strategy=strategy(fraction_evaluate=0.0), concurrency=3, buffer=3
    )
    result = start(made, grid, 3)

    class Plain(Adding):
        def send_and_receive(self, messages, *, timeout=None):
            ids = self.push_messages(list(messages))
            self.clock.now += 10.0
            return self.pull_messages(ids)

    plain = strategy(fraction_evaluate=0.0).start(
        Plain(fleet(1.0, 1.0, 1.0), FakeClock()), ARRAYS, 3
    )
    assert np.allclose(result.arrays["w"].numpy(), plain.arrays["w"].numpy())
    assert all(version.staleness == (0, 0, 0) for version in made.rounds)


def test_old_answers_may_count_less():
    nodes = dict(itertools.islice(fleet(1.0, 1.0, 4.5).items(), 1, 3))
    made, grid = buffered(nodes, staleness=staleness_weight)
    result = start(made, grid, 6)
    weighed = [float(v.kept[0]) / math.sqrt(1 + v.staleness[0]) for v in made.rounds]
    assert max(v.staleness[0] for v in made.rounds) >= 3
    assert w(result) == pytest.approx(sum(weighed))


def test_who_is_overdue_is_given_up_and_another_takes_its_place():
    scheduler = Spy(UniformRandom(), cohort_size=2)
    made, grid = buffered(fleet(1.0, 1.0, None), scheduler=scheduler, deadline_s=5.0)
    start(made, grid, 12)
    assert ("2", "timeout", 5.0) in scheduler.told
    assert any("2" in version.timeouts for version in made.rounds)
    assert grid.clock.now - 1000.0 < 15.0


def test_a_late_answer_frees_its_node_and_is_not_used():
    nodes = fleet(1.0, 1.0, itertools.chain([7.0], itertools.repeat(1.0)))
    made, grid = buffered(nodes, concurrency=3, deadline_s=5.0, lifetime_s=100.0)
    start(made, grid, 40)
    assert sum(version.n_late for version in made.rounds) == 1
    assert sum("2" in version.kept for version in made.rounds) > 1, "invited again"


class Errors(FedAvg):
    """Counts the errors that it is told of, each of which is a line in Flower's log."""

    n_errors = 0

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        self.n_errors += sum(reply.has_error() for reply in replies)
        return super().aggregate_train(server_round, replies)


def test_who_was_given_up_is_not_told_of_again_when_its_message_expires():
    strategy = Errors(fraction_evaluate=0.0)
    made, grid = buffered(fleet(1.0, 1.0, None), strategy=strategy, concurrency=3, deadline_s=3.0)
    start(made, grid, 20)
    n_timeouts = sum(len(version.timeouts) for version in made.rounds)
    assert (n_timeouts, strategy.n_errors) == (2, 0), "at 3 s, and invited again at 6 s, at 9 s"


@pytest.mark.parametrize("fails", [RAISED, GONE])
def test_failures_cost_a_place_for_a_moment(fails):
    nodes = fleet(1.0, 1.0, 1.0)
    nodes[103].fails = fails
    made, grid = buffered(nodes)
    result = start(made, grid, 10)
    assert len(made.rounds) == 10
    assert all(version.kept for version in made.rounds)
    assert made.participation["2"].n_failed >= 1
    assert result.arrays


def test_a_fleet_in_which_everybody_fails_ends():
    made, grid = buffered(fleet(1.0, 1.0, fails=RAISED), concurrency=2, buffer=2)
    result = start(made, grid, 3)
    assert [version.kept for version in made.rounds] == [(), (), ()]
    assert not np.any(result.arrays["w"].numpy()), "the model that it was given"


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        (np.zeros(3), "its arrays are not those of the model"),
        (np.array([np.nan, 0.0]), "array 'w' holds values that are not finite"),
    ],
)
def test_spoilt_answers_are_left_out(arrays, reason):
    nodes = fleet(1.0, 1.0, 1.0)

    def spoil(reply):
        reply.content["arrays"] = ArrayRecord({"w": Array(arrays)})

    nodes[103].spoils = spoil
    made, grid = buffered(nodes, concurrency=3, buffer=3)
    result = start(made, grid, 4)
    assert np.isfinite(result.arrays["w"].numpy()).all()
    assert not any("2" in version.kept for version in made.rounds)
    reasons = [version.reasons["2"] for version in made.rounds if "2" in version.reasons]
    assert reasons
    assert all(reason in told for told in reasons)


def test_deadlines_are_simulated_too():
    seconds = {"0": 10.0, "1": 20.0, "2": 500.0}
    made, grid = buffered(
        fleet(0.5, 0.6, 0.4),
        concurrency=3,
        deadline_s=100.0,
        latency=simulated(lambda client, reply: seconds[client]),
    )
    start(made, grid, 30)
    done = made.participation
    assert done["0"].mean_s == 10.0
    assert done["1"].mean_s == 20.0
    assert done["2"].n_timeouts >= 1
    assert done["2"].n_kept == 0
    assert sum(version.duration_s for version in made.rounds) == pytest.approx(200.0, abs=20.0)
    assert grid.clock.now - 1000.0 < 60.0


def test_it_learns_who_is_slow():
    scheduler = Scheduler(BSFL(alpha=0.0), cohort_size=2)
    made, grid = buffered(fleet(9.0, 1.0, 9.0, 1.0), scheduler=scheduler, concurrency=2)
    start(made, grid, 60)
    done = made.participation
    assert done["1"].n_kept > done["0"].n_kept
    assert scheduler.outstanding == []


# --- evaluation, restarts, waiting ----------------------------------------------------------------


def test_evaluation_every_so_many_versions_while_others_train():
    nodes = fleet(1.0, 1.0, 1.0, 1.0, evaluates=3.0)
    made, grid = buffered(nodes, strategy=FedAvg(), evaluate_every=3)
    result = start(made, grid, 6, evaluate_fn=lambda version, arrays: MetricRecord({"at": version}))
    assert list(result.evaluate_metrics_clientapp) == [3, 6]
    assert list(result.evaluate_metrics_serverapp) == [0, 3, 6]
    during = made.rounds[3].duration_s
    assert during <= 3.5, "answers that came during the evaluation were kept"


def test_a_slow_evaluation_ends_at_its_deadline():
    nodes = fleet(1.0, 1.0, 1.0, 1.0, evaluates=None)
    made, grid = buffered(nodes, strategy=FedAvg(), evaluate_every=2, evaluate_deadline_s=4.0)
    start(made, grid, 2)
    assert grid.clock.now - 1000.0 <= 8.0


def test_the_scheduler_goes_on_after_a_restart(tmp_path):
    path = tmp_path / "scheduler.bsfl"
    for n in (1, 2):
        scheduler = Scheduler(UniformRandom(), cohort_size=2)
        made, grid = buffered(fleet(1, 1, 1), scheduler=scheduler, state_path=path)
        start(made, grid, 3)
        assert Scheduler.load(path).t >= 3 * n


def test_clients_that_go_are_waited_for_and_missed():
    made, grid = buffered(fleet(1.0, 1.0), wait_s=20.0)
    pull = grid.pull_messages

    def leaving(message_ids):
        if grid.clock.now > 1005.0:
            grid.online = set()
        return pull(message_ids)

    grid.pull_messages = leaving
    with pytest.raises(NotEnoughClients, match="0 nodes are connected"):
        start(made, grid, 100)
    assert len(made.rounds) >= 5


def test_too_few_clients():
    made, grid = buffered(fleet(1.0), wait_s=5.0)
    with pytest.raises(NotEnoughClients, match="for 2 clients"):
        start(made, grid, 1)


def test_wrong_options():
    class Own(FedAvg):
        def start(self, *args, **kwargs):
            return super().start(*args, **kwargs)

    for options, message in [
        ({"strategy": Own()}, "Own has a start.. of its own, which is a loop of rounds"),
        ({"strategy": FedXgbBagging()}, "FedXgbBagging does not average models"),
        ({"quorum": 2}, "quorum is for rounds, of which Buffered has none"),
        ({"buffer": 3}, "buffer must not exceed the concurrency of 2, got 3"),
        ({"evaluate_every": 0}, "evaluate_every must be a whole number of at least 1, got 0"),
        ({"concurrency": 0}, "cohort_size must be a whole number of at least 1|concurrency must"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            buffered(fleet(1, 1), **options)
    made, _ = buffered(fleet(1, 1))
    with pytest.raises(InvalidInput, match="call its own start"):
        made.configure_train(1, ARRAYS, None, None)
    with pytest.raises(InvalidInput, match="call its own start"):
        made.aggregate_train(1, [])


# --- old models -----------------------------------------------------------------------------------


def record(**arrays):
    return ArrayRecord({name: Array(np.asarray(a)) for name, a in arrays.items()})


def test_rebasing_is_what_the_docstring_says():
    """now = 10, base = 1, the client moved to 4: 10 + (4 - 1) = 13, with weight 1/2 11.5."""
    versions = Versions(record(w=np.array([1.0]), n=np.array([5])))
    versions.advance(record(w=np.array([10.0]), n=np.array([7])), {0})
    answer = RecordDict({"arrays": record(w=np.array([4.0]), n=np.array([6])), "m": MetricRecord()})
    moved = versions.rebased(answer, 0)
    assert moved["arrays"]["w"].numpy() == 13.0
    assert moved["arrays"]["n"].numpy() == 8
    assert moved["arrays"]["n"].numpy().dtype == np.int64
    assert "m" in moved
    assert versions.rebased(answer, 0, 0.5)["arrays"]["w"].numpy() == 11.5
    assert versions.rebased(answer, 1) is answer, "nothing to do"
    small = RecordDict({"arrays": record(w=np.array([4.0], dtype=np.float32), n=np.array([6]))})
    assert versions.rebased(small, 0)["arrays"]["w"].numpy().dtype == np.float32


def test_versions_that_nobody_works_on_are_forgotten():
    versions = Versions(record(w=np.zeros(1)))
    for k in range(5):
        versions.advance(record(w=np.full(1, float(k))), {1, k})
    assert sorted(versions._models) == [1, 4, 5]
    versions.advance(None, set())
    assert versions.number == 6
    assert versions.arrays["w"].numpy() == 4.0
