"""Runs on disk: resumed, compared byte by byte, summarised."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pytest
from rich.console import Console

from bsfl.cli.reports import drawn
from bsfl.errors import InvalidInput
from bsfl.estimators.fairness import gini
from bsfl.experiments import Results, open_results, read_manifest, run_scenario, runner
from bsfl.experiments.statistics import interval
from bsfl.experiments.summary import summarise
from bsfl.experiments.tables import summary_table
from bsfl.persistence import checksummed
from bsfl.report import scenario_report
from bsfl.simulation import simulate
from small_scenario import SMALL, parse


def contents(folder):
    files = [*sorted(folder.rglob("*.records")), folder / "manifest.json"]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    return run_scenario(parse(), folder, jobs=1)


def test_records_hold_what_the_simulation_said(finished):
    scenario = finished.scenario
    fleet = scenario.clients.build(1)
    records = list(
        simulate(
            scenario.policy("bsfl", fleet),
            fleet,
            cohort_size=3,
            rounds=30,
            seed=1,
            objective=scenario.objective,
        )
    )
    stored = finished.run_file("bsfl", 1).read()
    for name in ("round", "n_available", "n_timeouts", "duration_s", "clock_s", "regret"):
        assert stored[name].tolist() == [getattr(r, name) for r in records]
    assert [tuple(c) for c in stored["cohort"].tolist()] == [r.cohort for r in records]


def test_who_fails_is_named(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from bsfl import UniformRandom\n"
        "class Fails(UniformRandom):\n"
        "    def observe(self, state, context, report):\n"
        "        if context.round == 4: raise ZeroDivisionError('by hand')\n"
        "class Cheats(UniformRandom):\n"
        "    def select(self, state, context, rng):\n"
        "        return super().select(state, context, rng)[:2 if context.round == 4 else 3]\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ZeroDivisionError) as error:
        run_scenario(parse(policies__x={"policy": "mine.py:Fails"}), tmp_path / "one", jobs=2)
    assert error.value.__notes__ == ["in study [policies.x], seed 0"]
    with pytest.raises(
        InvalidInput, match=r"study \[policies.x\], seed .*: the policy must select 3"
    ):
        run_scenario(parse(policies__x={"policy": "mine.py:Cheats"}), tmp_path / "two", jobs=2)


def test_finished_runs_are_not_computed_again(finished, monkeypatch):
    before = contents(finished.folder)

    def refuse(*args):
        raise AssertionError("nothing should run")

    monkeypatch.setattr(runner, "run_one", refuse)
    run_scenario(parse(), finished.folder, jobs=1)
    assert contents(finished.folder) == before


@pytest.mark.parametrize("cut", [0, 1, 7, 100])
def test_a_run_cut_anywhere_is_completed_to_the_same_bytes(finished, tmp_path, cut):
    results = Results(tmp_path, parse(), 2)
    results.write_manifest()
    for label, seed in results.runs():
        whole = finished.run_file(label, seed).path.read_bytes()
        path = results.run_file(label, seed).path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(whole[: len(whole) - cut * (seed + 1)])
    run_scenario(parse(), tmp_path, jobs=1)
    assert contents(tmp_path) == contents(finished.folder)


@pytest.mark.slow
def test_parallel_runs_equal_serial_ones(finished, tmp_path):
    run_scenario(parse(), tmp_path, jobs=2)
    assert contents(tmp_path) == contents(finished.folder)


def test_more_seeds_extend_a_folder(finished, tmp_path):
    run_scenario(parse(), tmp_path, seeds=1, jobs=1)
    assert run_scenario(parse(), tmp_path, seeds=2, jobs=1).seeds == 2
    assert contents(tmp_path) == contents(finished.folder)


def test_another_scenario_is_kept_out(finished):
    with pytest.raises(
        InvalidInput,
        match=r"holds results of another 'study' \(it differs in rounds\); choose another folder "
        r"with --out FOLDER \(folder= of compare\), or delete this one",
    ):
        run_scenario(parse(rounds=31), finished.folder, jobs=1)


def test_an_impossible_partition_is_named_with_its_table(tmp_path):
    partition = {"kind": "dirichlet", "alpha": -1.0}
    learning = {"dataset": "fashion-mnist-small", "partition": partition}
    with pytest.raises(
        InvalidInput, match=r"study \[learning\.partition\]: alpha must be a finite"
    ):
        run_scenario(parse(learning=learning), tmp_path, jobs=1)


def test_a_policy_under_its_own_name_may_be_named_or_not(tmp_path):
    run_scenario(parse(policies__random={}), tmp_path, seeds=1, jobs=1)
    named = parse(policies__random={"policy": "random"})
    assert run_scenario(named, tmp_path, seeds=1, jobs=1).missing() == []
    with pytest.raises(InvalidInput, match=r"differs in policies\.random"):
        run_scenario(parse(policies__random={"policy": "age"}), tmp_path, seeds=1, jobs=1)


@pytest.mark.parametrize("name", ["taken", "taken/inside"])
def test_a_file_is_no_folder_for_results(tmp_path, name):
    (tmp_path / "taken").write_text("")
    with pytest.raises(InvalidInput, match=r"taken is a file; a folder is needed"):
        run_scenario(parse(), tmp_path / name, jobs=1)


def test_a_folder_without_results(tmp_path):
    with pytest.raises(InvalidInput, match=r"holds no results \(there is no manifest\.json\)"):
        open_results(tmp_path)


def test_unfinished_results_are_not_summarised(tmp_path):
    results = Results(tmp_path, parse(), 1)
    results.write_manifest()
    for label, seed in results.runs():
        results.run_file(label, seed).append([])
    with pytest.raises(InvalidInput, match=r"is not finished \(0%\); run the scenario again"):
        summarise(results)


def test_the_summary_by_hand(finished):
    summary = summarise(open_results(finished.folder)).as_json()
    row = summary["policies"]["bsfl"]
    clock = [finished.run_file("bsfl", s).read()["clock_s"][-1] for s in range(2)]
    base = [finished.run_file("plain", s).read()["clock_s"][-1] for s in range(2)]
    assert row["total_time_s"]["mean"] == pytest.approx(np.mean(clock))
    assert row["speed_up"]["mean"] == pytest.approx(np.mean(np.divide(base, clock)))
    # two values: half width = 12.706 * |a - b| / sqrt(2) / sqrt(2)
    assert row["total_time_s"]["high"] == pytest.approx(
        np.mean(clock) + 12.706 * abs(clock[0] - clock[1]) / 2
    )
    counts = [
        np.bincount(finished.run_file("bsfl", s).read()["cohort"].ravel(), minlength=12)
        for s in range(2)
    ]
    assert row["gini"]["mean"] == pytest.approx(np.mean([gini(c) for c in counts]))
    assert row["min_participation"]["mean"] == pytest.approx(
        np.mean([c.min() for c in counts]) / 7.5
    )
    regret = [finished.run_file("bsfl", s).read()["regret"].sum() for s in range(2)]
    assert row["regret"]["mean"] == pytest.approx(np.mean(regret))
    assert summary["theorem_1_bound"] > max(regret)
    json.dumps(summary, allow_nan=False)


def test_one_seed_has_no_interval():
    one = interval(np.array([3.0]))
    assert one.as_json() == {"mean": 3.0, "low": None, "high": None}


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_killed_in_the_middle_the_same_command_ends_with_the_same_bytes(tmp_path, jobs):
    """kill -9 a real `bsfl run`, the parent alone, several times; then let it finish."""
    scenario = SMALL.replace("rounds = 30", "rounds = 1500")
    (tmp_path / "study.toml").write_text(scenario)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run_scenario(parse(rounds=1500), whole, jobs=2)

    groups = []

    def start():
        command = [sys.executable, "-m", "bsfl.cli", "run", "study.toml", "--jobs", jobs]
        process = subprocess.Popen(
            [*command, "--out", str(cut)],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        groups.append(process.pid)
        return process

    def n_bytes():
        return sum(p.stat().st_size for p in cut.rglob("*.records"))

    sizes = [0]
    for kill in range(3):
        process = start()
        deadline = time.monotonic() + 60
        while n_bytes() <= sizes[-1]:
            assert process.poll() is None, f"it ended before kill {kill}"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)  # its workers live on for a moment
        process.wait()
        sizes.append(n_bytes())
    total = sum(p.stat().st_size for p in whole.rglob("*.records"))
    assert 0 < sizes[1] < total, "the first kill came in the middle"
    assert start().wait(timeout=120) == 0
    for group in groups:  # a worker that was idle when its parent was killed lingers for minutes
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    assert contents(cut) == contents(whole)


@pytest.mark.slow
def test_two_runs_at_once_wait_for_each_other(finished, tmp_path):
    (tmp_path / "study.toml").write_text(SMALL)
    command = [sys.executable, "-m", "bsfl.cli", "run", "study.toml", "--jobs", "1", "--out", "out"]
    both = [
        subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(2)
    ]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert contents(tmp_path / "out") == contents(finished.folder)


def test_damage_is_noticed(finished, tmp_path):
    results = run_scenario(parse(), tmp_path, jobs=1)
    path = results.run_file("bsfl", 0).path
    whole = path.read_bytes()
    path.write_bytes(whole + whole)
    with pytest.raises(InvalidInput, match="is damaged; delete it and run the scenario again"):
        summarise(open_results(tmp_path))
    changed = bytearray(whole[: len(whole) // 2])
    changed[20] ^= 1
    path.write_bytes(changed)
    with pytest.raises(InvalidInput, match="differs from what is computed now"):
        run_scenario(parse(), tmp_path, jobs=1)
    path.unlink()
    run_scenario(parse(), tmp_path, jobs=1)
    assert contents(tmp_path) == contents(finished.folder)
    for damage in ("{", "{}", "[]"):
        (tmp_path / "manifest.json").write_text(damage)
        with pytest.raises(InvalidInput, match=r"manifest\.json is damaged"):
            open_results(tmp_path)
        with pytest.raises(InvalidInput, match=r"manifest\.json is damaged"):
            run_scenario(parse(), tmp_path, jobs=1)


REFUSES = """
from bsfl import UniformRandom
from bsfl.errors import InvalidInput

class Refuses(UniformRandom):
    def select(self, state, context, rng):
        raise InvalidInput("not with this seed")
"""


def test_nothing_is_written_for_a_scenario_that_cannot_run(tmp_path):
    (tmp_path / "rules.py").write_text(REFUSES)
    mine = parse(policies__mine={"policy": f"{tmp_path}/rules.py:Refuses"})
    with pytest.raises(InvalidInput, match=r"study \[policies.mine\]: not with this seed"):
        run_scenario(mine, tmp_path / "out", jobs=1)
    with pytest.raises(InvalidInput, match="jobs must be -1 or at least 1, got 0"):
        run_scenario(parse(), tmp_path / "out", jobs=0)
    assert not (tmp_path / "out").exists()


def test_versions_of_the_first_run_stay(finished, tmp_path):
    run_scenario(parse(), tmp_path, jobs=1)
    path = tmp_path / "manifest.json"
    manifest = read_manifest(tmp_path)
    older = manifest | {"versions": manifest["versions"] | {"numpy": "1.0.0"}}
    checksummed.write(path, older)
    run_scenario(parse(), tmp_path, jobs=1)
    assert read_manifest(tmp_path) == older, "nothing was missing, so nothing is new"
    run_scenario(parse(), tmp_path, seeds=3, jobs=1)
    manifest = read_manifest(tmp_path)
    assert manifest["versions"]["numpy"] == "1.0.0"
    assert [one["numpy"] for one in manifest["versions_since"]] == [np.__version__]


def test_fewer_seeds_than_in_the_folder_are_reported_as_asked(finished):
    assert run_scenario(parse(), finished.folder, seeds=1, jobs=1).seeds == 1
    assert open_results(finished.folder).seeds == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"rounds": 1},
        {"cohort_size": 1, "rounds": 3},
        {"clients__n_clients": 1, "cohort_size": 1},
        {"clients__latency": {"population": "lognormal", "spread": 0.0}},
        {"clients__availability": {"kind": "independent", "probability": 0.0}},
        {"clients__failures": {"probability": 1.0}},
        {"title": "odd [/foo] [red]title[/red]"},
        {"title": r"$\frac", "rounds": 3},
        {"title": r"$\frac$ $x^$ \$ {}%s <b>&amp;</b> 日本 🦊 \u202e", "rounds": 3},
    ],
)
def test_odd_scenarios_can_be_reported(tmp_path, changes):
    results = run_scenario(parse(**changes), tmp_path, jobs=1)
    report = scenario_report(results)
    report.write(tmp_path)
    json.dumps(report.numbers, allow_nan=False)
    Console(file=io.StringIO()).print(drawn(summary_table(summarise(results), "selection")))
