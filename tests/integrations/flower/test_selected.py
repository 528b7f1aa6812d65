"""Selected on a federation without processes: rounds, the state file, and wrong use."""

import logging

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from fake_federation import Spy, federation, start
from fake_grid import FakeGrid, fleet
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    FedProx,
)

from bsfl import BSFL, Oort, Scheduler, UCBIndex, UniformRandom
from bsfl.errors import InvalidInput, NotEnoughClients
from bsfl.integrations.flower import Selected
from bsfl.monitoring import read_journal
from fake_clock import FakeClock

# --- an ordinary round ----------------------------------------------------------------------------


def test_a_round(caplog):
    caplog.set_level(logging.INFO, logger="flwr")
    selected, grid = federation(fleet(2.0, 4.0, 6.0), cohort_size=2, deadline_s=10.0)
    result = start(selected, grid, rounds=3)
    assert grid.queries == [], "only training messages are sent"
    assert [len(r.cohort) for r in selected.rounds] == [2, 2, 2]
    first = selected.rounds[0]
    for client, latency in first.latencies.items():
        exact = 2.0 + 2.0 * int(client)
        assert exact <= latency <= 1.02 * exact + 0.1, "measured when it came, not at the end"
    assert first.duration_s == max(first.latencies.values())
    assert first.slowest == max(first.cohort)
    mean = np.mean([float(client) for client in selected.rounds[-1].kept])
    assert np.allclose(result.arrays["w"].numpy(), mean), "the selected clients were averaged"
    history = result.train_metrics_clientapp[1]
    assert history["train_loss"] == 0.5
    assert history["bsfl-cohort"] == history["bsfl-kept"] == 2
    assert history["bsfl-round-s"] == first.duration_s
    assert history["bsfl-timeouts"] == history["bsfl-failed"] == 0
    assert history["bsfl-clients-seen"] == pytest.approx(2 / 3)
    assert first.line() in caplog.messages
    assert "bsfl: 2 of 2 clients in" in first.line()
    assert selected.scheduler.round == 3
    assert selected.scheduler.in_flight == []


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


def test_a_strategy_with_its_own_loop_runs():
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
    assert "configure_train" not in vars(mine), "restored"


def test_starting_again_queries_no_node_again():
    selected, grid = federation(fleet(1, 1, 1), identity="partition-id")
    start(selected, grid)
    start(selected, grid)
    assert grid.queries == ["0", "1", "2"]
    assert selected.scheduler.round == len(selected.rounds) == 2


def test_cohorts_depend_on_the_seed_and_not_on_node_ids():
    def cohorts(*ids):
        nodes = dict(zip(ids, fleet(1, 1, 1, 1).values(), strict=True))
        selected, grid = federation(nodes)
        start(selected, grid, rounds=5)
        return [r.cohort for r in selected.rounds]

    assert cohorts(101, 102, 103, 104) == cohorts(904, 903, 902, 901)


def test_it_learns_who_is_slow():
    scheduler = Scheduler(BSFL(alpha=0.0, index=UCBIndex(confidence_width="none")), cohort_size=2)
    selected, grid = federation(fleet(9.0, 1.0, 9.0, 1.0), scheduler=scheduler)
    start(selected, grid, rounds=6)
    assert set(selected.rounds[-1].cohort) == {"1", "3"}


# --- the state file -------------------------------------------------------------------------------


def test_what_was_learned_survives(tmp_path):
    path = tmp_path / "scheduler.bsfl"

    def fresh(**options):
        scheduler = Scheduler(
            BSFL(alpha=0.0, index=UCBIndex(confidence_width="none")), cohort_size=2
        )
        return federation(fleet(9, 1, 9, 1), scheduler=scheduler, state_path=path, **options)

    selected, grid = fresh()
    start(selected, grid, rounds=2)
    assert Scheduler.load(path).round == 2
    restored, grid = fresh()
    assert restored.scheduler.round == 2
    start(restored, grid, rounds=1)
    assert set(restored.rounds[0].cohort) == {"1", "3"}, "no need to try all of them again"
    assert Scheduler.load(path).round == 3


@pytest.mark.parametrize("of", ["scheduler", "selected"])
def test_a_server_that_is_started_again_continues_its_journal(tmp_path, of):
    path, journal = tmp_path / "scheduler.bsfl", tmp_path / "rounds.jsonl"
    records = []
    for rounds in (2, 1):
        own = {"journal": journal} if of == "scheduler" else {}
        scheduler = Scheduler(cohort_size=2, on_round=records.append, **own)
        more = {} if own else {"journal": journal}
        selected, grid = federation(fleet(1, 2, 3), scheduler=scheduler, state_path=path, **more)
        start(selected, grid, rounds=rounds)
    opened = [entry for entry in read_journal(journal) if entry["kind"] == "opened"]
    assert [entry["round"] for entry in opened] == [1, 2, 3]
    assert [record.round for record in records] == [1, 2, 3]


def test_replies_to_a_killed_server_are_abandoned(tmp_path):
    path = tmp_path / "scheduler.bsfl"
    selected, grid = federation(
        fleet(1.0, 2.0, 8.0), cohort_size=2, over_selection=1.5, deadline_s=30.0, state_path=path
    )
    start(selected, grid)
    assert Scheduler.load(path).in_flight == ["2"]
    again, _ = federation(fleet(1, 1, 1), cohort_size=2, state_path=path)
    assert again.scheduler.in_flight == []


def test_a_cohort_size_may_change_between_runs(tmp_path):
    path = tmp_path / "scheduler.bsfl"
    selected, grid = federation(fleet(1, 1, 1, 1), cohort_size=2, state_path=path)
    start(selected, grid)
    selected, grid = federation(fleet(1, 1, 1, 1), cohort_size=3, state_path=path)
    start(selected, grid)
    assert len(selected.rounds[0].cohort) == 3
    assert selected.scheduler.round == 2


def test_another_policy_goes_on_with_what_is_known_of_the_clients(tmp_path):
    path = tmp_path / "scheduler.bsfl"
    selected, grid = federation(fleet(1, 2), state_path=path)
    start(selected, grid, rounds=2)
    again, grid = federation(
        fleet(1, 2), scheduler=Scheduler(BSFL(), cohort_size=2), state_path=path
    )
    start(again, grid)
    assert again.scheduler.policy == BSFL()
    assert again.scheduler.round == 3
    assert [row["participations"] for row in again.scheduler.table()] == [3, 3]


def test_settings_are_those_of_the_scheduler_that_is_given_not_of_the_file(tmp_path):
    path = tmp_path / "scheduler.bsfl"
    selected, grid = federation(fleet(1, 1, 1, 1), cohort_size=2, state_path=path)
    start(selected, grid)
    scheduler = Scheduler(UniformRandom(), cohort_size=2, over_selection=2.0, max_open_rounds=3)
    again, grid = federation(fleet(1, 1, 1, 1), scheduler=scheduler, state_path=path)
    start(again, grid)
    assert len(again.rounds[0].cohort) == 4
    assert again.scheduler.max_open_rounds == 3


# --- wrong use -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrapper",
    [DifferentialPrivacyServerSideFixedClipping, DifferentialPrivacyClientSideFixedClipping],
)
def test_differential_privacy_is_rejected(wrapper):
    private = wrapper(FedAvg(), noise_multiplier=1.0, clipping_norm=1.0, num_sampled_clients=2)
    with pytest.raises(InvalidInput, match=f"{wrapper.__name__} cannot be combined: .*at random"):
        federation(fleet(1, 1), strategy=private)


def test_differential_privacy_around_it_is_rejected_too():
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
            "fraction_train of FedAvg must not be 0",
        ),
        ({"scheduler": "bsfl"}, "scheduler must be a bsfl.Scheduler, got 'bsfl'"),
        ({"identity": 7}, "identity must be 'auto', 'node-id', a key .*, or a function, got 7"),
        ({"identity": ""}, "identity must be 'auto', 'node-id', a key .*, or a function, got ''"),
        ({"leave_after_s": -1.0}, "leave_after_s must be a finite number of at least 0, got -1.0"),
        ({"latency": "fast"}, "latency must be one of round-trip, reported, got 'fast'"),
        ({"deadline_s": 0.0}, "deadline_s must be a finite number above 0, got 0.0"),
        ({"over_selection": 0.5}, "over_selection must be a finite number of at least 1, got 0.5"),
        ({"min_responses": 1}, "min_responses=1 needs a deadline_s"),
        (
            {"min_responses": 3, "deadline_s": 1.0},
            "min_responses must not exceed the cohort_size of 2, got 3",
        ),
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
    with pytest.raises(InvalidInput, match="waits for more than the 2 nodes"):
        start(selected, grid)


def test_clients_are_registered_after_a_file_is_read(tmp_path):
    scheduler = Scheduler(UniformRandom(), cohort_size=2)
    scheduler.join(["0", "1"], samples=[10, 20])
    path = tmp_path / "scheduler.bsfl"
    with pytest.raises(InvalidInput, match="scheduler with a state_path must be new"):
        federation(fleet(1, 1), scheduler=scheduler, state_path=path)
    selected, grid = federation(fleet(1, 1), state_path=path)
    start(selected, grid)
    again, grid = federation(fleet(1, 1), state_path=path)
    again.scheduler.join(["0", "1"], samples=[10, 20])
    start(again, grid)
    assert again.scheduler.round == 2


class NoClient(Spy):
    """Selects no client, as a scheduler does while its lifetime_s keeps all of them in flight."""

    def select(self, available, **settings):
        self.join(available)
        return super().select(available=[], **settings)


def test_a_cohort_may_be_empty():
    scheduler = NoClient(UniformRandom(), cohort_size=2)
    selected, grid = federation(fleet(1, 1), scheduler=scheduler)
    result = start(selected, grid, rounds=2)
    assert [r.cohort for r in selected.rounds] == [(), ()]
    assert result.train_metrics_clientapp[2]["bsfl-cohort"] == 0
    assert scheduler.pending() == []
    assert [entry["round"] for entry in scheduler.journal.of_kind("closed")] == [1, 2]


def test_a_strategy_may_have_a_scheduler_of_its_own():
    strategy = FedAvg(fraction_evaluate=0.0)
    strategy.scheduler = "of learning rates"
    start(*federation(fleet(1, 1), strategy=strategy))


def test_it_wraps_once():
    selected, _ = federation(fleet(1, 1))
    with pytest.raises(InvalidInput, match="strategy is wrapped already"):
        Selected(selected, Scheduler(UniformRandom(), cohort_size=2))


def test_a_policy_that_needs_losses_is_rejected_before_the_first_round():
    for policy in (Oort(), BSFL(generalization="loss")):
        with pytest.raises(InvalidInput, match="needs the loss .* loss_key"):
            Selected(FedAvg(), Scheduler(policy, cohort_size=2))
        Selected(FedAvg(), Scheduler(policy, cohort_size=2), loss_key="train_loss")
