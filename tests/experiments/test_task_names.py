"""Clients and a custom task are matched by their names, or the first difference is an error."""

import numpy as np
import pytest

import bsfl
from bsfl.errors import InvalidInput
from bsfl.experiments.scenario import parse_scenario
from bsfl.learning import Evaluation, Update
from bsfl.simulation import SimulatedClients
from bsfl.simulation.intervals import Intervals
from bsfl.simulation.latency import Recorded

SECONDS = {"berlin": 1.0, "oslo": 2.0, "rome": 3.0, "paris": 4.0}
SAMPLES = {"berlin": 10, "oslo": 20, "rome": 30, "paris": 40}


class Cities:
    """A task whose clients hold SAMPLES, and whose model is the last client that trained."""

    def __init__(self, ids, *, is_named):
        self.order = list(ids)
        self.n_clients, self.samples = len(ids), np.array([SAMPLES[name] for name in ids])
        if is_named:
            self.ids = self.order

    def init(self, seed):
        return ""

    def train(self, params, clients, *, t, seed):
        return [
            Update(client=k, params=self.order[k], loss=1.0, samples=int(self.samples[k]))
            for k in clients.tolist()
        ]

    def aggregate(self, params, updates, weights):
        return params

    def evaluate(self, params):
        return Evaluation(loss=1.0)


def takes_ids(n_clients, rng, ids=None):
    return Cities(ids, is_named=False)


def has_ids(n_clients, rng):
    return Cities(sorted(SECONDS, reverse=True)[:n_clients], is_named=True)


def as_trace(tmp_path, n_clients):
    rows = "".join(f"{name},{seconds}\n" for name, seconds in SECONDS.items())
    (tmp_path / "log.csv").write_text(f"client,latency_s\n{rows}")
    latency = {"population": "trace", "path": f"{tmp_path / 'log.csv'}"}
    return {"n_clients": n_clients, "tau_min": 0.1, "tau_max": 60.0, "latency": latency}


def as_object(tmp_path, n_clients):
    names = list(SECONDS)[:n_clients]
    start = np.array([SECONDS[name] for name in names])
    return SimulatedClients(
        latency=Recorded([np.array([SECONDS[name]]) for name in names]),
        tau_min=0.1,
        tau_max=60.0,
        availability=Intervals(start, start + 100.0, np.arange(n_clients + 1)),
        features=start[:, np.newaxis],
        ids=names,
    )


@pytest.mark.parametrize("clients", [as_trace, as_object])
@pytest.mark.parametrize("task", [takes_ids, has_ids])
def test_clients_and_task_are_matched_by_name(tmp_path, clients, task):
    table = {"title": "", "rounds": 1, "cohort_size": 1, "clients": clients(tmp_path, 4)}
    scenario = parse_scenario({**table, "learning": task}, name="x", file="x")
    fleet, trained = scenario.simulated_clients(0), scenario.training(0).task
    for k, name in enumerate(fleet.ids):
        assert fleet.latencies(1, 5.0)[k] == SECONDS[name]
        assert (fleet.samples[k], trained.samples[k]) == (SAMPLES[name], SAMPLES[name])
        assert trained.order[k] == name
        if clients is as_object:
            assert fleet.features[k] == SECONDS[name]
            assert fleet.availability.online_s(5.0)[k] == 5.0 - SECONDS[name]
    assert sorted(fleet.ids) == sorted(SECONDS)


def test_a_task_with_names_chooses_its_clients_of_a_longer_trace(tmp_path):
    table = {"title": "", "rounds": 1, "cohort_size": 1, "clients": as_trace(tmp_path, 2)}
    scenario = parse_scenario({**table, "learning": has_ids}, name="x", file="x")
    assert scenario.simulated_clients(0).latencies(1, 0.0).tolist() == [3.0, 4.0]


@pytest.mark.parametrize("clients", [as_trace, as_object])
def test_the_first_difference_is_named(tmp_path, clients, monkeypatch):
    monkeypatch.setitem(SAMPLES, "lima", 5)
    task = Cities(["oslo", "lima", "rome"], is_named=True)
    table = {"title": "", "rounds": 1, "cohort_size": 1, "clients": clients(tmp_path, 3)}
    with pytest.raises(InvalidInput, match="client 1 of the task, 'lima', is none of the"):
        parse_scenario({**table, "learning": task}, name="x", file="x")


def test_names_of_a_task_must_be_different(tmp_path):
    task = Cities(["oslo", "oslo"], is_named=True)
    with pytest.raises(InvalidInput, match="must be 2 different names, got 2 names, 1 of them"):
        bsfl.compare("random", as_object(tmp_path, 2), task, cohort_size=1, rounds=1)
