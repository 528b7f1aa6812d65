"""Selected on a federation without processes: rounds, the state file, and wrong use."""

import logging

import numpy as np
import pytest
from fake_federation import ARRAYS, Spy, federation, train
from fake_grid import FakeGrid, FakeNode, fleet
from flwr.serverapp import strategy as strategies
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    FedXgbCyclic,
)

from bsfl import BSFL, Oort, Scheduler, UCBIndex, UniformRandom
from bsfl.errors import InvalidInput
from bsfl.monitoring import read_journal
from fake_clock import FakeClock

# --- an ordinary round ----------------------------------------------------------------------------


def test_a_round(caplog):
    caplog.set_level(logging.INFO, logger="flwr")
    run = train(fleet(2.0, 4.0, 6.0), rounds=3, deadline_s=10.0)
    assert run.grid.queries == [], "only training messages are sent"
    assert [len(cohort) for cohort in run.cohorts] == [2, 2, 2]
    first = run.rounds[0]
    for client, latency in first.latencies.items():
        exact = 2.0 + 2.0 * int(client)
        assert exact <= latency <= 1.02 * exact + 0.1, "measured when it came, not at the end"
    assert first.slowest == max(first.cohort)
    mean = np.mean([float(client) for client in run.rounds[-1].kept])
    assert run.model == pytest.approx(mean), "the selected clients were averaged"
    metrics = dict(run.result.train_metrics_clientapp[1])
    assert metrics == {
        "train_loss": 0.5,
        "bsfl-cohort": 2,
        "bsfl-kept": 2,
        "bsfl-round-s": max(first.latencies.values()),
        "bsfl-slowest-s": max(first.latencies.values()),
        "bsfl-timeouts": 0,
        "bsfl-failed": 0,
        "bsfl-late": 0,
        "bsfl-clients-seen": pytest.approx(2 / 3),
    }
    assert first.line() in caplog.messages
    assert "bsfl: 2 of 2 clients in" in first.line()
    assert (run.scheduler.round, run.scheduler.in_flight) == (3, [])


STRATEGIES = {
    "FedAvg": {},
    "FedProx": {"proximal_mu": 0.1},
    "FedMedian": {},
    "FedAdam": {},
    "FedAdagrad": {},
    "FedYogi": {},
    "FedAvgM": {"server_momentum": 0.9},
    "FedTrimmedAvg": {},
    "Krum": {},
    "MultiKrum": {"num_malicious_nodes": 1, "num_nodes_to_select": 2},
    "Bulyan": {},
    "QFedAvg": {"client_learning_rate": 0.1, "train_loss_key": "train_loss"},
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_aggregates_as_without_it(name, caplog):
    """All clients train, so the wrapped and the plain strategy see the same replies."""
    caplog.set_level(logging.INFO, logger="flwr")
    nodes = {100 + k: FakeNode(name=str(k)) for k in (0, 1, 3, 7)}  # no two pairs as far apart
    plain, wrapped = (
        getattr(strategies, name)(fraction_evaluate=0.0, **STRATEGIES[name]) for _ in range(2)
    )
    expected = plain.start(FakeGrid(nodes, FakeClock()), ARRAYS, 2)
    n_lines = len(caplog.records)
    run = train(nodes, rounds=2, strategy=wrapped, cohort_size=4)
    assert run.model == pytest.approx(expected.arrays["w"].numpy()[0])
    for t, metrics in expected.train_metrics_clientapp.items():
        assert dict(metrics).items() <= dict(run.result.train_metrics_clientapp[t]).items()
    assert len(caplog.records) - n_lines <= n_lines + 1 + 2, "one to begin with, one for each round"


def test_cohorts_depend_on_the_seed_and_not_on_node_ids():
    def cohorts(*ids):
        return train(dict(zip(ids, fleet(1, 1, 1, 1).values(), strict=True)), rounds=5).cohorts

    assert cohorts(101, 102, 103, 104) == cohorts(904, 903, 902, 901)


def test_starting_again_queries_no_node_again():
    run = train(fleet(1, 1, 1), identity="partition-id").start()
    assert run.grid.queries == ["0", "1", "2"]
    assert run.scheduler.round == len(run.rounds) == 2


class NoClient(Spy):
    """Selects no client, as a scheduler does while its lifetime_s keeps all of them in flight."""

    def select(self, available, **settings):
        self.join(available)
        return super().select(available=[], **settings)


def test_a_cohort_may_be_empty():
    scheduler = NoClient(UniformRandom(), cohort_size=2)
    run = train(fleet(1, 1), rounds=2, scheduler=scheduler)
    assert run.cohorts == [[], []]
    assert run.result.train_metrics_clientapp[2]["bsfl-cohort"] == 0
    assert [entry["round"] for entry in scheduler.journal.of_kind("closed")] == [1, 2]


# --- the state file -------------------------------------------------------------------------------


def test_what_was_learned_survives(tmp_path):
    path = tmp_path / "scheduler.bsfl"
    policy = BSFL(alpha=0.0, index=UCBIndex(confidence_width="none"))

    def resumed(rounds):
        scheduler = Scheduler(policy, cohort_size=2)
        return train(fleet(9, 1, 9, 1), rounds, scheduler=scheduler, state_path=path)

    assert (resumed(2).scheduler.round, Scheduler.load(path).round) == (2, 2)
    assert resumed(1).cohorts == [["1", "3"]], "no need to try all of them again"
    assert Scheduler.load(path).round == 3


def test_settings_are_those_of_the_new_scheduler_not_of_the_file(tmp_path):
    path = tmp_path / "scheduler.bsfl"
    train(fleet(1, 2, 3, 4, 5), cohort_size=5, state_path=path)
    scheduler = Scheduler(BSFL(), cohort_size=2, over_selection=2.0, max_open_rounds=3)
    run = train(fleet(1, 2, 3, 4, 5), scheduler=scheduler, state_path=path)
    assert len(run.cohorts[0]) == 4
    assert (run.scheduler.policy, run.scheduler.max_open_rounds) == (BSFL(), 3)
    known = [row["latency_s"] for row in run.scheduler.table()]
    assert known == pytest.approx([1, 2, 3, 4, 5], abs=0.2), "what is known of the clients is kept"


@pytest.mark.parametrize("of", ["scheduler", "selected"])
def test_a_server_that_is_started_again_continues_its_journal(tmp_path, of):
    path, journal = tmp_path / "scheduler.bsfl", {"journal": tmp_path / "rounds.jsonl"}
    records = []
    for rounds in (2, 1):
        own, more = (journal, {}) if of == "scheduler" else ({}, journal)
        scheduler = Scheduler(cohort_size=2, on_round=records.append, **own)
        train(fleet(1, 2, 3), rounds, scheduler=scheduler, state_path=path, **more)
    opened = [one for one in read_journal(journal["journal"]) if one["kind"] == "opened"]
    assert [entry["round"] for entry in opened] == [1, 2, 3]
    assert [record.round for record in records] == [1, 2, 3]


def test_replies_to_a_killed_server_are_abandoned(tmp_path):
    path = tmp_path / "scheduler.bsfl"
    train(fleet(1.0, 2.0, 8.0), over_selection=1.5, deadline_s=30.0, state_path=path)
    assert Scheduler.load(path).in_flight == ["2"]
    assert federation(fleet(1, 1, 1), state_path=path).scheduler.in_flight == []


def test_clients_are_registered_after_a_file_is_read(tmp_path):
    path = tmp_path / "scheduler.bsfl"
    scheduler = Scheduler(UniformRandom(), cohort_size=2)
    scheduler.join(["0", "1"], samples=[10, 20])
    with pytest.raises(InvalidInput, match="scheduler with a state_path must be new"):
        federation(fleet(1, 1), scheduler=scheduler, state_path=path)
    train(fleet(1, 1), state_path=path)
    again = federation(fleet(1, 1), state_path=path)
    again.scheduler.join(["0", "1"], samples=[10, 20])
    assert again.start().scheduler.round == 2


def test_a_relative_state_path_does_not_follow_the_working_folder(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="flwr")
    monkeypatch.chdir(tmp_path)
    run = federation(fleet(1.0, 1.0), state_path="phones.bsfl")
    monkeypatch.chdir("/")
    run.start()
    assert (tmp_path / "phones.bsfl").is_file()
    assert f"saved in {tmp_path / 'phones.bsfl'}" in caplog.text


# --- wrong use ------------------------------------------------------------------------------------

PRIVACY = {"noise_multiplier": 1.0, "clipping_norm": 1.0, "num_sampled_clients": 2}


@pytest.mark.parametrize(
    "private",
    [DifferentialPrivacyServerSideFixedClipping, DifferentialPrivacyClientSideFixedClipping],
)
def test_differential_privacy_is_rejected(private):
    with pytest.raises(InvalidInput, match=f"{private.__name__} cannot be combined: .*at random"):
        federation(fleet(1, 1), strategy=private(FedAvg(), **PRIVACY))
    run = federation(fleet(1, 1))
    with pytest.raises(InvalidInput, match="Selected must be the outermost strategy.*at random"):
        private(run.strategy, **PRIVACY).start(run.grid, ARRAYS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "fedavg"}, "strategy must be a Flower strategy"),
        ({"strategy": federation({}).strategy}, "strategy is wrapped already"),
        ({"strategy": FedAvg(fraction_train=0.0)}, "fraction_train of FedAvg must not be 0"),
        ({"strategy": FedXgbCyclic()}, "FedXgbCyclic .* cohort_size must be 1"),
        (
            {"strategy": FedXgbCyclic(), "cohort_size": 1, "over_selection": 2.0},
            "FedXgbCyclic .* over_selection 1.0",
        ),
        ({"scheduler": "bsfl"}, "scheduler must be a bsfl.Scheduler, got 'bsfl'"),
        ({"scheduler": Scheduler(Oort(), cohort_size=2)}, "needs the loss .* loss_key"),
        ({"identity": 7}, "identity .* got 7"),
        ({"identity": ""}, "identity .* got ''"),
        ({"leave_after_s": -1.0}, "leave_after_s .* got -1.0"),
        ({"eligible": "all"}, "eligible must be a function of a node, got 'all'"),
        ({"latency": "fast"}, "latency .* got 'fast'"),
        ({"deadline_s": 0.0}, "deadline_s .* got 0.0"),
        ({"deadline_s": lambda t: "soon"}, "round 1: deadline_s .* got 'soon'"),
        ({"evaluate_deadline_s": 0.0}, "evaluate_deadline_s .* got 0.0"),
        ({"over_selection": 0.5}, "over_selection .* got 0.5"),
        ({"min_responses": 1, "deadline_s": lambda t: None}, "min_responses=1 needs a deadline_s"),
        ({"min_responses": 3, "deadline_s": 1.0}, "min_responses must not exceed .* got 3"),
        ({"deadline_s": 5.0, "lifetime_s": 4.0}, "lifetime_s must be .* at least 5, got 4.0"),
        ({"min_clients": 0}, "min_clients .* got 0"),
        ({"wait_s": -1.0}, "wait_s .* got -1.0"),
        ({"state_path": "nowhere/file"}, "state_path must be a file in a folder that exists"),
        ({"state_path": "."}, "state_path must be a file in a folder that exists, got '/"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(InvalidInput, match=message):
        federation(fleet(1, 1), **options)
