"""What a user brings: policy, latencies, availability, split, data and task, by file or entry point."""

import json
import sys
from importlib.metadata import EntryPoint

import numpy as np
import pytest

import bsfl
from bsfl.errors import InvalidInput
from bsfl.experiments import open_results, read_scenario, run_scenario, summarise
from bsfl.experiments.learning_spec import TASKS
from bsfl.experiments.reading import digests, executed_files
from bsfl.learning.datasets import CATALOGUE
from bsfl.learning.partition import PARTITIONS
from bsfl.policies import POLICIES
from bsfl.report import scenario_report
from bsfl.simulation.availability import AVAILABILITIES
from bsfl.simulation.populations import POPULATIONS
from small_scenario import parse

MINE = '''
from dataclasses import dataclass

import numpy as np

from bsfl import UniformRandom
from bsfl.simulation import Sampled, lognormal
from bsfl.learning import Evaluation, Update


@dataclass(frozen=True)
class Rule(UniformRandom):
    patience: int = 3


def gamma(n_clients, rng, shape=2.0):
    scale = rng.uniform(1.0, 9.0, n_clients)
    return Sampled(n_clients, lambda t, rng: 0.1 + rng.gamma(shape, scale))


class OddRounds:
    def __init__(self, n_clients, rng, first=1):
        self.first = first

    def reachable(self, t, clock_s, n_clients, rng):
        return np.arange(n_clients) % 2 == (t + self.first) % 2


def by_turns(labels, n_clients, rng):
    return [np.arange(len(labels))[k::n_clients] for k in range(n_clients)]


def blobs(n=200):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    return {"x": y[:, None] + 0.3 * rng.normal(size=(n, 3)), "y": y}


class Mean:
    """Clients hold one number each, and the model is to be their mean."""

    def __init__(self, n_clients, rng, *, step=0.5):
        self.n_clients, self.step = n_clients, step
        self.samples = np.ones(n_clients, dtype=int)
        self.own = rng.normal(size=n_clients)

    def init(self, seed):
        return 5.0

    def train(self, params, clients, *, t, seed):
        return [
            Update(client=k, params=params + self.step * (self.own[k] - params), loss=1.0, samples=1)
            for k in clients.tolist()
        ]

    def aggregate(self, params, updates, weights):
        if not updates:
            return params
        return sum(w * u.params for w, u in zip(weights, updates, strict=True))

    def evaluate(self, params):
        return Evaluation(loss=(params - self.own.mean()) ** 2)
'''

SCENARIO = """
title = "all my own"
rounds = 6
cohort_size = 3
seeds = 2

[clients]
n_clients = 12
tau_min = 0.1
tau_max = 60.0

[clients.latency]
population = "mine.py:gamma"
shape = 3.0

[clients.availability]
kind = "mine.py:OddRounds"
first = 0

[policies.mine]
policy = "mine.py:Rule"
patience = 5
"""
TASK = """
[learning]
task = "mine.py:Mean"
step = 0.25
evaluate_every_s = 0.0
"""
LEARNING = """
[learning]
dataset = "mine.py:blobs"
learning_rate = 1.0

[learning.partition]
kind = "mine.py:by_turns"
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "deep"


def written(home, more="", **changes):
    text = SCENARIO
    for old, new in changes.items():
        text = text.replace(old, new)
    (home / "own.toml").write_text(text + more)
    return home / "own.toml"


def test_everything_in_a_scenario_may_stand_in_a_file_of_ones_own(home):
    scenario = read_scenario(written(home, TASK))
    clients = scenario.simulated_clients(0)
    assert scenario.policy("mine", clients).patience == 5
    assert clients.available(1, 0.0).tolist() == list(range(1, 12, 2))
    draws = np.array([clients.latency.draw(t, np.random.default_rng(t)) for t in range(300)])
    assert draws.shape == (300, 12)
    exact = clients.latency.mean_inverse(1, 0.1, 60.0)
    assert np.mean(1 / np.clip(draws, 0.1, 60.0), axis=0) == pytest.approx(exact, rel=0.3)
    task = scenario.training(0).task
    assert task.step == 0.25
    results = run_scenario(scenario, home / "out", jobs=1)
    losses = results.records("mine")[0]["test_loss"]
    assert losses[-1] < losses[0]
    again = open_results(home / "out")
    assert again.records("mine")[0].tobytes() == results.records("mine")[0].tobytes()


@pytest.mark.slow
def test_data_and_split_of_ones_own_are_trained(home):
    scenario = read_scenario(written(home, LEARNING))
    assert scenario.simulated_clients(0).samples.tolist() == [14.0] * 4 + [13.0] * 8, (
        "160 of 200 over 12"
    )
    results = run_scenario(scenario, home / "out", seeds=1, jobs=1)
    records = results.records("mine")[0]
    assert records["test_accuracy"][-1] > 0.9, "two blobs, more than two deviations apart"


@pytest.mark.parametrize(
    ("registry", "value", "name"),
    [
        (POLICIES, "bsfl:UniformRandom", "random"),
        (POPULATIONS, "bsfl.simulation:lognormal", None),
        (AVAILABILITIES, "bsfl.simulation.availability:always", "always"),
        (PARTITIONS, "bsfl.learning.partition:iid", "iid"),
        (CATALOGUE, "bsfl.learning.datasets:load_dataset", None),
        (TASKS, "bsfl.learning:Task", None),
    ],
    ids=lambda value: value.what if hasattr(value, "what") else None,
)
def test_every_kind_knows_entry_points(registry, value, name, monkeypatch):
    point = EntryPoint("theirs", value, registry.group)
    monkeypatch.setitem(registry.__dict__, "_installed", {"theirs": point})
    assert registry.group.startswith("bsfl.")
    assert registry.find("theirs") is point.load()
    assert "theirs" in list(registry)
    if name:
        assert registry.find("theirs") is registry.find(name)


@pytest.mark.parametrize(
    ("changes", "more", "message"),
    [
        (
            {"mine.py:gamma": "mine.py:gama"},
            "",
            r"\[clients.latency\]: .*mine.py has no 'gama'; did",
        ),
        ({"shape = 3.0": "shap = 3.0"}, "", r"\[clients.latency\]: .*'shap'; did you mean 'shape'"),
        ({"mine.py:gamma": "mine.py:Rule"}, "", r"Rule must take n_clients, rng, and settings"),
        (
            {"mine.py:gamma": "mine.py:OddRounds", "shape": "first"},
            "",
            "must have n_clients, draw,",
        ),
        ({"mine.py:OddRounds": "mine.py:gamma", "first": "shape"}, "", "must have reachable"),
        ({"first = 0": "second = 0"}, "", r"\[clients.availability\]: .*'second'"),
        ({"patience": "patient"}, "", r"\[policies.mine\]: .*'patient'; did you mean 'patience'"),
        ({}, TASK.replace("step", "stap"), r"\[learning\]: .*'stap'; did you mean 'step'"),
        ({}, TASK.replace(":Mean", ":Man"), r"\[learning\]: .*has no 'Man'; did you mean 'Mean'"),
        (
            {},
            LEARNING.replace(":by_turns", ":by_turn"),
            r"\[learning.partition\]: .*has no 'by_turn'; did you mean 'by_turns'",
        ),
        ({}, LEARNING.replace(":blobs", ":blob"), "has no 'blob'; did you mean 'blobs'"),
    ],
)
def test_a_mistake_in_a_custom_thing_is_named_before_anything_is_written(
    home, changes, more, message
):
    scenario = read_scenario(written(home, more, **changes))
    with pytest.raises(InvalidInput, match=rf"^own .*{message}"):
        run_scenario(scenario, home / "out", jobs=1)
    assert not (home / "out").exists()


def test_a_file_that_is_not_there_is_named_when_the_scenario_is_read(home):
    for name, table in (("Rule", "policies.mine"), ("gamma", "clients.latency")):
        path = written(home, **{f"mine.py:{name}": f"other.py:{name}"})
        with pytest.raises(InvalidInput, match=rf"^own.toml \[{table}\]: there is no file"):
            read_scenario(path)
    with pytest.raises(InvalidInput, match=r"\[learning\]: there is no file .*other.py"):
        read_scenario(written(home, LEARNING.replace("mine.py:blobs", "other.py:blobs")))


ALARM = "import pathlib\npathlib.Path('executed').touch()\n"


@pytest.mark.parametrize("more", ["", TASK, LEARNING, '[objective]\ngeneralization = "mine.py:g"'])
def test_reading_executes_nothing(home, more):
    (home / "mine.py").write_text(ALARM + MINE)
    scenario = read_scenario(written(home, more))
    assert executed_files(scenario) == [home / "mine.py"]
    assert digests(scenario).keys() == {str(home / "mine.py")}
    changed = scenario.changed(rounds=3)
    assert changed.plain()["clients"] == scenario.plain()["clients"]
    part = {"kind": "mine.py:Index"}
    nested = parse(policies__bsfl={"index": {**part, "kind": str(home / "mine.py") + ":Index"}})
    assert executed_files(nested) == [home / "mine.py"]
    assert not (home.parent / "executed").exists()


def test_results_with_custom_things_are_opened_and_reported_without_executing_them(home):
    pytest.importorskip("pandas")
    done = run_scenario(read_scenario(written(home, TASK)), home / "out", jobs=1)
    expected = done.to_frame()
    (home / "mine.py").unlink()
    for name in [one for one in sys.modules if one.startswith("bsfl-file:")]:
        del sys.modules[name]
    results = open_results(home / "out")
    assert results.simulated_clients(0) is None
    assert results.scenario.policies["mine"].settings == {"patience": 5}
    assert results.to_frame().equals(expected)
    assert summarise(results).as_json() == summarise(done).as_json()
    report = scenario_report(results)
    names = {plot.name for plot in report.plots}
    assert {"learning", "time", "participation"} <= names
    assert not {"learned", "data"} & names, "which draw latencies and partitions again"


def test_results_of_a_file_that_was_changed_are_not_taken_for_new_ones(home):
    path = written(home)
    run_scenario(read_scenario(path), home / "out", seeds=1, jobs=1)
    run_scenario(read_scenario(path), home / "out", seeds=2, jobs=1)
    (home / "mine.py").write_text(MINE + "\n# another idea\n")
    with pytest.raises(InvalidInput, match=r"differs in .*mine.py\); choose another folder"):
        run_scenario(read_scenario(path), home / "out", seeds=2, jobs=1)


X, Y = np.arange(40.0).reshape(20, 2), np.arange(20) % 3
OWNER = np.array([f"phone-{k % 4}" for k in range(20)])


def saved(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


OWN_DATA = """
title = "my data"
rounds = 4
cohort_size = 2

[clients]
n_clients = 4
tau_min = 0.1
tau_max = 60.0

[clients.latency]
population = "trace"
path = "log.csv"

[learning]
dataset = "data.npz"

[policies.random]
"""


@pytest.mark.slow
def test_clients_keep_their_names_from_the_log_and_the_data(tmp_path):
    pytest.importorskip("pandas")
    seconds = {f"phone-{k}": 10.0**k for k in range(-1, 5)}
    log = "".join(f"{name},{s}\n" for name, s in seconds.items())
    (tmp_path / "log.csv").write_text(f"client,latency_s\n{log}")
    saved(tmp_path / "data.npz", x=X, y=Y, client=OWNER)
    (tmp_path / "own.toml").write_text(OWN_DATA)
    scenario = read_scenario(tmp_path / "own.toml")
    assert scenario.learning.partition_kind == "client"
    clients = scenario.simulated_clients(0)
    assert list(clients.ids) == ["phone-0", "phone-1", "phone-2", "phone-3"]
    assert clients.latencies(1, 0.0).tolist() == [seconds[name] for name in clients.ids]
    found = bsfl.compare("random", tmp_path / "own.toml", seeds=1, jobs=1, progress=False)
    rounds = found.results.to_frame()
    assert {name for cohort in rounds["cohort"] for name in cohort} <= set(clients.ids)
    for row in rounds.itertuples():
        assert row.duration_s == min(60.0, max(seconds[name] for name in row.cohort))


def test_a_trace_without_data_keeps_names_too(tmp_path):
    (tmp_path / "log.csv").write_text("client,latency_s\na,1\nb,2\n")
    text = OWN_DATA.replace('[learning]\ndataset = "data.npz"\n', "")
    (tmp_path / "own.toml").write_text(text)
    clients = read_scenario(tmp_path / "own.toml").simulated_clients(0)
    names = sorted(clients.ids)
    assert [name.partition("+")[0] for name in names] == sorted(n[0] for n in names)
    assert len(set(names)) == 4, "four clients follow two"
    times = dict(zip(clients.ids, clients.latencies(1, 0.0).tolist(), strict=True))
    assert all(seconds == {"a": 1.0, "b": 2.0}[name[0]] for name, seconds in times.items())
    assert clients.name(0) == clients.ids[0]
    assert read_scenario("phones").simulated_clients(0).name(3) == "3"


def test_the_manifest_says_which_files_were_read(home):
    run_scenario(read_scenario(written(home)), home / "out", seeds=1, jobs=1)
    manifest = json.loads((home / "out" / "manifest.json").read_text())
    assert list(manifest["files"]) == [str(home / "mine.py")]
