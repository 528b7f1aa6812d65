"""bsfl.compare: what may be given, what comes back, and what is kept."""

import gc
import subprocess
import sys
from dataclasses import dataclass, replace
from html import escape

import numpy as np
import pytest

import bsfl
from bsfl.errors import InvalidInput, MissingExtra
from bsfl.experiments import open_results, run_scenario, summarise
from bsfl.simulation import SimulatedClients, lognormal
from small_clients import HalfWay
from small_scenario import SMALL, parse

QUIET = {"jobs": 1, "progress": False}


@dataclass
class Counts:
    invitations: np.ndarray


@dataclass(frozen=True)
class LeastServed(bsfl.Policy):
    """The clients invited least so far."""

    first: int = 0

    def init(self, n_clients):
        return Counts(np.zeros(n_clients, dtype=int))

    def select(self, state, context, rng):
        order = np.argsort(state.invitations[context.available], kind="stable")
        return np.sort(context.available[order[: context.n_invited]])

    def observe(self, state, context, report):
        state.invitations[report.invited] += 1


def twelve(seed=0):
    medians = np.random.default_rng(seed).permutation(np.geomspace(1.0, 50.0, 12))
    latency = lognormal(medians, np.full(12, 0.2))
    return SimulatedClients(latency=latency, tau_min=0.5, tau_max=60.0, seed=seed)


OF_CLIENTS = {"cohort_size": 3, "rounds": 8, "seeds": 2, **QUIET}


def test_policies_may_be_names_classes_instances_or_stand_in_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "from bsfl import UniformRandom\nclass Mine(UniformRandom):\n    pass\n"
    (tmp_path / "mine.py").write_text(code)
    given = ["pace", bsfl.BSFL(alpha=3.0), bsfl.UniformRandom, LeastServed(), "mine.py:Mine"]
    found = bsfl.compare(given, parse(), seeds=2, **QUIET)
    assert list(found.summary.policies) == ["pace", "bsfl", "random", "LeastServed", "Mine"]
    assert found.results.scenario.policies["bsfl"].settings["alpha"] == 3.0
    by_label = bsfl.compare({"a": LeastServed, "b": LeastServed(2)}, parse(), seeds=1, **QUIET)
    assert list(by_label.summary.policies) == ["a", "b"]
    one = bsfl.compare(LeastServed(), parse(), seeds=1, **QUIET)
    assert one.headline().startswith("LeastServed has the shortest rounds; its mean round takes ")


def test_it_is_what_a_run_of_the_scenario_gives(tmp_path):
    scenario = parse()
    results = run_scenario(scenario, tmp_path / "run", seeds=2, jobs=1)
    given = {"bsfl": bsfl.BSFL(alpha=2.0), "plain": "random"}
    found = bsfl.compare(given, scenario, seeds=2, **QUIET).results
    for run in results.runs():
        assert found.run(*run).records.tobytes() == results.run(*run).records.tobytes()


def test_rows_of_policies_and_seeds_and_of_rounds():
    pytest.importorskip("pandas")
    found = bsfl.compare(["pace", "random"], parse(first_seed=7), seeds=3, rounds=5, **QUIET)
    frame = found.to_frame()
    assert list(zip(frame["policy"], frame["seed"], strict=True)) == [
        (label, seed) for label in ("pace", "random") for seed in (7, 8, 9)
    ]
    rounds = found.results.to_frame()
    assert len(rounds) == 2 * 3 * 5
    last = rounds[rounds["round"] == 5].groupby("policy")["clock_s"].mean()
    total = frame.groupby("policy")["total_time_s"].mean()
    assert total.to_dict() == pytest.approx(last.to_dict())
    assert all(len(cohort) == 3 and set(cohort) <= set(range(12)) for cohort in rounds["cohort"])


def test_printed_it_is_headline_and_table_and_a_notebook_shows_the_same():
    found = bsfl.compare(["cs-ucb", "random"], parse(), seeds=2, **QUIET)
    assert "cs-ucb has the shortest rounds" in found.headline()
    assert "times as fast as random" in found.headline()
    assert str(found).startswith(found.headline())
    assert "policy  " in str(found)
    html = found._repr_html_()
    assert escape(found.headline()) in html
    assert html.count("<tr>") == 3
    assert repr(found) == "<Comparison of cs-ucb, random with 2 seeds>"
    titled = bsfl.compare("random", parse(title="<script>"), seeds=1, **QUIET)
    assert "<script>" not in titled._repr_html_()


def test_clients_with_a_custom_task():
    found = bsfl.compare(["pace", "random"], twelve(), HalfWay(50.0), **OF_CLIENTS)
    records = found.results.records("random")[0]
    assert records["test_loss"][-1] < records["test_loss"][0] < 50.0
    assert " reached loss " in found.headline()
    made = bsfl.compare(["random"], twelve, lambda n_clients, rng: HalfWay(50.0), **OF_CLIENTS)
    assert made.summary.target.column == "test_loss"
    seed_0, seed_1 = made.results.column("random", "clock_s")
    assert seed_0.tolist() == found.results.column("random", "clock_s")[0].tolist()
    assert seed_1.tolist() != found.results.column("random", "clock_s")[1].tolist()


def test_a_task_replaces_what_a_scenario_trains_and_the_sizes_of_data():
    sized = replace(twelve(), samples=np.full(12, 5.0))
    for given in (sized, parse(clients__data={"mean_samples": 50}), parse()):
        found = bsfl.compare("random", given, HalfWay(50.0), **OF_CLIENTS)
        assert found.summary.target.column == "test_loss"


def test_a_folder_is_continued_and_gains_policies_and_seeds(tmp_path, capsys):
    kept = {"folder": tmp_path / "out", **OF_CLIENTS}
    first = bsfl.compare([LeastServed(), "random"], twelve(), **kept)
    files = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.run")}
    kept |= {"seeds": 3, "progress": True}
    again = bsfl.compare([LeastServed(), "random", "pace"], twelve(), **kept)
    assert {p: p.stat().st_mtime_ns for p in files} == files
    assert "5 runs in " in capsys.readouterr().err
    assert again.results.seeds == 3
    assert first.to_frame()["mean_round_s"][0] == again.to_frame()["mean_round_s"][0]
    (tmp_path / "small.toml").write_text(SMALL)
    of_file = bsfl.compare("pace", tmp_path / "small.toml", folder=tmp_path / "b", seeds=1, **QUIET)
    assert open_results(tmp_path / "b").scenario == of_file.results.scenario


def test_a_folder_of_something_else_is_rejected(tmp_path):
    class Opaque(LeastServed):
        def __repr__(self):
            return object.__repr__(self)

    def compare(**changes):
        given = {"policies": LeastServed(2), "scenario": twelve(), "task": HalfWay(2.0)}
        bsfl.compare(**{"folder": tmp_path / "out"} | given | OF_CLIENTS | changes)

    compare()
    compare()
    for changes, message in (
        ({"policies": LeastServed(1)}, "differs in policies.LeastServed"),
        ({"scenario": twelve(3)}, "differs in clients"),
        ({"rounds": 9}, "differs in rounds"),
        ({"task": HalfWay(3.0)}, r"differs in learning\)"),
    ):
        with pytest.raises(InvalidInput, match=message):
            compare(**changes)
    for i, hidden in enumerate(({"policies": Opaque()}, {"task": lambda n, rng: HalfWay(50.0)})):
        compare(**hidden, folder=tmp_path / str(i))
        with pytest.raises(InvalidInput, match="nothing shows whether .* is the same"):
            compare(**hidden, folder=tmp_path / str(i))


def test_results_of_objects_are_opened_without_them_and_run_with_them_alone(tmp_path):
    found = bsfl.compare(LeastServed(), twelve(), **OF_CLIENTS, folder=tmp_path)
    results = open_results(tmp_path)
    assert summarise(results).as_json() == found.summary.as_json()
    assert results.scenario.policies["LeastServed"].object == "LeastServed"
    with pytest.raises(InvalidInput, match=r"SimulatedClients was given .* as an object"):
        run_scenario(results.scenario, tmp_path, seeds=3, jobs=1)


def test_without_a_folder_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = bsfl.compare("random", twelve(), **OF_CLIENTS)
    assert len(list(tmp_path.iterdir())) == 1
    del found
    gc.collect()
    assert not list(tmp_path.iterdir())
    for policy, changes, message in (
        ("oort", {}, r"^\w+ \[policies.oort\]: .*needs losses"),
        ("random", {"jobs": 0}, "jobs must be -1 or a whole number of at least 1, got 0"),
    ):
        with pytest.raises(InvalidInput, match=message):
            bsfl.compare(policy, twelve(), **OF_CLIENTS | changes)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("is_kept", [True, False])
def test_after_an_interrupt_it_says_what_is_kept(tmp_path, monkeypatch, is_kept):
    def interrupt(*run):
        raise KeyboardInterrupt

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("bsfl.experiments.results.Results.write", interrupt)
    folder = tmp_path / "out" if is_kept else None
    with pytest.raises(KeyboardInterrupt) as stop:
        bsfl.compare("random", twelve(), **OF_CLIENTS, folder=folder)
    kept = f"interrupted: 0 of 2 runs are in {folder}; the same command resumes"
    assert str(stop.value) == (kept if is_kept else "interrupted; folder= keeps finished runs")
    assert is_kept or not list(tmp_path.iterdir())


def test_a_file_needs_no_policies_until_it_is_run(tmp_path):
    (tmp_path / "bare.toml").write_text(SMALL[: SMALL.index("[policies.bsfl]")])
    found = bsfl.compare("random", tmp_path / "bare.toml", seeds=1, **QUIET)
    assert list(found.summary.policies) == ["random"]
    with pytest.raises(InvalidInput, match="bare: there must be at least one policy"):
        run_scenario(bsfl.read_scenario(tmp_path / "bare.toml"), tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()


def test_seeds_may_be_named():
    whole = bsfl.compare("random", parse(), seeds=5, **QUIET).results.records("random")
    some = bsfl.compare("random", parse(), seeds=[3, 4], **QUIET).results
    assert some.scenario.first_seed == 3
    for one, same in zip(some.records("random"), whole[3:], strict=True):
        assert one.tobytes() == same.tobytes()
    for wrong in ([], [3, 5], [4, 3]):
        with pytest.raises(InvalidInput, match="seeds must be a number, or seeds that follow"):
            bsfl.compare("random", parse(), seeds=wrong, **QUIET)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policies": ["random", bsfl.UniformRandom()]}, "two policies are called 'random'"),
        ({"policies": []}, "at least one policy"),
        ({"policies": ["rndom"]}, "unknown policy 'rndom'; did you mean 'random'?"),
        ({"policies": 3}, "a policy must be a table, a name, mine.py:Class, a subclass"),
        ({"policies": HalfWay}, "an object of one, got <class .*HalfWay"),
        ({"policies": {1: "random"}}, "a policy's label must be a text, got 1"),
        ({"cohort_size": None}, "clients need cohort_size=..., and rounds="),
        ({"seeds": "3"}, "seeds must be a whole number of at least 1, got '3'"),
        ({"seeds": ["3"]}, "seeds must be a number, or seeds that follow"),
        ({"scenario": "phones", "time_s": -5.0}, "time_s must be a finite number above 0"),
        ({"scenario": "phones", "task": HalfWay(50.0)}, "must have the 100 clients, got 12"),
        ({"scenario": 3}, "scenario must be a name, a .*; got 3$"),
        ({"scenario": lambda seed: 3}, "must return SimulatedClients, got 3"),
        ({"task": "mine.py:Task"}, "task must be a task, or a .*, got 'mine.py:Task'$"),
        ({"task": lambda n, rng: 3}, "a task must have n_clients, samples, init, train"),
    ],
)
def test_mistakes_are_named(changes, message):
    given = {"policies": "random", "scenario": twelve(), **OF_CLIENTS}
    with pytest.raises(InvalidInput, match=message):
        bsfl.compare(**given | changes)


def test_a_missing_extra_is_named_before_anything_runs(monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(MissingExtra, match="this needs joblib, .* run: pip install .*sim"):
        bsfl.compare("random", twelve(), **OF_CLIENTS)


@pytest.mark.slow
def test_figures_and_pages(tmp_path):
    found = bsfl.compare(["pace", "random"], twelve(), HalfWay(50.0), **OF_CLIENTS)
    found.plot().savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert found.plot()._repr_png_().startswith(b"\x89PNG"), "a notebook shows it"
    page = found.report(tmp_path / "deep" / "page.html")
    assert escape(found.headline().splitlines()[0]) in page.read_text()
    folder = found.report(tmp_path / "folder")
    assert {"report.html", "summary.json", "report.md"} <= {p.name for p in folder.iterdir()}
    with pytest.raises(InvalidInput, match="report.md is a file; a folder is needed"):
        found.report(folder / "report.md")


SCRIPT = """
from dataclasses import dataclass
import bsfl

@dataclass(frozen=True)
class Mine(bsfl.UniformRandom):
    pass

found = bsfl.compare([Mine(), "pace"], "phones", seeds=2, rounds=5, jobs=2)
print(found.to_frame()["policy"].tolist())
"""


@pytest.mark.slow
def test_a_policy_of_a_script_runs_in_other_processes(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    run = [sys.executable, "script.py"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "['Mine', 'Mine', 'pace', 'pace']\n", done.stderr
