"""The plug-in on a federation without processes: rounds, the state file, and what is refused."""

import logging

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from fake_federation import federation, start
from fake_grid import FakeGrid, fleet
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    FedProx,
)

from bsfl import BSFL, Means, Oort, Scheduler, UniformRandom
from bsfl.errors import InvalidInput, NotEnoughClients, StateFileError
from bsfl.integrations.flower import Selected
from bsfl.monitor import read_journal
from fake_clock import FakeClock

# --- an ordinary round ----------------------------------------------------------------------------


def test_a_round(caplog):
    caplog.set_level(logging.INFO, logger="flwr")
    selected, grid = federation(fleet(2.0, 4.0, 6.0), cohort_size=2, deadline_s=10.0)
    result = start(selected, grid, rounds=3)
    assert grid.queries == [], "nobody is asked anything but to train"
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
def test_strategies_aggregate_as_without_it(strategy, caplog):
    """All clients train, so the wrapped and the plain strategy see the same replies."""
    selected, grid = federation(fleet(1.0, 2.0, 3.0), strategy=strategy, cohort_size=3)
    caplog.set_level(logging.INFO, logger="flwr")
    wrapped = start(selected, grid, rounds=2)

    class Plain(FakeGrid):
        def send_and_receive(self, messages, *, timeout=None):
            ids = self.push_messages(list(messages))
            self.clock.now += 10.0
            return self.pull_messages(ids)

    n_lines = len(caplog.records)
    caplog.clear()
    alone = type(strategy)(fraction_evaluate=0.0, **_prox(strategy))
    plain = start(alone, Plain(fleet(1.0, 2.0, 3.0), FakeClock()), rounds=2)
    assert np.allclose(wrapped.arrays["w"].numpy(), plain.arrays["w"].numpy())
    for t, metrics in plain.train_metrics_clientapp.items():
        assert {k: wrapped.train_metrics_clientapp[t][k] for k in metrics} == dict(metrics)
    assert n_lines <= len(caplog.records) + 1 + 2, "one to begin with, one for each round"


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
    selected, grid = federation(fleet(1, 1, 1), identity="partition-id")
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
    scheduler = Scheduler(BSFL(alpha=0.0, index=Means(radius="none")), cohort_size=2)
    selected, grid = federation(fleet(9.0, 1.0, 9.0, 1.0), scheduler=scheduler)
    start(selected, grid, rounds=6)
    assert set(selected.rounds[-1].cohort) == {"1", "3"}


# --- the state file -------------------------------------------------------------------------------


def test_what_was_learned_survives(tmp_path):
    path = tmp_path / "scheduler.bsfl"

    def fresh(**options):
        scheduler = Scheduler(BSFL(alpha=0.0, index=Means(radius="none")), cohort_size=2)
        return federation(fleet(9, 1, 9, 1), scheduler=scheduler, state_path=path, **options)

    selected, grid = fresh()
    start(selected, grid, rounds=2)
    assert Scheduler.load(path).t == 2
    restored, grid = fresh()
    assert restored.scheduler.t == 2
    start(restored, grid, rounds=1)
    assert set(restored.rounds[0].cohort) == {"1", "3"}, "no need to try everybody again"
    assert Scheduler.load(path).t == 3


@pytest.mark.parametrize("of", ["scheduler", "selected"])
def test_a_server_that_is_started_again_goes_on_with_its_journal(tmp_path, of):
    path, journal = tmp_path / "scheduler.bsfl", tmp_path / "rounds.jsonl"
    records = []
    for rounds in (2, 1):
        own = {"journal": journal} if of == "scheduler" else {}
        scheduler = Scheduler(cohort_size=2, on_round=records.append, **own)
        more = {} if own else {"journal": journal}
        selected, grid = federation(fleet(1, 2, 3), scheduler=scheduler, state_path=path, **more)
        start(selected, grid, rounds=rounds)
    assert [line["t"] for line in read_journal(journal)] == [1, 2, 3]
    assert [record.t for record in records] == [1, 2, 3]


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
        ({"identity": 7}, "identity must be 'auto', 'node-id', a key .*, or a function, got 7"),
        ({"identity": ""}, "identity must be 'auto', 'node-id', a key .*, or a function, got ''"),
        ({"leave_after_s": -1.0}, "leave_after_s must be a finite number of at least 0, got -1.0"),
        ({"latency": "fast"}, "latency must be one of round-trip, reported, got 'fast'"),
        ({"deadline_s": 0.0}, "deadline_s must be a finite number above 0, got 0.0"),
        ({"invite": 0.5}, "invite must be a finite number of at least 1, got 0.5"),
        ({"quorum": 1}, "quorum=1 needs a deadline_s"),
        ({"quorum": 3, "deadline_s": 1.0}, "quorum must not exceed the cohort_size of 2, got 3"),
        ({"deadline_s": 5.0, "lifetime_s": 4.0}, "lifetime_s must be .* at least 5, got 4.0"),
        ({"min_clients": 0}, "min_clients must be a whole number of at least 1, got 0"),
        ({"wait_s": -1.0}, "wait_s must be a finite number of at least 0, got -1.0"),
        ({"state_path": "nowhere/file"}, "state_path must be a file in a folder that exists"),
        ({"state_path": "."}, "state_path must be a file in a folder that exists, got '/"),
        ({"lifetime_s": 0.0}, "lifetime_s must be a finite number above 0, got 0.0"),
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
    with pytest.raises(InvalidInput, match="waits for more than the 2 nodes that it is given"):
        start(selected, grid)


def test_clients_are_registered_after_a_file_is_read(tmp_path):
    scheduler = Scheduler(UniformRandom(), cohort_size=2)
    scheduler.join(["0", "1"], samples=[10, 20])
    path = tmp_path / "scheduler.bsfl"
    with pytest.raises(InvalidInput, match="must be new, as a file would replace it; register"):
        federation(fleet(1, 1), scheduler=scheduler, state_path=path)
    selected, grid = federation(fleet(1, 1), state_path=path)
    start(selected, grid)
    again, grid = federation(fleet(1, 1), state_path=path)
    again.scheduler.join(["0", "1"], samples=[10, 20])
    start(again, grid)
    assert again.scheduler.t == 2


def test_a_policy_may_choose_nobody():
    class Nobody(Scheduler):
        def select(self, *args, **kwargs):
            self.abandon(super().select(*args, **kwargs))
            return []

    scheduler = Nobody(UniformRandom(), cohort_size=2)
    selected, grid = federation(fleet(1, 1), scheduler=scheduler)
    result = start(selected, grid, rounds=2)
    assert [r.cohort for r in selected.rounds] == [(), ()]
    assert result.train_metrics_clientapp[2]["bsfl-cohort"] == 0


def test_a_strategy_may_have_a_scheduler_of_its_own():
    strategy = FedAvg(fraction_evaluate=0.0)
    strategy.scheduler = "of learning rates"
    start(*federation(fleet(1, 1), strategy=strategy))


def test_it_wraps_once():
    selected, _ = federation(fleet(1, 1))
    with pytest.raises(InvalidInput, match="strategy is wrapped already"):
        Selected(selected, Scheduler(UniformRandom(), cohort_size=2))


def test_a_policy_that_needs_losses_is_refused_before_the_first_round():
    for policy in (Oort(), BSFL(generalization="loss")):
        with pytest.raises(InvalidInput, match="needs the loss of every client that trains; name"):
            Selected(FedAvg(), Scheduler(policy, cohort_size=2))
        Selected(FedAvg(), Scheduler(policy, cohort_size=2), loss_key="train_loss")
