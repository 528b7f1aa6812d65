"""Buffered: clients always in flight, replies to old models rebased, every few of them a version."""

import functools
import itertools
import math

import numpy as np
import pytest
from fake_federation import ARRAYS, Spy, buffered
from fake_grid import GONE, RAISED, Adding, fleet
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedMedian, FedXgbBagging

from bsfl import Scheduler, UniformRandom
from bsfl.errors import InvalidInput, NotEnoughClients
from bsfl.integrations.flower import Buffered, simulated
from bsfl.integrations.flower.versions import Versions
from bsfl.rounds import staleness_weight
from fake_clock import FakeClock


class Noting(FedAvg):
    """Notes how many replies, and how many errors among them, it gets for each version."""

    sizes = ()

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        n_errors = sum(reply.has_error() for reply in replies)
        self.sizes = (*self.sizes, (server_round, len(replies) - n_errors, n_errors))
        return super().aggregate_train(server_round, replies)


def test_no_client_waits_for_a_straggler():
    """Client 1 replies every second, client 2 after 10: 10 versions are made, then a stale one."""
    nodes = dict(itertools.islice(fleet(1.0, 1.0, 10.0).items(), 1, 3))
    run = buffered(nodes).start(11)
    assert 10.0 <= run.seconds <= 12.0, "11 rounds would have taken 110 s"
    kept = [client for version in run.rounds for client in version.kept]
    assert sorted(kept) == [*["1"] * 10, "2"]
    assert run.model == 10 * 1.0 + 2.0, "every update counts in full, none is reverted"
    (stale,) = [version for version in run.rounds if version.kept == ("2",)]
    assert 8 <= stale.staleness[0] <= 10
    metrics = run.result.train_metrics_clientapp[stale.server_round]
    assert (metrics["bsfl-staleness"], metrics["bsfl-busy"]) == (stale.staleness[0], stale.n_busy)


def test_stale_replies_may_count_less():
    nodes = dict(itertools.islice(fleet(1.0, 1.0, 4.5).items(), 1, 3))
    run = buffered(nodes, staleness=staleness_weight).start(6)
    weighed = [float(v.kept[0]) / math.sqrt(1 + v.staleness[0]) for v in run.rounds]
    assert max(v.staleness[0] for v in run.rounds) >= 3
    assert run.model == pytest.approx(sum(weighed))


@pytest.mark.parametrize(("buffer", "b"), [(2, 2), (None, 3)])
def test_c_clients_are_in_flight_and_every_b_replies_are_aggregated(buffer, b):
    strategy = Noting(fraction_evaluate=0.0)
    run = buffered(fleet(*[3.0] * 8), strategy=strategy, concurrency=5, buffer=buffer)
    in_flight, push = [], run.grid.push_messages

    def counting(messages):
        sent = push(messages)
        in_flight.append(len(run.grid.on_the_way))
        return sent

    run.grid.push_messages = counting
    run.start(6)
    assert in_flight[0] == max(in_flight) == 5
    assert [len(version.kept) for version in run.rounds] == [b] * 6
    assert strategy.sizes == tuple((number, b, 0) for number in range(1, 7))


@pytest.mark.parametrize("strategy", [FedAvg, FedMedian, FedAdam, FedAvgM])
def test_without_stale_replies_it_is_the_strategy_itself(strategy):
    """All start together, end together and are averaged: rounds by another name."""
    made, plain = (strategy(fraction_evaluate=0.0) for _ in range(2))
    run = buffered(fleet(1.0, 1.0, 1.0), strategy=made, concurrency=3, buffer=3).start(3)
    expected = plain.start(Adding(fleet(1.0, 1.0, 1.0), FakeClock()), ARRAYS, 3)
    assert run.model == pytest.approx(expected.arrays["w"].numpy()[0])
    assert [version.staleness for version in run.rounds] == [(0, 0, 0)] * 3


def test_an_overdue_client_times_out_once_and_another_one_replaces_it():
    """At 3 s, and invited again at 6 s, at 9 s; no error when its message expires."""
    strategy = Noting(fraction_evaluate=0.0)
    run = buffered(fleet(1.0, 1.0, None), strategy=strategy, concurrency=3, deadline_s=3.0)
    run.start(20)
    timeouts = [one for one in run.scheduler.reported if one[1] == "timeout"]
    assert timeouts == [("2", "timeout", 3.0)] * 2
    assert run.strategy.participation["2"].n_timeouts == 2
    assert sum(n_errors for *_, n_errors in strategy.sizes) == 0
    assert run.seconds < 15.0


def test_a_late_reply_frees_its_node_and_is_neither_used_nor_reported():
    nodes = fleet(1.0, 1.0, itertools.chain([7.0], itertools.repeat(1.0)))
    run = buffered(nodes, concurrency=3, deadline_s=5.0, lifetime_s=100.0).start(40)
    assert sum(version.n_late for version in run.rounds) == 1
    assert sum("2" in version.kept for version in run.rounds) > 1, "invited again"
    results = run.scheduler.journal.results()
    (timeout,) = [one for one in results if one[2:] != ("ok", False, False)]
    assert timeout == (timeout[0], "2", "timeout", False, False)
    row = run.scheduler.client("2")
    assert (row["timeouts"], row["late"]) == (1, 0)
    assert most_open(run.scheduler.journal.entries) == 3


@pytest.mark.parametrize("fails", [RAISED, GONE])
def test_a_client_that_fails_is_replaced(fails):
    nodes = fleet(1.0, 1.0, 1.0)
    nodes[103].fails = fails
    run = buffered(nodes).start(10)
    assert [len(version.kept) for version in run.rounds] == [1] * 10
    assert run.strategy.participation["2"].n_failed >= 1


def test_a_client_that_cannot_be_reached_has_failed():
    run = buffered(fleet(1.0, 1.0, 1.0))
    run.grid.refused = {103}
    reasons = [version.reasons for version in run.start(10).rounds if version.failed]
    assert {"2": "it could not be reached"} in reasons


def test_training_ends_if_all_clients_fail():
    run = buffered(fleet(1.0, 1.0, fails=RAISED), concurrency=2, buffer=2).start(3)
    assert [version.kept for version in run.rounds] == [(), (), ()]
    assert run.model == 0.0, "the model that it was given"


UNUSABLE = {
    "3": ("its arrays differ in name or shape", {"w": np.zeros(3)}),
    "4": ("its arrays differ in name or shape", {"v": np.zeros(2)}),
    "5": ("array 'w' holds values that are not finite", {"w": np.array([np.nan, 0.0])}),
    "6": ("its records differ from those of the others", {"w": np.zeros(2)}),
}


def test_unusable_replies_are_left_out():
    """The last one reports another metric than the others."""
    nodes = fleet(*[1.0] * 7)

    def spoil(client, reply):
        reply.content["arrays"] = record(**UNUSABLE[client][1])

    for client in UNUSABLE:
        nodes[101 + int(client)].spoils = functools.partial(spoil, client)
    nodes[107].metrics = {"extra": 1.0}
    run = buffered(nodes, concurrency=7, buffer=7).start(1)
    (only,) = run.rounds
    assert set(only.kept) == {"0", "1", "2"}
    assert set(only.failed) == set(only.reasons) == set(UNUSABLE)
    for client, (reason, _) in UNUSABLE.items():
        assert only.reasons[client].startswith(reason)
    assert math.isfinite(run.model)


def test_deadlines_are_simulated_too():
    source = simulated(lambda client, reply: {"0": 10.0, "1": 20.0, "2": 500.0}[client])
    options = {"concurrency": 3, "deadline_s": 100.0, "latency": source}
    run = buffered(fleet(0.5, 0.6, 0.4), **options).start(30)
    done = run.strategy.participation
    assert [done[client].mean_s for client in "012"] == [10.0, 20.0, None]
    assert done["2"].n_timeouts >= 1
    assert sum(version.duration_s for version in run.rounds) == pytest.approx(200.0, abs=20.0)
    assert run.seconds < 60.0


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
    run = buffered(fleet(12.0, 1.0, 1.0, 1.5), concurrency=3, buffer=2).start(12)
    scheduler, journal = run.scheduler, run.scheduler.journal
    opened, closed = journal.of_kind("opened"), journal.of_kind("closed")
    assert most_open(journal.entries) == scheduler.max_open_rounds == 3
    assert [len(entry["invited"]) for entry in opened] == [1] * len(opened)
    assert len(closed) == len(opened), "those in flight at the end as well"
    results = journal.results()
    assert {one[2:] for one in results} == {("ok", False, False)}
    rounds = [number for number, *_ in results]
    assert len(rounds) == len(set(rounds)), "each round is reported once"
    (slow,) = {number for number, client, *_ in results if client == "0"}
    assert len(rounds) - 1 > rounds.index(slow) > slow, "later rounds closed before it"
    n_kept = sum(done.n_kept for done in run.strategy.participation.values())
    assert 0 <= len(results) - n_kept < 2, "responses that were left in the buffer"
    assert scheduler.pending() == []


def test_a_client_that_is_forgotten_in_flight_costs_no_other_response():
    """Rounds are short: client 2 is unavailable for all of `forget_after` while it trains."""
    scheduler = Spy(UniformRandom(), cohort_size=3, forget_after=10)
    buffered(fleet(1.0, 1.2, 40.0), scheduler=scheduler, concurrency=3).start(60)
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

    strategy, nodes = Killed(fraction_evaluate=0.0), fleet(1, 2, 3, 9)
    killed = buffered(nodes, strategy=strategy, concurrency=3, state_path=path)
    with pytest.raises(KeyboardInterrupt):
        killed.start(9)
    before = Scheduler.load(path)
    assert before.pending() != []
    scheduler = Spy(UniformRandom(), cohort_size=3)
    again = buffered(nodes, scheduler=scheduler, concurrency=3, state_path=path)
    assert again.scheduler.pending() == []
    again.start(5)
    assert not any(is_late for *_, is_late, _ in scheduler.journal.results())
    assert Scheduler.load(path).round >= before.round + 5


def test_evaluation_every_so_many_versions_while_others_train():
    nodes = fleet(1.0, 1.0, 1.0, 1.0, evaluates=3.0)
    run = buffered(nodes, strategy=FedAvg(), evaluate_every=3)
    run.start(6, evaluate_fn=lambda version, arrays: MetricRecord({"at": version}))
    assert list(run.result.evaluate_metrics_clientapp) == [3, 6]
    assert list(run.result.evaluate_metrics_serverapp) == [0, 3, 6]
    during = run.rounds[3].duration_s
    assert during <= 3.5, "replies that came during the evaluation were kept"


def test_a_slow_evaluation_ends_at_its_deadline():
    nodes = fleet(1.0, 1.0, 1.0, 1.0, evaluates=None)
    run = buffered(nodes, strategy=FedAvg(), evaluate_deadline_s=4.0).start(1)
    assert 5.0 <= run.seconds <= 6.0


def test_clients_that_disconnect_are_waited_for_until_there_are_too_few():
    with pytest.raises(NotEnoughClients, match="for 2 clients"):
        buffered(fleet(1.0), wait_s=5.0).start()
    run = buffered(fleet(1.0, 1.0), wait_s=20.0)
    pull = run.grid.pull_messages

    def leaving(message_ids):
        if run.seconds > 5.0:
            run.grid.online = set()
        return pull(message_ids)

    run.grid.pull_messages = leaving
    with pytest.raises(NotEnoughClients, match="0 nodes are connected"):
        run.start(100)
    assert len(run.rounds) >= 5


class Own(FedAvg):
    def start(self, *args, **kwargs):
        return super().start(*args, **kwargs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": Own()}, "Own overrides start"),
        ({"strategy": FedXgbBagging()}, "FedXgbBagging does not average"),
        ({"min_responses": 2}, "min_responses is for rounds"),
        ({"buffer": 3}, "buffer must not exceed the concurrency of 2, got 3"),
        ({"evaluate_every": 0}, "evaluate_every .* got 0"),
        ({"concurrency": 0, "scheduler": Scheduler(cohort_size=2)}, "concurrency .* got 0"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(InvalidInput, match=message):
        buffered(fleet(1, 1), **options)


def test_it_must_be_the_outermost_strategy():
    made = Buffered(FedAvg(), Scheduler(cohort_size=2))
    with pytest.raises(InvalidInput, match="call its own start"):
        made.configure_train(1, ARRAYS, None, None)
    with pytest.raises(InvalidInput, match="call its own start"):
        made.aggregate_train(1, [])


def record(**arrays):
    return ArrayRecord({name: Array(np.asarray(a)) for name, a in arrays.items()})


def test_rebasing_is_what_the_docstring_says():
    """now = 10, base = 1, the client moved to 4: 10 + (4 - 1) = 13, with weight 1/2 11.5."""
    versions = Versions(record(w=[1.0], n=[5], is_set=[True]))
    versions.advance(record(w=[10.0], n=[7], is_set=[True]), {0})
    sent = record(w=np.array([4.0], dtype=np.float32), n=[6], is_set=[False])
    content = RecordDict({"arrays": sent, "m": MetricRecord()})
    rebased = versions.rebased(content, 0)
    assert list(rebased) == ["m", "arrays"]
    arrays = {name: array.numpy() for name, array in rebased["arrays"].items()}
    assert arrays == {"w": 13.0, "n": 8, "is_set": False}
    assert [str(a.dtype) for a in arrays.values()] == ["float32", "int64", "bool"]
    assert versions.rebased(content, 0, 0.5)["arrays"]["w"].numpy() == 11.5
    assert versions.rebased(content, 1) is content, "nothing to do"


def test_versions_that_no_client_trains_on_are_dropped():
    versions = Versions(record(w=np.zeros(1)))
    for k in range(5):
        versions.advance(record(w=np.full(1, float(k))), {1, k})
    assert sorted(versions._models) == [1, 4, 5]
    versions.advance(None, set())
    assert (versions.number, versions.arrays["w"].numpy()) == (6, 4.0)
