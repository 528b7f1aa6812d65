"""Buffered: clients always in flight, replies to old models rebased, every few of them a version."""

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


def test_no_client_waits_for_a_straggler():
    """Client 1 replies every second, client 2 after 10: 10 versions are made, then a stale one."""
    nodes = dict(itertools.islice(fleet(1.0, 1.0, 10.0).items(), 1, 3))
    made, grid = buffered(nodes)
    result = start(made, grid, 11)
    assert 10.0 <= grid.clock.now - 1000.0 <= 12.0, "11 rounds would have taken 110 s"
    kept = [client for version in made.rounds for client in version.kept]
    assert kept.count("2") == 1
    assert kept.count("1") == 10
    assert w(result) == pytest.approx(10 * 1.0 + 2.0), (
        "every update counts in full, none is reverted"
    )
    (stale,) = [version for version in made.rounds if version.kept == ("2",)]
    assert 8 <= stale.staleness[0] <= 10
    assert result.train_metrics_clientapp[stale.server_round]["bsfl-staleness"] >= 8


def test_concurrency_clients_are_in_flight():
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
    assert [len(version.kept) for version in made.rounds] == [2] * 6, "B replies each"


def test_the_strategy_aggregates_every_b_replies():
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
def test_without_stale_replies_it_is_the_strategy_itself(strategy):
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


def test_stale_replies_may_count_less():
    nodes = dict(itertools.islice(fleet(1.0, 1.0, 4.5).items(), 1, 3))
    made, grid = buffered(nodes, staleness=staleness_weight)
    result = start(made, grid, 6)
    weighed = [float(v.kept[0]) / math.sqrt(1 + v.staleness[0]) for v in made.rounds]
    assert max(v.staleness[0] for v in made.rounds) >= 3
    assert w(result) == pytest.approx(sum(weighed))


def test_an_overdue_client_times_out_and_another_one_replaces_it():
    scheduler = Spy(UniformRandom(), cohort_size=2)
    made, grid = buffered(fleet(1.0, 1.0, None), scheduler=scheduler, deadline_s=5.0)
    start(made, grid, 12)
    assert ("2", "timeout", 5.0) in scheduler.reported
    assert any("2" in version.timeouts for version in made.rounds)
    assert grid.clock.now - 1000.0 < 15.0


def test_a_late_reply_frees_its_node_and_is_not_used():
    nodes = fleet(1.0, 1.0, itertools.chain([7.0], itertools.repeat(1.0)))
    made, grid = buffered(nodes, concurrency=3, deadline_s=5.0, lifetime_s=100.0)
    start(made, grid, 40)
    assert sum(version.n_late for version in made.rounds) == 1
    assert sum("2" in version.kept for version in made.rounds) > 1, "invited again"


class Errors(FedAvg):
    """Counts the errors that it gets, each of which is a line in Flower's log."""

    n_errors = 0

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        self.n_errors += sum(reply.has_error() for reply in replies)
        return super().aggregate_train(server_round, replies)


def test_a_client_that_timed_out_is_no_error_when_its_message_expires():
    strategy = Errors(fraction_evaluate=0.0)
    made, grid = buffered(fleet(1.0, 1.0, None), strategy=strategy, concurrency=3, deadline_s=3.0)
    start(made, grid, 20)
    n_timeouts = sum(len(version.timeouts) for version in made.rounds)
    assert (n_timeouts, strategy.n_errors) == (2, 0), "at 3 s, and invited again at 6 s, at 9 s"


@pytest.mark.parametrize("fails", [RAISED, GONE])
def test_a_client_that_fails_is_replaced(fails):
    nodes = fleet(1.0, 1.0, 1.0)
    nodes[103].fails = fails
    made, grid = buffered(nodes)
    result = start(made, grid, 10)
    assert len(made.rounds) == 10
    assert all(version.kept for version in made.rounds)
    assert made.participation["2"].n_failed >= 1
    assert result.arrays


def test_training_ends_if_all_clients_fail():
    made, grid = buffered(fleet(1.0, 1.0, fails=RAISED), concurrency=2, buffer=2)
    result = start(made, grid, 3)
    assert [version.kept for version in made.rounds] == [(), (), ()]
    assert not np.any(result.arrays["w"].numpy()), "the model that it was given"


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        (np.zeros(3), "its arrays differ in name or shape"),
        (np.array([np.nan, 0.0]), "array 'w' holds values that are not finite"),
    ],
)
def test_unusable_replies_are_left_out(arrays, reason):
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
    assert all(reason in given for given in reasons)


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
    assert scheduler.in_flight == []


# --- rounds of the scheduler ----------------------------------------------------------------------


def most_open(entries):
    """Return how many rounds were open at once, at most, by the entries of a journal."""
    is_open, most = set(), 0
    for entry in entries:
        if entry["kind"] == "opened":
            is_open.add(entry["round"])
        elif entry["kind"] == "closed":
            is_open.discard(entry["round"])
        most = max(most, len(is_open))
    return most


def test_every_invitation_is_an_open_round_of_its_own_and_its_response_is_fresh():
    """Client 0 needs as long as twelve responses of the others: no round is closed before it."""
    scheduler = Spy(UniformRandom(), cohort_size=3)
    made, grid = buffered(fleet(12.0, 1.0, 1.0, 1.5), scheduler=scheduler, concurrency=3, buffer=2)
    start(made, grid, 12)
    journal = scheduler.journal
    assert scheduler.max_open_rounds == 3
    assert most_open(journal.entries) == 3
    assert all(len(entry["invited"]) == 1 for entry in journal.of_kind("opened"))
    results = journal.results()
    assert {(outcome, late, dropped) for _, _, outcome, late, dropped in results} == {
        ("ok", False, False)
    }
    rounds = [number for number, *_ in results]
    assert len(rounds) == len(set(rounds)), "each round is reported once"
    (slow,) = {number for number, client, *_ in results if client == "0"}
    assert rounds.index(rounds[-1]) > rounds.index(slow) > slow, "later rounds closed before it"
    closed = journal.of_kind("closed")
    assert len(closed) == len(journal.of_kind("opened")), "those in flight at the end as well"
    n_kept = {client: done.n_kept for client, done in made.participation.items()}
    waiting = len(results) - sum(n_kept.values())
    assert 0 <= waiting < 2, "responses that were left in the buffer"
    rows = {row["client"]: row for row in scheduler.table()}
    for client, row in rows.items():
        reported = sum(its == client for _, its, *_ in results)
        assert (row["participations"], row["late"], row["pending"]) == (reported, 0, 0)
        assert row["invitations"] - row["participations"] in (0, 1), "one may be in flight"
    assert scheduler.pending() == []
    followed = journal.followed()
    assert (followed.open, followed.n_rounds) == ({}, len(closed))
    assert sum(sums.n_late for sums in followed.clients.values()) == 0


def test_a_timeout_closes_its_round_and_the_late_response_is_not_reported():
    nodes = fleet(1.0, 1.0, itertools.chain([7.0], itertools.repeat(1.0)))
    scheduler = Spy(UniformRandom(), cohort_size=3)
    made, grid = buffered(
        nodes, scheduler=scheduler, concurrency=3, deadline_s=5.0, lifetime_s=100.0
    )
    start(made, grid, 40)
    results = scheduler.journal.results()
    assert [r for r in results if r[2] != "ok"] == [
        (results_round(results, "2"), "2", "timeout", False, False)
    ]
    assert not any(is_late for *_, is_late, _ in results)
    row = scheduler.client("2")
    assert (row["timeouts"], row["late"]) == (1, 0)
    assert row["participations"] == sum(its == "2" for _, its, *_ in results) - 1
    assert most_open(scheduler.journal.entries) == 3


def results_round(results, client):
    """Return the first round that a client was invited to, of those that were reported."""
    return min(number for number, its, *_ in results if its == client)


def test_a_client_that_is_forgotten_in_flight_costs_no_other_response():
    """Rounds are short: client 2 is unavailable for all of `forget_after` while it trains."""
    scheduler = Spy(UniformRandom(), cohort_size=3, forget_after=10)
    made, grid = buffered(fleet(1.0, 1.2, 40.0), scheduler=scheduler, concurrency=3)
    start(made, grid, 60)
    assert scheduler.journal.of_kind("forgotten")[0]["clients"] == ["2"]
    assert not any(is_late for *_, is_late, _ in scheduler.journal.results())
    assert scheduler.pending() == []


def test_rounds_of_a_server_that_was_killed_are_closed(tmp_path):
    path = tmp_path / "scheduler.bsfl"

    class Killed(FedAvg):
        def aggregate_train(self, server_round, replies):
            if server_round == 4:
                raise KeyboardInterrupt
            return super().aggregate_train(server_round, replies)

    scheduler = Spy(UniformRandom(), cohort_size=3)
    strategy = Killed(fraction_evaluate=0.0)
    made, grid = buffered(
        fleet(1, 2, 3, 9), strategy=strategy, scheduler=scheduler, concurrency=3, state_path=path
    )
    with pytest.raises(KeyboardInterrupt):
        start(made, grid, 9)
    assert Scheduler.load(path).pending() != []
    again = Spy(UniformRandom(), cohort_size=3)
    made, grid = buffered(fleet(1, 2, 3, 9), scheduler=again, concurrency=3, state_path=path)
    assert made.scheduler.pending() == []
    start(made, grid, 5)
    assert not any(is_late for *_, is_late, _ in again.journal.results())


# --- evaluation, restarts, waiting ----------------------------------------------------------------


def test_evaluation_every_so_many_versions_while_others_train():
    nodes = fleet(1.0, 1.0, 1.0, 1.0, evaluates=3.0)
    made, grid = buffered(nodes, strategy=FedAvg(), evaluate_every=3)
    result = start(made, grid, 6, evaluate_fn=lambda version, arrays: MetricRecord({"at": version}))
    assert list(result.evaluate_metrics_clientapp) == [3, 6]
    assert list(result.evaluate_metrics_serverapp) == [0, 3, 6]
    during = made.rounds[3].duration_s
    assert during <= 3.5, "replies that came during the evaluation were kept"


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
        assert Scheduler.load(path).round >= 3 * n


def test_clients_that_disconnect_are_waited_for_until_there_are_too_few():
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
        ({"strategy": Own()}, "Own overrides start"),
        ({"strategy": FedXgbBagging()}, "FedXgbBagging does not average"),
        ({"min_responses": 2}, "min_responses is for rounds"),
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
    content = RecordDict(
        {"arrays": record(w=np.array([4.0]), n=np.array([6])), "m": MetricRecord()}
    )
    rebased = versions.rebased(content, 0)
    assert rebased["arrays"]["w"].numpy() == 13.0
    assert rebased["arrays"]["n"].numpy() == 8
    assert rebased["arrays"]["n"].numpy().dtype == np.int64
    assert "m" in rebased
    assert versions.rebased(content, 0, 0.5)["arrays"]["w"].numpy() == 11.5
    assert versions.rebased(content, 1) is content, "nothing to do"
    small = RecordDict({"arrays": record(w=np.array([4.0], dtype=np.float32), n=np.array([6]))})
    assert versions.rebased(small, 0)["arrays"]["w"].numpy().dtype == np.float32


def test_versions_that_no_client_trains_on_are_dropped():
    versions = Versions(record(w=np.zeros(1)))
    for k in range(5):
        versions.advance(record(w=np.full(1, float(k))), {1, k})
    assert sorted(versions._models) == [1, 4, 5]
    versions.advance(None, set())
    assert versions.number == 6
    assert versions.arrays["w"].numpy() == 4.0
