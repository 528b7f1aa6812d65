"""The adapter on a workflow without NVFlare: rounds, deadlines, late responses, the state file."""

import sys
from types import SimpleNamespace

import pytest

from bsfl import Scheduler
from bsfl.errors import MissingExtra
from bsfl.integrations import nvflare
from bsfl.integrations.nvflare import Scheduled
from fake_clock import FakeClock


class Workflow:
    """What the adapter uses of NVFlare's ModelController, with sites that take their time."""

    def __init__(self, num_clients=2, takes=(), rounds=1):
        self.num_clients, self.rounds, self.takes = num_clients, rounds, dict(takes)
        names = [SimpleNamespace(name=name) for name in self.takes]
        self.engine = SimpleNamespace(get_clients=lambda: names)
        self.abort_signal = SimpleNamespace(triggered=False)
        self.said, self.results, self.sent, self.unknown = [], [], [], []

    def info(self, text):
        self.said.append(text)

    def send_model(self, targets, data, callback, timeout=0, min_responses=None):
        self.sent.append({"targets": list(targets), "timeout": timeout, "min": min_responses})
        wanted, start = min_responses or len(targets), self.clock.now
        for name in sorted(targets, key=lambda name: self.takes[name] or 1e9):
            seconds = self.takes[name]
            if seconds is None or (timeout and seconds > timeout) or wanted == 0:
                continue
            self.clock.now = start + seconds
            wanted -= 1
            for result in SPECIAL.get(name, [response(name)]):
                self.results.append((name, callback(result)))
        if timeout and wanted:
            self.clock.now = start + timeout

    def send_model_and_wait(self, **kwargs):
        return ["the workflow's own"]

    def get_num_standing_tasks(self):
        return 0

    def process_result_of_unknown_task(self, client, *args):
        self.unknown.append(client.name)

    def run(self):
        for _ in range(self.rounds):
            self.play()

    def play(self):
        """Play one round; return the names of the responses that count."""
        got = []
        self.send_model(targets=self.sample_clients(), data="model", callback=got.append)
        return [result.meta["client_name"] for result in got]


def response(name, params=("w",), loss=None):
    metrics = None if loss is None else {"loss": loss}
    return SimpleNamespace(params=params, metrics=metrics, meta={"client_name": name})


SPECIAL = {
    "empty": [response("empty", params=None)],
    "wrong": [response("unknown"), response("wrong", loss=float("nan"))],
    "twice": [response("twice", loss=0.5), response("twice")],
}
"""Sites that do not simply respond once."""


class Mine(Scheduled, Workflow):
    def __init__(self, *args, policy="random", **kwargs):
        super().__init__(*args, policy=policy, **kwargs)
        self.clock = FakeClock()


def test_a_workflow_runs_with_selected_sites():
    flow = Mine(takes={"a": 1.0, "b": 2.0, "c": 3.0}, rounds=4)
    flow.run()
    assert [len(played.kept) for played in flow.round_results] == [2] * 4
    assert (flow.scheduler.round, flow.scheduler.in_flight) == (4, [])
    kept = [name for played in flow.round_results for name in played.kept]
    assert flow.results == [(name, None) for name in kept]
    assert flow.round_results[0].line() in flow.said


def test_the_deadline_ends_a_round():
    flow = Mine(takes={"a": 1.0, "b": None}, deadline_s=9.5)
    flow.run()
    assert flow.sent == [{"targets": ["a", "b"], "timeout": 10, "min": None}]
    assert (flow.round_results[0].kept, flow.round_results[0].timeouts) == (("a",), ("b",))
    without = Mine(takes={"a": 1.0, "b": None})
    without.run()
    assert without.round_results[0].failed == ("b",), "NVFlare ended the round: the site is gone"


def test_over_selection_keeps_the_first_and_learns_from_late_responses():
    takes = {"a": 1.0, "b": 2.0, "c": 8.0}
    flow = Mine(takes=takes, over_selection=1.5, deadline_s=30.0)
    assert flow.play() == ["a", "b"]
    assert flow.sent[0]["min"] == 2
    assert sorted(flow.sample_clients()) == ["a", "b"], "c is busy"
    assert flow.round_results[0].kept == ("a", "b")
    flow.clock.now += 6.0
    flow.process_result_of_unknown_task(SimpleNamespace(name="c"), "train", "id", None, None)
    assert flow.unknown == ["c"]
    assert flow.scheduler.client("c")["latency_s"] == pytest.approx(8.0)
    assert sorted(flow.scheduler.in_flight) == ["a", "b"], "c is idle again"


def test_an_empty_response_is_a_failure_and_each_site_counts_once():
    flow = Mine(num_clients=3, takes={"empty": 1.0, "wrong": 2.0, "twice": 3.0}, loss_key="loss")
    flow.run()
    assert flow.results == [
        ("empty", False),
        ("wrong", False),
        ("wrong", None),
        ("twice", None),
        ("twice", False),
    ]
    (only,) = flow.round_results
    assert (only.kept, only.failed) == (("wrong", "twice"), ("empty",))


def test_waiting_for_a_model_is_the_same_round():
    flow = Mine(takes={"a": 1.0, "b": 2.0})
    results = flow.send_model_and_wait(targets=flow.sample_clients(), data="model")
    assert [result.meta["client_name"] for result in results] == ["a", "b"]
    assert len(flow.round_results) == 1
    assert flow.send_model_and_wait(targets=["a"], data="validate") == ["the workflow's own"]


def test_what_was_learned_is_kept_and_read(tmp_path):
    path = tmp_path / "scheduler.bsfl"
    settings = {"policy": "bsfl", "settings": {"alpha": 3.0}, "state_path": str(path)}
    for n in (1, 2):
        flow = Mine(takes={"a": 1.0, "b": 2.0}, rounds=3, **settings)
        flow.run()
        assert (Scheduler.load(path).round, flow.scheduler.policy.alpha) == (3 * n, 3.0)


def test_without_nvflare_the_pip_line_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvflare", None)
    monkeypatch.delitem(sys.modules, "nvflare.app_common.workflows.fedavg", raising=False)
    with pytest.raises(MissingExtra, match="run: pip install nvflare"):
        nvflare.ScheduledFedAvg  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'Other'"):
        nvflare.Other  # noqa: B018
