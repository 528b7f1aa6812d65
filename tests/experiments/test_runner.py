"""Runs of policies x seeds: parallel, interrupted, resumed, each written when it is finished."""

import errno
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pytest

from bsfl.errors import InvalidInput, WorkerDied
from bsfl.experiments import open_results, read_manifest, run_scenario, runner
from bsfl.experiments.results import write_checked
from bsfl.experiments.summary import summarise
from bsfl.persistence import atomic
from bsfl.simulation import simulate
from small_scenario import SMALL, parse


def contents(folder):
    """Return all records in a folder: equal ones have equal bytes."""
    results = open_results(folder)
    return {run: results.run(*run).records.tobytes() for run in results.runs()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    return run_scenario(parse(), folder, jobs=1)


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*.run")}


def test_records_hold_what_the_simulation_said(finished):
    scenario = finished.scenario
    fleet = scenario.simulated_clients(1)
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
    stored = finished.run("bsfl", 1).records
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
    before = files(finished.folder)

    def refuse(*args):
        raise AssertionError("nothing should run")

    monkeypatch.setattr(runner, "run_one", refuse)
    run_scenario(parse(), finished.folder, jobs=1)
    assert files(finished.folder) == before


@pytest.mark.slow
def test_parallel_runs_equal_serial_ones(finished, tmp_path):
    run_scenario(parse(), tmp_path, jobs=2)
    assert contents(tmp_path) == contents(finished.folder)


def test_more_seeds_extend_a_folder(finished, tmp_path):
    run_scenario(parse(), tmp_path, seeds=1, jobs=1)
    assert run_scenario(parse(), tmp_path, seeds=2, jobs=1).seeds == 2
    assert contents(tmp_path) == contents(finished.folder)


def test_a_partition_that_cannot_be_made_is_named_with_its_table(tmp_path):
    partition = {"kind": "dirichlet", "alpha": -1.0}
    learning = {"dataset": "fashion-mnist-small", "partition": partition}
    with pytest.raises(InvalidInput, match=r"\[learning\.partition\]: alpha must be a finite"):
        run_scenario(parse(learning=learning), tmp_path, jobs=1)


@pytest.mark.parametrize("name", ["taken", "taken/inside"])
def test_a_file_is_no_folder_for_results(tmp_path, name):
    (tmp_path / "taken").write_text("")
    with pytest.raises(InvalidInput, match=r"taken is a file; a folder is needed"):
        run_scenario(parse(), tmp_path / name, jobs=1)


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupted_call_says_how_to_resume(finished, tmp_path, monkeypatch, jobs):
    write = runner.Results.write

    def interrupted(self, label, index, run):
        if len(list(tmp_path.rglob("*.run"))) == 3:
            raise KeyboardInterrupt
        write(self, label, index, run)

    with monkeypatch.context() as patched:
        patched.setattr(runner.Results, "write", interrupted)
        with pytest.raises(KeyboardInterrupt) as stop:
            run_scenario(parse(), tmp_path, jobs=jobs)
    said = f"interrupted: 3 of 4 runs are in {tmp_path}; the same command resumes"
    assert str(stop.value) == said
    kept = files(tmp_path)
    run_scenario(parse(), tmp_path, jobs=1)
    assert {path: path.read_bytes() for path in kept} == kept, "they were not run again"
    assert contents(tmp_path) == contents(finished.folder)


def test_a_full_disk_leaves_finished_runs_and_no_part_of_one(finished, tmp_path, monkeypatch):
    sync = atomic._sync

    def full(handle):
        if len(files(tmp_path)) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    with monkeypatch.context() as patched:
        patched.setattr(atomic, "_sync", full)
        with pytest.raises(OSError, match="No space left"):
            run_scenario(parse(), tmp_path, jobs=1)
    kept = files(tmp_path)
    assert len(kept) == 2
    assert len([p for p in (tmp_path / "runs").rglob("*") if p.is_file()]) == 2, "nothing else"
    run_scenario(parse(), tmp_path, jobs=1)
    assert contents(tmp_path) == contents(finished.folder)


DIES = """
import os, signal
from bsfl import UniformRandom

class Dies(UniformRandom):
    def observe(self, state, context, report):
        if context.round == 5:
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_is_named_with_what_is_missing(tmp_path):
    (tmp_path / "mine.py").write_text(DIES)
    scenario = parse(policies__x={"policy": f"{tmp_path}/mine.py:Dies"}, seeds=1)
    with pytest.raises(WorkerDied) as died:
        run_scenario(scenario, tmp_path / "out", jobs=2)
    said = str(died.value)
    assert said.startswith("a worker process died: killed, or out of memory; ")
    assert f" of 3 runs are in {tmp_path / 'out'}, without " in said
    assert "x, seed 0" in said
    assert said.endswith(". The same command resumes")
    assert not (tmp_path / "out" / "runs" / "x").exists()


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_killed_in_the_middle_the_same_command_ends_with_equal_results(tmp_path, jobs):
    """kill -9 a real `bsfl run`, the parent alone, several times; then let it finish."""
    (tmp_path / "study.toml").write_text(SMALL.replace("rounds = 30", "rounds = 1500"))
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run_scenario(parse(rounds=1500), whole, seeds=4, jobs=2)
    groups = []

    def start():
        command = [sys.executable, "-m", "bsfl.cli", "run", "study.toml", "--jobs", jobs]
        process = subprocess.Popen(
            [*command, "--seeds", "4", "--out", str(cut)],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        groups.append(process.pid)
        return process

    for kill in range(3):
        n_before, process = len(files(cut)), start()
        deadline = time.monotonic() + 60
        while len(files(cut)) <= n_before:
            assert process.poll() is None, f"it ended before kill {kill}"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)  # its workers live on for a moment
        process.wait()
        assert 0 < len(files(cut)) < 8, "the kill came in the middle"
    kept = files(cut)
    assert start().wait(timeout=120) == 0
    for group in groups:  # a worker that was idle when its parent was killed lingers for minutes
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    assert contents(cut) == contents(whole)
    assert {path: path.read_bytes() for path in kept} == kept


@pytest.mark.slow
def test_two_runs_at_once_do_no_harm(finished, tmp_path):
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


def test_a_damaged_run_is_run_again_by_the_same_command(finished, tmp_path, caplog):
    results = run_scenario(parse(), tmp_path, jobs=1)
    path = results.path("bsfl", 0)
    whole = path.read_bytes()
    for damaged in (whole + whole, whole[:-1], b"", bytes([*whole[:-1], whole[-1] ^ 1])):
        path.write_bytes(damaged)
        with pytest.raises(InvalidInput, match=f"{path} is damaged; run the scenario again to rep"):
            summarise(open_results(tmp_path))
        caplog.clear()
        run_scenario(parse(), tmp_path, jobs=1)
        assert caplog.messages == [f"{path} is damaged; it is run again"]
        assert contents(tmp_path) == contents(finished.folder)


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
    with pytest.raises(
        InvalidInput, match="jobs must be -1 or a whole number of at least 1, got 0"
    ):
        run_scenario(parse(), tmp_path / "out", jobs=0)
    with pytest.raises(InvalidInput, match="seeds must be a whole number of at least 1, got 0"):
        run_scenario(parse(), tmp_path / "out", seeds=0)
    with pytest.raises(InvalidInput, match=r"must be a Scenario \(see read_scenario\), got 'demo'"):
        run_scenario("demo", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_every_run_has_its_own_versions(tmp_path):
    run_scenario(parse(), tmp_path, seeds=1, jobs=1)
    manifest = read_manifest(tmp_path)
    older = manifest | {"versions": manifest["versions"] | {"numpy": "1.0.0"}}
    write_checked(tmp_path / "manifest.json", older)
    results = run_scenario(parse(), tmp_path, seeds=2, jobs=1)
    assert read_manifest(tmp_path) == older | {"seeds": 2}, "versions of the first run stay"
    assert results.run("bsfl", 1).versions["numpy"] == np.__version__


def test_fewer_seeds_than_in_the_folder_are_reported_as_asked(finished):
    assert run_scenario(parse(), finished.folder, seeds=1, jobs=1).seeds == 1
    assert open_results(finished.folder).seeds == 2
