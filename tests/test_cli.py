"""The command line as a user types it: help, output, files, mistakes, Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from bsfl.cli.app import app
from bsfl.policies import POLICIES
from bsfl.studies.paper import FIGURES, STUDIES, figure_scenario
from small_scenario import SMALL

CAPTURED = {"capture_output": True, "text": True}
runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})


def bsfl(*words):
    return runner.invoke(app, list(words))


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(SMALL)
    return tmp_path


def test_version_and_help():
    assert re.fullmatch(r"bsfl \d+\.\d+\.\d+\n", bsfl("--version").output)
    for command in ("policies", "scenarios", "run", "reproduce", "report", "leaderboard", "tune"):
        assert command in bsfl("--help").output
        assert bsfl(command, "--help").exit_code == 0
        assert "\\[" not in bsfl(command, "--help").output
    assert "A scenario file, or a name" in bsfl("run", "--help").output
    assert "One of radius, drift" in bsfl("ablation", "--help").output


def test_lists():
    listed = bsfl("policies").output
    assert all(re.search(rf"^{name} ", listed, re.MULTILINE) for name in POLICIES)
    listed = bsfl("scenarios").output
    assert all(re.search(rf"^{name} ", listed, re.MULTILINE) for name in FIGURES)


@pytest.mark.slow
def test_run_writes_everything_and_report_writes_it_again(study):
    result = bsfl("run", "study.toml", "--seeds", "2", "--jobs", "1", "--out", "out")
    assert result.exit_code == 0, result.output
    assert "K = 12, m = 3, 30 rounds, 2 seeds" in result.output
    assert re.search(r"plain .* 1\.00 ± 0\.00 ", result.output)
    for name in (
        "summary.json",
        "manifest.json",
        "regret.png",
        "regret.pdf",
        "time.png",
        "time.pdf",
    ):
        assert (study / "out" / name).stat().st_size > 300
    summary = json.loads((study / "out" / "summary.json").read_text())
    (study / "out" / "summary.json").unlink()
    assert bsfl("report", "out").exit_code == 0
    assert json.loads((study / "out" / "summary.json").read_text()) == summary


def test_every_figure_has_a_source():
    for name in FIGURES:
        scenario = figure_scenario(name, quick=True)
        assert (scenario is None) == (name in STUDIES)
        assert scenario is None or (scenario.name, scenario.seeds) == (
            name,
            1 if scenario.learning else 3,
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["annealing-graph", "generalization"])
def test_small_figures(study, name):
    result = bsfl("reproduce", name, "--out", "out")
    assert result.exit_code == 0, result.output
    assert (study / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (study / "out" / "summary.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "demoo"], "error: unknown scenario 'demoo'; did you mean 'demo'?"),
        (["run", "missing.toml"], "error: there is no scenario file missing.toml"),
        (["report", "."], "holds no results (there is no manifest.json)"),
        (["reproduce", "figure-9"], "error: unknown figure 'figure-9'; known are regret-iid"),
        (["run", "study.toml", "--seeds", "0"], "Invalid value for '--seeds'"),
    ],
)
def test_mistakes_give_one_line_and_exit_code_two(study, words, message):
    result = bsfl(*words)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("jobs", ["0", "-2"])
def test_jobs_are_processes(study, jobs):
    result = bsfl("run", "study.toml", "--jobs", jobs)
    assert result.exit_code == 2
    assert f"at least 1, or -1 for one per core, got {jobs}" in result.output


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(study):
    (study / "study.toml").write_text(SMALL.replace("rounds = 30", "rounds = 100000000"))
    # nohup has Ctrl-C ignored, and children would inherit that
    ignored_or_not = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "bsfl.cli", "run", "study.toml", "--jobs", "2", "--out", "out"],
        cwd=study,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    signal.signal(signal.SIGINT, ignored_or_not)
    try:
        deadline = time.monotonic() + 60
        while sum(path.stat().st_size > 0 for path in study.rglob("*.records")) < 2:
            assert time.monotonic() < deadline, "both processes are at work"
            time.sleep(0.01)
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], **CAPTURED)
        for worker in map(int, children.stdout.split()):
            os.kill(worker, signal.SIGINT)
        time.sleep(1.0)
        assert process.poll() is None, "workers leave Ctrl-C to their parent"
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 130
    assert "stopped; what is done is kept. To go on: bsfl run study.toml --jobs 2 --out out" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "extra"), [("typer", "cli"), ("joblib", "sim"), ("matplotlib", "plots")]
)
def test_a_missing_extra_names_the_pip_line(package, extra):
    code = f"import sys; sys.modules[{package!r}] = None; from bsfl.cli import main; main()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr == (
        f"error: this needs {package}, which is not installed; run: pip install 'bsfl[{extra}]'\n"
    )
