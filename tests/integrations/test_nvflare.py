"""The adapter on a workflow without NVFlare: rounds, deadlines, late responses, the state file."""

import sys
import types

import pytest

from bsfl import Scheduler
from bsfl.errors import MissingExtra
from bsfl.integrations import nvflare
from bsfl.integrations.nvflare import Scheduled
from fake_clock import FakeClock

TASK_CHECK_S = 0.0001


class Result:
    def __init__(self, name, params=("w",), loss=None):
        self.params, self.metrics = params, None if loss is None else {"loss": loss}
        self.meta = {"client_name": name}


class Workflow:
    """What the adapter uses of NVFlare's ModelController, with sites that take their time."""

    _task_check_period = TASK_CHECK_S

    def __init__(self, num_clients=2, takes=(), rounds=1):
        self.num_clients, self.rounds, self.takes = num_clients, rounds, dict(takes)
        names = [types.SimpleNamespace(name=name) for name in self.takes]
        self.engine = types.SimpleNamespace(get_clients=lambda: names)
        self.abort_signal = types.SimpleNamespace(triggered=False)
        self.said, self.results, self.sent, self.unknown = [], [], [], []

    def info(self, text):
        self.said.append(text)

    def send_model(self, targets, data, callback, timeout=0, min_responses=None):
        self.sent.append({"targets": list(targets), "timeout": timeout, "min": min_responses})
        wanted = min_responses or len(targets)
        start = self.clock.now
        for name in sorted(targets, key=lambda name: self.takes[name] or 1e9):
            seconds = self.takes[name]
            is_late = seconds is None or (timeout and seconds > timeout) or wanted == 0
            if is_late:
                continue
            self.clock.now = start + seconds
            wanted -= 1
            callback(Result(name))
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
            got = []
            clients = self.sample_clients(self.num_clients)
            self.send_model(targets=clients, data="model", callback=got.append)
            self.results.append(sorted(result.meta["client_name"] for result in got))


class Mine(Scheduled, Workflow):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.clock = FakeClock()


def test_a_workflow_runs_with_selected_sites():
    flow = Mine(takes={"a": 1.0, "b": 2.0, "c": 3.0}, rounds=4, policy="random")
    flow.run()
    assert [len(names) for names in flow.results] == [2] * 4
    assert flow.scheduler.round == 4
    assert flow.scheduler.in_flight == []
    assert [closed.kept for closed in flow.round_results] == [
        tuple(names) for names in flow.results
    ]
    assert flow.round_results[0].line() in flow.said


def test_the_deadline_ends_a_round():
    flow = Mine(takes={"a": 1.0, "b": None}, deadline_s=9.5, policy="random")
    flow.run()
    assert flow.sent == [{"targets": ["a", "b"], "timeout": 10, "min": None}]
    assert (flow.round_results[0].kept, flow.round_results[0].timeouts) == (("a",), ("b",))


def test_over_selection_keeps_the_first_and_learns_from_late_responses():
    takes = {"a": 1.0, "b": 2.0, "c": 8.0}
    flow = Mine(takes=takes, over_selection=1.5, deadline_s=30.0, policy="random", rounds=2)
    flow.sample_clients()
    got = []
    flow.send_model(targets=list(flow._cohort), data="model", callback=got.append)
    assert flow.sent[0]["min"] == 2
    flow.sample_clients()
    assert flow.round_results[0].kept == ("a", "b")
    assert sorted(flow._cohort) == ["a", "b"], "c is busy"
    flow.clock.now += 6.0
    flow.process_result_of_unknown_task(types.SimpleNamespace(name="c"), "train", "id", None, None)
    assert flow.unknown == ["c"]
    assert flow._rounds.invitations.busy == set()


def test_a_site_that_is_gone_has_failed_without_a_deadline():
    flow = Mine(takes={"a": 1.0, "b": None}, policy="random")
    flow.run()
    assert flow.round_results[0].failed == ("b",)


def test_an_empty_response_is_a_failure_and_others_are_passed_on():
    flow = Mine(takes={"a": 1.0, "b": 1.0}, policy="random")
    flow.sample_clients()
    got = []
    sent = {}
    Workflow.send_model, own = lambda self, **k: sent.update(k), Workflow.send_model
    try:
        flow.send_model(targets=list(flow._cohort), data="model", callback=got.append)
    finally:
        Workflow.send_model = own
    callback = sent["callback"]
    flow.clock.now += 1.0
    assert callback(Result("a", params=None)) is False
    assert callback(Result("unknown")) is False
    assert callback(Result("b", loss=float("nan"))) is None
    assert callback(Result("b")) is False, "twice"
    assert [result.meta["client_name"] for result in got] == ["b"]
    flow.sample_clients()
    assert (flow.round_results[0].kept, flow.round_results[0].failed) == (("b",), ("a",))


def test_waiting_for_a_model_is_the_same_round():
    flow = Mine(takes={"a": 1.0, "b": 2.0}, policy="random")
    clients = flow.sample_clients()
    results = flow.send_model_and_wait(targets=clients, data="model")
    assert len(results) == 2
    assert len(flow.round_results) == 1
    assert flow.send_model_and_wait(targets=["a"], data="validate") == ["the workflow's own"]


def test_what_was_learned_is_kept_and_read(tmp_path):
    path = tmp_path / "scheduler.bsfl"
    for n in (1, 2):
        flow = Mine(takes={"a": 1.0, "b": 2.0}, policy="random", rounds=3, state_path=str(path))
        flow.run()
        assert Scheduler.load(path).round == 3 * n


def test_settings_make_the_policy():
    flow = Mine(takes={"a": 1.0, "b": 1.0}, policy="bsfl", settings={"alpha": 3.0})
    flow.run()
    assert flow.scheduler.policy.alpha == 3.0


def test_without_nvflare_the_pip_line_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvflare", None)
    monkeypatch.delitem(sys.modules, "nvflare.app_common.workflows.fedavg", raising=False)
    with pytest.raises(MissingExtra, match="run: pip install nvflare"):
        nvflare.ScheduledFedAvg  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'Other'"):
        nvflare.Other  # noqa: B018
