"""The plug-in on a federation without processes, where every second is known."""

import itertools
import logging

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from fake_grid import GONE, RAISED, FakeClock, FakeGrid, fleet
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    FedProx,
)

from bsfl import BSFL, Scheduler, UniformRandom
from bsfl.errors import InvalidInput, NotEnoughClients, StateFileError
from bsfl.integrations.flower import Selected

ARRAYS = ArrayRecord({"w": Array(np.zeros(2))})


class Spy(Scheduler):
    """A scheduler that remembers what it was told."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.told = []

    def observe(self, answers, **options):
        super().observe(answers, **options)
        self.told += [(c, o.outcome, round(o.latency, 1)) for c, o in answers.items() if o.latency]


def federation(nodes, *, strategy=None, scheduler=None, cohort_size=2, **options):
    """Return a Selected on a fake grid, and the grid."""
    grid = FakeGrid(nodes, FakeClock())
    scheduler = scheduler or Spy(UniformRandom(), cohort_size=cohort_size)
    selected = Selected(strategy or FedAvg(fraction_evaluate=0.0), scheduler, **options)
    selected._clock = grid.clock
    return selected, grid


def start(selected, grid, rounds=1, **kwargs):
    return selected.start(grid=grid, initial_arrays=ARRAYS, num_rounds=rounds, **kwargs)


# --- an ordinary round ----------------------------------------------------------------------------


def test_a_round(caplog):
    caplog.set_level(logging.INFO, logger="flwr")
    selected, grid = federation(fleet(2.0, 4.0, 6.0), cohort_size=2, deadline_s=10.0)
    result = start(selected, grid, rounds=3)
    assert grid.queries == ["0", "1", "2"], "asked once each"
    assert [len(r.cohort) for r in selected.rounds] == [2, 2, 2]
    first = selected.rounds[0]
    for client, latency in first.latencies.items():
        exact = 2.0 + 2.0 * int(client)
        assert exact <= latency <= 1.02 * exact + 0.1, "stamped when it came, not at the end"
    assert first.duration_s == max(first.latencies.values())
    assert first.slowest == max(first.cohort)
    mean = np.mean([float(client) for client in selected.rounds[-1].kept])
    assert np.allclose(result.arrays["w"].numpy(), mean), "the chosen were averaged"
    history = result.train_metrics_clientapp[1]
    assert history["train_loss"] == 0.5
    assert history["bsfl-cohort"] == history["bsfl-kept"] == 2
    assert history["bsfl-round-s"] == first.duration_s
    assert history["bsfl-timeouts"] == history["bsfl-failed"] == 0
    assert history["bsfl-fleet-seen"] == pytest.approx(2 / 3)
    assert first.line() in caplog.messages
    assert "bsfl: 2 of 2 clients in" in first.line()
    assert selected.scheduler.t == 3
    assert selected.scheduler.outstanding == []


@pytest.mark.parametrize(
    "strategy",
    [
        FedAvg(fraction_evaluate=0.0),
        FedAdam(fraction_evaluate=0.0),
        FedProx(fraction_evaluate=0.0, proximal_mu=0.1),
        FedMedian(fraction_evaluate=0.0),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_strategies_aggregate_as_without_it(strategy):
    """All clients train, so the wrapped and the plain strategy see the same replies."""
    selected, grid = federation(fleet(1.0, 2.0, 3.0), strategy=strategy, cohort_size=3)
    wrapped = start(selected, grid, rounds=2)

    class Plain(FakeGrid):
        def send_and_receive(self, messages, *, timeout=None):
            ids = self.push_messages(list(messages))
            self.clock.now += 10.0
            return self.pull_messages(ids)

    alone = type(strategy)(fraction_evaluate=0.0, **_prox(strategy))
    plain = start(alone, Plain(fleet(1.0, 2.0, 3.0), FakeClock()), rounds=2)
    assert np.allclose(wrapped.arrays["w"].numpy(), plain.arrays["w"].numpy())
    for t, metrics in plain.train_metrics_clientapp.items():
        assert {k: wrapped.train_metrics_clientapp[t][k] for k in metrics} == dict(metrics)


def _prox(strategy):
    return {"proximal_mu": 0.1} if isinstance(strategy, FedProx) else {}


def test_the_strategys_own_settings_are_left_alone():
    strategy = FedAvg(fraction_train=0.1, min_available_nodes=4, fraction_evaluate=0.0)
    before = dict(vars(strategy))
    selected, grid = federation(fleet(1, 1, 1, 1), strategy=strategy, cohort_size=3)
    start(selected, grid)
    assert len(selected.rounds[0].kept) == 3, "the cohort, not a tenth of it"
    assert vars(strategy) == before
    selected, grid = federation(fleet(1, 1, 1), strategy=strategy, cohort_size=3, wait_s=5.0)
    with pytest.raises(NotEnoughClients, match="for 4 clients"):
        start(selected, grid)


def test_evaluation_is_left_alone():
    selected, grid = federation(fleet(1, 1, 1, 1), strategy=FedAvg(), cohort_size=2)
    start(selected, grid)
    assert sorted(grid.evaluated) == [101, 102, 103, 104], "all nodes, not the cohort"


def test_a_loop_of_ones_own_runs():
    class Mine(FedAvg):
        """Overrides start, as apps do that save their best model."""

        def start(self, grid, initial_arrays, num_rounds=3, **kwargs):
            self.started = num_rounds
            return super().start(grid, initial_arrays, num_rounds, **kwargs)

        def aggregate_train(self, server_round, replies):
            self.replies = list(replies)
            return super().aggregate_train(server_round, self.replies)

    mine = Mine(fraction_evaluate=0.0)
    selected, grid = federation(fleet(1, 2, 3), strategy=mine)
    result = start(selected, grid, rounds=2)
    assert mine.started == 2
    assert len(mine.replies) == 2
    assert "bsfl-round-s" in result.train_metrics_clientapp[2]
    assert "configure_train" not in vars(mine), "given back"


def test_starting_again_asks_nobody_again():
    selected, grid = federation(fleet(1, 1, 1))
    start(selected, grid)
    start(selected, grid)
    assert grid.queries == ["0", "1", "2"]
    assert selected.scheduler.t == len(selected.rounds) == 2


def test_cohorts_depend_on_the_seed_and_not_on_node_ids():
    def cohorts(*ids):
        nodes = dict(zip(ids, fleet(1, 1, 1, 1).values(), strict=True))
        selected, grid = federation(nodes)
        start(selected, grid, rounds=5)
        return [r.cohort for r in selected.rounds]

    assert cohorts(101, 102, 103, 104) == cohorts(904, 903, 902, 901)


def test_it_learns_who_is_slow():
    scheduler = Scheduler(BSFL(alpha=0.0, radius="none"), cohort_size=2)
    selected, grid = federation(fleet(9.0, 1.0, 9.0, 1.0), scheduler=scheduler)
    start(selected, grid, rounds=6)
    assert set(selected.rounds[-1].cohort) == {"1", "3"}


# --- deadlines ------------------------------------------------------------------------------------


def test_the_deadline_ends_a_round():
    selected, grid = federation(fleet(2.0, None), deadline_s=10.0)
    result = start(selected, grid)
    (only,) = selected.rounds
    assert only.duration_s == pytest.approx(10.0, abs=0.05)
    assert (only.kept, only.timeouts, only.failed) == (("0",), ("1",), ())
    assert selected.scheduler.told == [("0", "ok", 2.0), ("1", "timeout", 10.0)]
    assert result.train_metrics_clientapp[1]["bsfl-timeouts"] == 1
    assert np.allclose(result.arrays["w"].numpy(), 0.0)


def test_the_deadline_is_the_policys_tau_max_unless_told():
    scheduler = Spy(BSFL(tau_max=7.0), cohort_size=2)
    selected, grid = federation(fleet(2.0, None), scheduler=scheduler)
    start(selected, grid)
    assert selected.rounds[0].duration_s == pytest.approx(7.0, abs=0.05)


def test_without_a_deadline_the_timeout_of_start_ends_a_round():
    selected, grid = federation(fleet(2.0, None))
    start(selected, grid, timeout=20.0)
    assert selected.rounds[0].duration_s == pytest.approx(20.0, abs=0.2)
    assert selected.rounds[0].timeouts == ("1",)


def test_nobody_answers_and_training_goes_on():
    nodes = fleet(itertools.chain([None], itertools.repeat(1.0)), itertools.repeat(None))
    selected, grid = federation(nodes, deadline_s=5.0)
    result = start(selected, grid, rounds=2)
    assert [r.kept for r in selected.rounds] == [(), ("0",)]
    assert result.train_metrics_clientapp[1]["bsfl-slowest-s"] == pytest.approx(5.0, abs=0.05)
    assert "nobody answered" in selected.rounds[0].line()


def test_messages_live_as_long_as_stragglers_may_answer():
    selected, grid = federation(fleet(1, 1), deadline_s=10.0)
    start(selected, grid)
    assert grid.ttls == [20.0, 20.0]
    selected, grid = federation(fleet(1, 1), deadline_s=10.0, lifetime_s=12.0)
    start(selected, grid)
    assert grid.ttls == [12.0, 12.0]


def test_a_quorum_is_waited_for_beyond_the_deadline():
    selected, grid = federation(fleet(1.0, 15.0, None), cohort_size=3, deadline_s=10.0, quorum=2)
    start(selected, grid)
    (only,) = selected.rounds
    assert only.duration_s == pytest.approx(15.0, abs=0.4)
    assert (set(only.kept), only.timeouts) == ({"0", "1"}, ("2",))


def test_a_quorum_that_never_comes_is_given_up():
    selected, grid = federation(fleet(1.0, None, None), cohort_size=3, deadline_s=10.0, quorum=2)
    start(selected, grid)
    assert selected.rounds[0].duration_s == pytest.approx(20.0, abs=0.5), "the messages expired"
    assert sorted(selected.rounds[0].timeouts) == ["1", "2"]


# --- stragglers -----------------------------------------------------------------------------------


def test_a_straggler_is_busy_until_it_answers():
    nodes = fleet(1.0, 1.0, itertools.chain([17.0], itertools.repeat(1.0)))
    selected, grid = federation(nodes, cohort_size=3, deadline_s=10.0)
    start(selected, grid, rounds=12)
    cohorts = [set(r.cohort) for r in selected.rounds]
    assert cohorts[0] == {"0", "1", "2"}
    assert cohorts[1] == {"0", "1"}, "busy until second 17"
    back = cohorts.index({"0", "1", "2"}, 1)
    assert 10.0 + sum(r.duration_s for r in selected.rounds[1:back]) == pytest.approx(17.0, abs=1.5)
    assert sum(told[1] == "timeout" for told in selected.scheduler.told) == 1
    assert sum(r.n_late for r in selected.rounds) == 1


def test_a_straggler_is_free_when_its_message_expires():
    nodes = fleet(1.0, 1.0, itertools.chain([None], itertools.repeat(1.0)))
    selected, grid = federation(nodes, cohort_size=3, deadline_s=10.0)
    start(selected, grid, rounds=14)
    busy = [set(r.cohort) == {"0", "1"} for r in selected.rounds]
    assert 8 <= sum(busy) <= 11, "from second 10 to second 20, rounds of one second"
    assert busy == [False, *[True] * sum(busy), *[False] * (13 - sum(busy))]


def test_over_selection_keeps_the_first_and_hears_the_others_late():
    scheduler = Spy(UniformRandom(), cohort_size=2)
    selected, grid = federation(
        fleet(1.0, 2.0, 8.0), scheduler=scheduler, invite=1.5, deadline_s=30.0
    )
    start(selected, grid)
    (first,) = selected.rounds
    assert len(first.cohort) == 3
    assert first.kept == ("0", "1")
    assert first.timeouts == ()
    assert first.duration_s == pytest.approx(2.0, abs=0.1)
    assert scheduler.outstanding == ["2"]


def test_late_answers_of_the_over_selected_are_learned_from():
    scheduler = Spy(UniformRandom(), cohort_size=2)
    nodes = fleet(1.0, 2.0, itertools.chain([8.0], itertools.repeat(2.5)))
    selected, grid = federation(nodes, scheduler=scheduler, invite=1.5, deadline_s=30.0)
    start(selected, grid, rounds=6)
    assert ("2", "ok", 8.0) in [(c, o, round(s)) for c, o, s in scheduler.told]
    assert not any(outcome == "timeout" for _, outcome, _ in scheduler.told)
    assert sum(r.n_late for r in selected.rounds) >= 1
    assert "2" not in selected.rounds[1].cohort, "busy with the first round"
    assert any("2" in r.cohort for r in selected.rounds[2:])


def test_over_selected_clients_that_never_answer_time_out_later():
    scheduler = Spy(UniformRandom(), cohort_size=2)
    selected, grid = federation(
        fleet(1.0, 2.0, itertools.repeat(None)), scheduler=scheduler, invite=1.5, deadline_s=5.0
    )
    start(selected, grid, rounds=4)
    late = [told for told in scheduler.told if told[1] == "timeout"]
    assert late[0][0] == "2"
    assert late[0][2] >= 5.0


@pytest.mark.parametrize(
    ("invite", "m", "n"), [(1.2, 10, 12), (1.1, 10, 11), (1.3, 2, 3), (1, 4, 4)]
)
def test_how_many_are_invited(invite, m, n):
    scheduler = Scheduler(UniformRandom(), cohort_size=m)
    assert Selected(FedAvg(), scheduler, invite=invite).limits.n_invited == n


def test_over_selection_in_a_small_fleet_invites_everybody():
    selected, grid = federation(fleet(1, 1), invite=3.0)
    start(selected, grid)
    assert len(selected.rounds[0].cohort) == 2


# --- failures -------------------------------------------------------------------------------------


def test_a_client_that_fails():
    nodes = fleet(1.0, 2.0)
    nodes[102].fails = RAISED
    selected, grid = federation(nodes, deadline_s=60.0)
    start(selected, grid)
    (only,) = selected.rounds
    assert (only.kept, only.failed, only.timeouts) == (("0",), ("1",), ())
    assert only.duration_s == pytest.approx(2.0, abs=0.1), "nobody is left to wait for"
    assert selected.scheduler.told[1][:2] == ("1", "failed")


@pytest.mark.parametrize(("fails", "outcome"), [(GONE, "failed"), (None, "timeout")])
def test_the_superlink_answers_for_clients_that_are_gone(fails, outcome):
    """Such replies come from node 1; only the message they answer tells who is meant."""
    nodes = fleet(1.0, 3.0 if fails else None)
    nodes[102].fails = fails
    selected, grid = federation(nodes, deadline_s=60.0, lifetime_s=60.0)
    start(selected, grid)
    assert selected.scheduler.told[-1][:2] == ("1", outcome)


def test_a_message_that_could_not_be_sent():
    selected, grid = federation(fleet(1.0, 1.0), identity="node-id")
    grid.refused = {102}
    start(selected, grid)
    assert selected.rounds[0].failed == ("node-102",)
    assert selected.scheduler.outstanding == []


# --- identity -------------------------------------------------------------------------------------


def test_a_restarted_node_is_recognised():
    selected, grid = federation(fleet(1.0, 2.0, 3.0), cohort_size=3, deadline_s=10.0)

    class Restart(FakeGrid):
        """After the second round node 102 comes back as node 202; for a while both are listed."""

        def push_messages(self, messages):
            if self.sent.count(101) == 3 and 202 not in self.nodes:
                self.nodes[202] = self.nodes[102]
                self.online |= {202}
            if self.sent.count(101) == 4:
                self.online -= {102}
            return super().push_messages(messages)

    grid.__class__ = Restart
    start(selected, grid, rounds=6)
    assert selected.scheduler.clients == ["0", "1", "2"], "no stranger"
    assert grid.sent.count(202) >= 2
    assert grid.sent[-3:] != [101, 102, 103]


def test_nodes_that_cannot_say_who_they_are_go_by_node_id(caplog):
    caplog.set_level(logging.WARNING, logger="flwr")
    nodes = fleet(1.0, 1.0)
    nodes[102].answers_queries = False
    selected, grid = federation(nodes)
    start(selected, grid, rounds=2)
    assert selected.scheduler.clients == ["0", "node-102"]
    assert grid.queries == ["0", "1"], "not asked again"
    assert "1 node(s) do not answer a query with their partition-id" in caplog.text


def test_node_ids_are_free():
    selected, grid = federation(fleet(1.0, 1.0), identity="node-id")
    start(selected, grid)
    assert selected.scheduler.clients == ["node-101", "node-102"]
    assert grid.queries == []


def test_a_function_names_clients():
    selected, grid = federation(fleet(1.0, 1.0), identity=lambda node: f"phone {node.name}")
    start(selected, grid)
    assert selected.scheduler.clients == ["phone 0", "phone 1"]


def test_a_node_that_never_says_who_it_is_delays_only_the_first_round():
    selected, grid = federation(fleet(1.0, 1.0, 1.0))
    answer = grid._query
    grid._query = lambda node, m: (
        answer(node, m) if node.name != "2" else grid._answer(m, None, 1e9)
    )
    before = grid.clock.now
    start(selected, grid, rounds=3)
    assert set(selected.scheduler.clients) == {"0", "1"}
    assert 15.0 <= grid.clock.now - before <= 20.0


def test_answers_that_keep_coming_are_waited_for():
    """Each node says who it is ten seconds after the one before."""
    selected, grid = federation(fleet(1, 1, 1, 1, 1, 1))
    answer, turn = grid._answer, itertools.count(1)
    grid._answer = lambda m, reply, s: answer(
        m, reply, s if m.metadata.message_type == "train" else 10.0 * next(turn)
    )
    start(selected, grid)
    assert len(selected.scheduler.clients) == 6
    assert 60.0 <= grid.clock.now - 1000.0 <= 65.0


def test_newcomers_that_keep_coming_do_not_stop_a_fleet_that_is_large_enough():
    selected, grid = federation(fleet(1, 1, 1, 1, 1, 1), wait_s=25.0)
    answer, turn = grid._answer, itertools.count(1)
    grid._answer = lambda m, reply, s: answer(
        m, reply, s if m.metadata.message_type == "train" else 10.0 * next(turn)
    )
    start(selected, grid)
    assert len(selected.rounds[0].cohort) == 2


# --- latency --------------------------------------------------------------------------------------


def test_reported_durations_are_bounded():
    """The fastest round trip ever seen bounds from below, each one's own from above."""
    nodes = fleet(2.0, 4.0, 6.0, 8.0, 9.0)
    for node, claim in zip(nodes.values(), (1.5, 3.0, 1e-9, 1e9, float("nan")), strict=True):
        node.metrics = {"duration-s": claim}
    selected, grid = federation(nodes, cohort_size=5, latency="reported")
    start(selected, grid)
    expected = {"0": 2.0, "1": 3.0, "2": 2.0, "3": 8.0, "4": 9.0}
    assert selected.rounds[0].latencies == pytest.approx(expected, rel=0.03)


def test_without_a_report_the_round_trip_counts():
    selected, grid = federation(fleet(2.0, 4.0), latency="reported")
    start(selected, grid)
    assert selected.rounds[0].latencies["1"] == pytest.approx(4.0, abs=0.1)


def test_a_function_tells_latencies():
    selected, grid = federation(
        fleet(1.0, 1.0), latency=lambda client, reply, seconds: 100.0 + int(client)
    )
    start(selected, grid)
    assert selected.rounds[0].latencies == {"0": 100.0, "1": 101.0}
    selected, grid = federation(fleet(1.0, 1.0), latency=lambda client, reply, seconds: -1.0)
    with pytest.raises(InvalidInput, match=r"your latency function, for client '.': latency must"):
        start(selected, grid)


def test_losses_and_samples_reach_the_policy():
    scheduler = Scheduler(BSFL(generalization="loss"), cohort_size=2)
    selected, grid = federation(fleet(1.0, 1.0), scheduler=scheduler, loss_key="train_loss")
    start(selected, grid)
    assert scheduler._state.loss.tolist() == [0.5, 0.5]


# --- waiting --------------------------------------------------------------------------------------


def test_too_few_clients_is_an_error_not_a_wait_for_ever():
    selected, grid = federation(fleet(1.0), min_clients=3, wait_s=60.0)
    with pytest.raises(
        NotEnoughClients,
        match=r"waited 60 s for 3 clients \(2 of them free\): 1 nodes are connected, "
        "1 have said who they are, 1 are free",
    ):
        start(selected, grid)


def test_clients_that_come_later_are_waited_for():
    selected, grid = federation(fleet(1.0, 1.0, 1.0), min_clients=3)

    class Slowly(FakeGrid):
        def get_node_ids(self):
            return [101, 102, 103][: int((self.clock.now - 1000.0) / 20.0)]

    grid.__class__ = Slowly
    start(selected, grid)
    assert 1060.0 < grid.clock.now < 1075.0
    assert set(selected.scheduler.clients) == {"0", "1", "2"}


def test_fewer_clients_than_the_cohort_if_allowed():
    selected, grid = federation(
        fleet(1.0, 1.0), cohort_size=5, min_clients=2, strategy=FedAvg(fraction_evaluate=0.0)
    )
    start(selected, grid)
    assert len(selected.rounds[0].cohort) == 2


# --- the state file -------------------------------------------------------------------------------


def test_what_was_learned_survives(tmp_path):
    path = tmp_path / "scheduler.bsfl"

    def fresh(**options):
        scheduler = Scheduler(BSFL(alpha=0.0, radius="none"), cohort_size=2)
        return federation(fleet(9, 1, 9, 1), scheduler=scheduler, state_path=path, **options)

    selected, grid = fresh()
    start(selected, grid, rounds=2)
    assert Scheduler.load(path).t == 2
    restored, grid = fresh()
    assert restored.scheduler.t == 2
    start(restored, grid, rounds=1)
    assert set(restored.rounds[0].cohort) == {"1", "3"}, "no need to try everybody again"
    assert Scheduler.load(path).t == 3


def test_answers_to_a_killed_server_are_given_up(tmp_path):
    path = tmp_path / "scheduler.bsfl"
    selected, grid = federation(
        fleet(1.0, 2.0, 8.0), cohort_size=2, invite=1.5, deadline_s=30.0, state_path=path
    )
    start(selected, grid)
    assert Scheduler.load(path).outstanding == ["2"]
    again, _ = federation(fleet(1, 1, 1), cohort_size=2, state_path=path)
    assert again.scheduler.outstanding == []


def test_a_cohort_size_may_change_between_runs(tmp_path):
    path = tmp_path / "scheduler.bsfl"
    selected, grid = federation(fleet(1, 1, 1, 1), cohort_size=2, state_path=path)
    start(selected, grid)
    selected, grid = federation(fleet(1, 1, 1, 1), cohort_size=3, state_path=path)
    start(selected, grid)
    assert len(selected.rounds[0].cohort) == 3
    assert selected.scheduler.t == 2


def test_a_file_of_another_policy_is_refused(tmp_path):
    Scheduler(BSFL(), cohort_size=2).save(tmp_path / "scheduler.bsfl")
    with pytest.raises(
        StateFileError, match="holds what policy 'bsfl' learned, got policy 'random'"
    ):
        federation(fleet(1, 1), state_path=tmp_path / "scheduler.bsfl")


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrapper",
    [DifferentialPrivacyServerSideFixedClipping, DifferentialPrivacyClientSideFixedClipping],
)
def test_differential_privacy_is_refused(wrapper):
    private = wrapper(FedAvg(), noise_multiplier=1.0, clipping_norm=1.0, num_sampled_clients=2)
    with pytest.raises(InvalidInput, match=f"{wrapper.__name__} cannot be combined: .*at random"):
        federation(fleet(1, 1), strategy=private)


def test_differential_privacy_around_it_is_refused_too():
    selected, grid = federation(fleet(1, 1))
    private = DifferentialPrivacyServerSideFixedClipping(
        selected, noise_multiplier=1.0, clipping_norm=1.0, num_sampled_clients=2
    )
    with pytest.raises(InvalidInput, match="Selected must be the outermost strategy.*at random"):
        start(private, grid)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "fedavg"}, "strategy must be a Flower strategy of the Message API"),
        (
            {"strategy": FedAvg(fraction_train=0.0)},
            "fraction_train of FedAvg must not be 0: nobody would train",
        ),
        ({"scheduler": "bsfl"}, "scheduler must be a bsfl.Scheduler, got 'bsfl'"),
        ({"identity": "name"}, "identity must be one of partition-id, node-id, got 'name'"),
        ({"latency": "fast"}, "latency must be one of round-trip, reported, got 'fast'"),
        ({"deadline_s": 0.0}, "deadline_s must be a finite number above 0, got 0.0"),
        ({"invite": 0.5}, "invite must be a finite number of at least 1, got 0.5"),
        ({"quorum": 1}, "quorum=1 needs a deadline_s"),
        ({"quorum": 3, "deadline_s": 1.0}, "quorum must not exceed the cohort_size of 2, got 3"),
        ({"deadline_s": 5.0, "lifetime_s": 4.0}, "lifetime_s must be .* at least 5, got 4.0"),
        ({"min_clients": 0}, "min_clients must be a whole number of at least 1, got 0"),
        ({"wait_s": -1.0}, "wait_s must be a finite number of at least 0, got -1.0"),
        ({"state_path": "nowhere/file"}, "state_path must lie in a folder that exists"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(InvalidInput, match=message):
        federation(fleet(1, 1), **options)


def test_a_strategy_that_does_not_train_all_it_is_given_is_caught():
    class Half(FedAvg):
        def configure_train(self, *args):
            return list(super().configure_train(*args))[:1]

    selected, grid = federation(fleet(1, 1), strategy=Half())
    with pytest.raises(InvalidInput, match="Half must send one training message to each of the 2"):
        start(selected, grid)


def test_a_strategy_that_waits_for_more_is_stopped(monkeypatch):
    monkeypatch.setattr("flwr.serverapp.strategy.strategy_utils.sleep", lambda seconds: None)

    class Greedy(FedAvg):
        def configure_train(self, *args):
            self.min_train_nodes = 3  # decided on the spot
            return super().configure_train(*args)

    selected, grid = federation(fleet(1, 1), strategy=Greedy())
    with pytest.raises(InvalidInput, match="waits for more than the 2 nodes that were chosen"):
        start(selected, grid)


def test_it_wraps_once():
    selected, _ = federation(fleet(1, 1))
    with pytest.raises(InvalidInput, match="strategy is wrapped already"):
        Selected(selected, Scheduler(UniformRandom(), cohort_size=2))
