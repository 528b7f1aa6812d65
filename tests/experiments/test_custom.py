"""Custom policies, latencies, availability, partitions, data and tasks, by file or entry point."""

import sys
from importlib.metadata import EntryPoint

import numpy as np
import pytest

import bsfl
from bsfl.errors import InvalidInput
from bsfl.experiments import open_results, read_manifest, read_scenario, run_scenario, summarise
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
    text = SCENARIO + more
    for old, new in changes.items():
        text = text.replace(old, new)
    (home / "own.toml").write_text(text)
    return home / "own.toml"


def test_all_components_of_a_scenario_may_be_in_a_custom_file(home):
    scenario = read_scenario(written(home, TASK))
    clients = scenario.simulated_clients(0)
    assert scenario.policy("mine", clients).patience == 5
    assert clients.available(1, 0.0).tolist() == list(range(1, 12, 2))
    draws = np.array([clients.latency.draw(t, np.random.default_rng(t)) for t in range(300)])
    exact = clients.latency.mean_inverse(1, 0.1, 60.0)
    assert np.mean(1 / np.clip(draws, 0.1, 60.0), axis=0) == pytest.approx(exact, rel=0.3)
    assert scenario.training(0).task.step == 0.25
    results = run_scenario(scenario, home / "out", jobs=1)
    losses = results.records("mine")[0]["test_loss"]
    assert losses[-1] < losses[0]
    again = open_results(home / "out")
    assert again.records("mine")[0].tobytes() == results.records("mine")[0].tobytes()
    assert list(read_manifest(home / "out")["files"]) == [str(home / "mine.py")]


@pytest.mark.slow
def test_custom_data_and_partitions_are_trained(home):
    scenario = read_scenario(written(home, LEARNING))
    sizes = scenario.simulated_clients(0).samples.tolist()
    assert sizes == [14.0] * 4 + [13.0] * 8, "160 of 200 over 12"
    results = run_scenario(scenario, home / "out", seeds=1, jobs=1)
    records = results.records("mine")[0]
    assert records["test_accuracy"][-1] > 0.9, "two blobs, more than two deviations apart"


@pytest.mark.parametrize(
    ("registry", "value"),
    [
        (POLICIES, "bsfl:UniformRandom"),
        (POPULATIONS, "bsfl.simulation:lognormal"),
        (AVAILABILITIES, "bsfl.simulation.availability:always"),
        (PARTITIONS, "bsfl.learning.partition:iid"),
        (CATALOGUE, "bsfl.learning.datasets:load_dataset"),
        (TASKS, "bsfl.learning:Task"),
    ],
    ids=lambda value: getattr(value, "what", ""),
)
def test_every_kind_has_entry_points(registry, value, monkeypatch):
    point = EntryPoint("theirs", value, registry.group)
    monkeypatch.setitem(registry.__dict__, "_installed", {"theirs": point})
    assert registry.group.startswith("bsfl.")
    assert registry.find("theirs") is point.load()
    assert "theirs" in list(registry)


PLACE_LATENCY, PLACE_ONLINE = r"\[clients.latency\]: ", r"\[clients.availability\]: "


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (":gamma", ":gama", PLACE_LATENCY + ".*mine.py has no 'gama'; did"),
        (":gamma", ":Rule", PLACE_LATENCY + ".*Rule must take n_clients, rng, and settings"),
        (':gamma"\nshape', ':OddRounds"\nfirst', PLACE_LATENCY + ".*must have n_clients, draw,"),
        ("shape", "shap", PLACE_LATENCY + ".*'shap'; did you mean 'shape'"),
        (':OddRounds"\nfirst', ':gamma"\nshape', PLACE_ONLINE + ".*must have reachable"),
        ("patience", "patient", r"\[policies.mine\]: .*'patient'; did you mean 'patience'"),
        ("step", "stap", r"\[learning\]: .*'stap'; did you mean 'step'"),
        (TASK, LEARNING.replace(":by_turns", ":by_turn"), r"\[learning.partition\]: .*'by_turn'"),
        (TASK, LEARNING.replace(":blobs", ":blob"), "has no 'blob'; did you mean 'blobs'"),
    ],
)
def test_a_mistake_in_a_custom_file_is_named_before_anything_is_written(home, old, new, message):
    scenario = read_scenario(written(home, TASK, **{old: new}))
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


def test_results_are_opened_and_reported_without_executing_custom_files(home):
    pytest.importorskip("pandas")
    done = run_scenario(read_scenario(written(home, TASK)), home / "out", jobs=1)
    for name in [one for one in sys.modules if one.startswith("bsfl-file:")]:
        del sys.modules[name]
    for is_there in (True, False):
        (home / "mine.py").write_text(ALARM)
        if not is_there:
            (home / "mine.py").unlink()
        results = open_results(home / "out")
        assert results.simulated_clients(0) is None
        assert results.scenario.policies["mine"].settings == {"patience": 5}
        assert results.to_frame().equals(done.to_frame())
        assert summarise(results).as_json() == summarise(done).as_json()
        names = {plot.name for plot in scenario_report(results).plots}
        assert {"learning", "time", "participation"} <= names
        assert not {"learned", "data"} & names, "which draw latencies and partitions again"
    assert not (home.parent / "executed").exists()


def test_results_of_another_version_of_a_file_are_not_resumed(home):
    path = written(home)
    run_scenario(read_scenario(path), home / "out", seeds=1, jobs=1)
    run_scenario(read_scenario(path), home / "out", seeds=2, jobs=1)
    (home / "other.py").write_text(MINE)
    policies = {"other": {"policy": f"{home}/other.py:Rule"}}
    more = read_scenario(path).changed(policies=policies)
    run_scenario(more, home / "out", seeds=1, jobs=1)
    for scenario, file in ((read_scenario(path), "mine.py"), (more, "other.py")):
        (home / file).write_text(MINE + "\n# another idea\n")
        with pytest.raises(InvalidInput, match=rf"differs in .*{file}\); choose another folder"):
            run_scenario(scenario, home / "out", seeds=2, jobs=1)
        (home / file).write_text(MINE)


@pytest.mark.slow
def test_clients_keep_their_names_from_the_log_and_the_data(tmp_path):
    pytest.importorskip("pandas")
    seconds = {f"phone-{k}": 10.0**k for k in range(-1, 5)}
    log = "".join(f"{name},{s}\n" for name, s in seconds.items())
    (tmp_path / "log.csv").write_text(f"client,latency_s\n{log}")
    owner = np.array([f"phone-{k % 4}" for k in range(20)])
    x = np.arange(40.0).reshape(20, 2)
    np.savez(tmp_path / "data.npz", x=x, y=np.arange(20) % 3, client=owner)
    learning = {"dataset": str(tmp_path / "data.npz")}
    latency = {"population": "trace", "path": str(tmp_path / "log.csv")}
    scenario = parse(
        clients__n_clients=4, clients__latency=latency, learning=learning, objective=None
    )
    assert scenario.learning.partition_kind == "client"
    clients = scenario.simulated_clients(0)
    assert list(clients.ids) == ["phone-0", "phone-1", "phone-2", "phone-3"]
    assert clients.latencies(1, 0.0).tolist() == [seconds[name] for name in clients.ids]
    found = bsfl.compare("random", scenario, seeds=1, rounds=4, jobs=1, progress=False)
    for row in found.results.to_frame().itertuples():
        assert set(row.cohort) <= set(clients.ids)
        assert row.duration_s == min(60.0, max(seconds[name] for name in row.cohort))
