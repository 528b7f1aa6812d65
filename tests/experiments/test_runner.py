"""Runs of policies x seeds: parallel, interrupted, resumed, each written when it is finished."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from bsfl.errors import InvalidInput, WorkerDied
from bsfl.experiments import open_results, read_manifest, run_scenario, runner
from bsfl.experiments.results import write_checked
from bsfl.experiments.runner import XLA_PROGRAMS, XLA_THREADS, keep_programs, xla_threads
from bsfl.experiments.summary import summarise
from bsfl.persistence import atomic
from bsfl.policies import UniformRandom
from bsfl.simulation import simulate
from small_scenario import SMALL, parse, parse_training


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


def test_records_hold_what_the_simulation_returned(finished):
    clients = finished.scenario.simulated_clients(1)
    policy, objective = finished.scenario.policy("bsfl", clients), finished.scenario.objective
    run = simulate(policy, clients, cohort_size=3, rounds=30, seed=1, objective=objective)
    records = list(run)
    stored = finished.run("bsfl", 1).records
    for name in ("round", "n_available", "n_timeouts", "duration_s", "clock_s", "regret"):
        assert stored[name].tolist() == [getattr(r, name) for r in records]
    assert [tuple(c) for c in stored["cohort"].tolist()] == [r.cohort for r in records]


MINE = """
import os
import signal

from bsfl import UniformRandom
from bsfl.errors import InvalidInput

class Fails(UniformRandom):
    def observe(self, state, context, report):
        if context.round == 4: raise ZeroDivisionError("by hand")

class Cheats(UniformRandom):
    def select(self, state, context, rng):
        return super().select(state, context, rng)[:2 if context.round == 4 else 3]

class Rejects(UniformRandom):
    def select(self, state, context, rng):
        raise InvalidInput("not with this seed")

class Dies(UniformRandom):
    def observe(self, state, context, report):
        if context.round == 5:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def with_policy(folder, name):
    """Return the small scenario with one more policy x, a class in a file of this folder."""
    (folder / "mine.py").write_text(MINE)
    return parse(policies__x={"policy": f"{folder}/mine.py:{name}"}, seeds=1)


def test_a_policy_that_fails_is_named(tmp_path):
    with pytest.raises(ZeroDivisionError) as error:
        run_scenario(with_policy(tmp_path, "Fails"), tmp_path / "one", jobs=2)
    assert error.value.__notes__ == ["in study [policies.x], seed 0"]
    message = r"study \[policies.x\], seed 0: the policy must select 3"
    with pytest.raises(InvalidInput, match=message):
        run_scenario(with_policy(tmp_path, "Cheats"), tmp_path / "two", jobs=2)


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


def test_more_seeds_extend_a_folder_and_fewer_leave_it(finished, tmp_path):
    run_scenario(parse(), tmp_path, seeds=1, jobs=1)
    assert run_scenario(parse(), tmp_path, seeds=2, jobs=1).seeds == 2
    assert contents(tmp_path) == contents(finished.folder)
    assert run_scenario(parse(), tmp_path, seeds=1, jobs=1).seeds == 1
    assert open_results(tmp_path).seeds == 2


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
    message = f"interrupted: 3 of 4 runs are in {tmp_path}; the same command resumes"
    assert str(stop.value) == message
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_is_named_with_what_is_missing(tmp_path):
    with pytest.raises(WorkerDied) as died:
        run_scenario(with_policy(tmp_path, "Dies"), tmp_path / "out", jobs=2)
    assert re.fullmatch(
        r"a worker process died: killed, or out of memory; . of 3 runs are in "
        rf"{tmp_path / 'out'}, without .*x, seed 0.*\. The same command resumes",
        str(died.value),
    )
    assert not (tmp_path / "out" / "runs" / "x").exists()


def start_run(folder, *options):
    """Start `bsfl run study.toml` in another process."""
    command = [sys.executable, "-m", "bsfl.cli", "run", "study.toml", *options]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, cwd=folder, start_new_session=True, **quiet)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_killed_in_the_middle_the_same_command_ends_with_equal_results(tmp_path, jobs):
    """kill -9 a real `bsfl run`, the parent alone, several times; then let it finish."""
    (tmp_path / "study.toml").write_text(SMALL.replace("rounds = 30", "rounds = 1500"))
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run_scenario(parse(rounds=1500), whole, seeds=4, jobs=2)
    groups = []

    def start():
        process = start_run(tmp_path, "--jobs", jobs, "--seeds", "4", "--out", "cut")
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
    both = [start_run(tmp_path, "--jobs", "1", "--out", "out") for _ in range(2)]
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


def test_nothing_is_written_for_a_scenario_that_cannot_run(tmp_path):
    for wrong, settings, message in (
        (with_policy(tmp_path, "Rejects"), {}, r"study \[policies.x\]: not with this seed"),
        (parse(), {"jobs": 0}, "jobs must be -1 or a whole number of at least 1, got 0"),
        (parse(), {"seeds": 0}, "seeds must be a whole number of at least 1, got 0"),
        ("demo", {}, r"must be a Scenario \(see read_scenario\), got 'demo'"),
    ):
        with pytest.raises(InvalidInput, match=message):
            run_scenario(wrong, tmp_path / "out", **{"jobs": 1} | settings)
    assert not (tmp_path / "out").exists()


def test_every_run_has_its_own_versions(tmp_path):
    run_scenario(parse(), tmp_path, seeds=1, jobs=1)
    manifest = read_manifest(tmp_path)
    older = manifest | {"versions": manifest["versions"] | {"numpy": "1.0.0"}}
    write_checked(tmp_path / "manifest.json", older)
    results = run_scenario(parse(), tmp_path, seeds=2, jobs=1)
    assert read_manifest(tmp_path) == older | {"seeds": 2}, "versions of the first run stay"
    assert results.run("bsfl", 1).versions["numpy"] == np.__version__


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    pytest.importorskip("jax", reason="training needs the extra sim")
    return run_scenario(parse_training(), tmp_path_factory.mktemp("trained"), jobs=1)


def test_every_policy_trains_for_the_same_virtual_time(trained):
    for label in ("bsfl", "random"):
        for records in trained.records(label):
            assert records["clock_s"][-1] >= 400.0 > records["clock_s"][-2]
    n_bsfl, n_random = (np.mean([*map(len, trained.records(k))]) for k in ("bsfl", "random"))
    assert n_bsfl > n_random


def test_the_model_is_evaluated_every_minute_and_at_the_end(trained):
    records = trained.run("random", 0).records
    is_evaluated = ~np.isnan(records["test_loss"])
    expected = np.diff(records["clock_s"] // 60.0, prepend=-1.0) > 0
    expected[-1] = True
    assert 5 <= expected.sum() < len(records)
    assert is_evaluated.tolist() == expected.tolist()
    losses = records["test_loss"][is_evaluated]
    assert losses[-1] < 0.1 * losses[0], "it learns"


def test_only_clients_that_respond_in_time_train_and_policies_receive_their_losses():
    reports, cohorts = [], []

    class Recorder(UniformRandom):
        def observe(self, state, context, report):
            reports.append(report)

    class Spy:
        def __init__(self, task):
            self.task = task

        def __getattr__(self, name):
            return getattr(self.task, name)

        def train(self, params, clients, **more):
            cohorts.append(clients.tolist())
            return self.task.train(params, clients, **more)

    training = parse_training().training(0)
    training.task = Spy(training.task)
    clients = parse_training().simulated_clients(0)
    list(simulate(Recorder(), clients, cohort_size=10, rounds=30, training=training))
    assert any(np.any(report.outcome == 1) for report in reports), "some were late"
    for report, cohort in zip(reports, cohorts, strict=True):
        in_time = report.outcome == 0
        assert report.clients[in_time].tolist() == cohort
        assert (np.isnan(report.loss) == ~in_time).all()
        assert (report.samples[in_time] == 112).all(), "2,240 points for 20 clients"


def test_policies_that_need_losses_get_them_in_a_dry_run(tmp_path):
    policies = {"afl": {}, "oort": {}, "fedcs": {}}
    short = parse_training().changed(policies=policies, time_s=100.0)
    results = run_scenario(short, tmp_path, seeds=1, jobs=1)
    assert all(len(results.run(label, 0).records) for label in policies)


def test_a_run_that_diverges_reaches_no_target(tmp_path):
    results = run_scenario(parse_training(learning_rate=5.0), tmp_path, seeds=1, jobs=1)
    assert all(np.isinf(results.records(k)[0]["test_loss"][-1]) for k in ("bsfl", "random"))
    text = json.dumps(summarise(results).as_json(), allow_nan=False)
    assert json.loads(text)["policies"]["bsfl"]["reached_target"]["mean"] == 0.0


@pytest.mark.slow
def test_the_last_digits_do_not_depend_on_the_number_of_processes(tmp_path):
    learning = 'learning = { dataset = "fashion-mnist-small", batch_size = 20 }\n'
    text = SMALL.replace("rounds = 30", "rounds = 3").replace("seeds = 2", "seeds = 1")
    (tmp_path / "images.toml").write_text(learning + text)
    free = {k: v for k, v in os.environ.items() if k != XLA_THREADS}
    found = []
    for jobs, env in (("1", free | {XLA_THREADS: "1"}), ("1", free), ("2", free)):
        out = tmp_path / str(len(found))
        command = [sys.executable, "-m", "bsfl.cli", "run", "images.toml", "--jobs", jobs]
        subprocess.run([*command, "--out", str(out)], cwd=tmp_path, env=env, check=True)
        found.append(contents(out))
    assert len(found[0]) == 2
    assert found[1:] == [found[0]] * 2


def test_threads_and_compiled_programs_are_the_users_choice(monkeypatch, tmp_path):
    monkeypatch.setenv(XLA_THREADS, "3")
    assert xla_threads() == 3
    monkeypatch.delenv(XLA_THREADS)
    assert xla_threads() == 1
    assert os.environ[XLA_THREADS] == "1"
    for wrong in ("0", "-1", "all"):
        monkeypatch.setenv(XLA_THREADS, wrong)
        with pytest.raises(InvalidInput, match=f"PJRT_NPROC must be 1, 2, ...; got '{wrong}'"):
            run_scenario(parse(), tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    monkeypatch.setenv(XLA_PROGRAMS, "")
    keep_programs(1)
    assert os.environ[XLA_PROGRAMS] == ""
    monkeypatch.delenv(XLA_PROGRAMS)
    keep_programs(2)
    folder = Path(os.environ[XLA_PROGRAMS])
    assert (folder.parent.name, folder.name[-2:]) == ("programs", "-2")
