"""The command line as a user types it: help, output, files, mistakes, Ctrl-C."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import typer

from bsfl.cli.app import app
from bsfl.experiments import open_results
from bsfl.extras import EXTRA_OF, PACKAGES, pip_line
from bsfl.policies import POLICIES
from small_scenario import SMALL

CAPTURED = {"capture_output": True, "text": True}


def without(packages, *words, cwd=None):
    """Run bsfl in a process that lacks packages."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({packages!r}))\n"
        f"from bsfl.cli import main; sys.argv = ['bsfl', *{words!r}]; main()"
    )
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, **CAPTURED)


def test_the_version_needs_no_extra_and_the_package_can_be_run(bsfl):
    version = bsfl("--version").output
    assert re.fullmatch(r"bsfl \d+\.\d+\.\d+\n", version)
    assert without(["typer"], "--version").stdout == version
    words = [sys.executable, "-m", "bsfl", "--version"]
    assert subprocess.run(words, **CAPTURED).stdout == version


def commands(words=(), group=app):
    """Yield the words of every command."""
    found = typer.main.get_command(group) if words == () else group
    yield words
    for name, command in getattr(found, "commands", {}).items():
        yield from commands((*words, name), command)


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_help_is_whole_at_80_columns_and_unknown_options_are_named(bsfl, words):
    shown = bsfl(*words, "--help", COLUMNS="80")
    assert shown.exit_code == 0
    assert "\\[" not in shown.output
    assert not re.search(r"\w\.\.\.$", shown.output, re.MULTILINE), "a line is cut"
    assert max(map(len, shown.output.splitlines())) <= 80
    result = bsfl(*words, "--no-such-option")
    assert result.exit_code == 2
    assert "--no-such-option" in result.output


def test_policies_are_listed_with_what_they_need(bsfl):
    listed = bsfl("policies").output
    assert all(re.search(rf"^{name} ", listed, re.MULTILINE) for name in POLICIES)
    flat = " ".join(listed.split())  # settings, with a =, follow
    assert re.search(r" oort [^=]* Needs losses and samples\.", flat)
    assert re.search(r" tifl [^=]* Needs losses\.", flat)
    assert re.search(r" weighted [^=]* Needs samples\.", flat)
    assert not re.search(r" (bsfl|pace) [^=]* Needs", flat)


def test_one_policy_in_full(bsfl):
    shown = bsfl("policies", "oort")
    assert shown.exit_code == 0
    assert "penalty: Exponent for clients slower than T." in shown.output
    assert "penalty=2.0" in shown.output
    assert shown.output.endswith("Needs losses and samples.\n")


@pytest.mark.slow
def test_run_writes_everything_and_report_writes_it_again(bsfl, study):
    result = bsfl("run", "study.toml", "--seeds", "2", "--jobs", "1", "--out", "out")
    assert result.exit_code == 0, result.output
    assert "K = 12, m = 3, 30 rounds, 2 seeds" in result.output
    assert re.search(r"plain .* 1\.00\s±\s0\.00 ", result.output)
    for name in ("manifest.json", "regret.png", "regret.pdf", "time.png", "time.pdf"):
        assert (study / "out" / name).stat().st_size > 300
    summary = (study / "out" / "summary.json").read_text()
    (study / "out" / "summary.json").unlink()
    assert bsfl("report", "out").exit_code == 0
    assert json.loads((study / "out" / "summary.json").read_text()) == json.loads(summary)


def test_rows_for_another_program(bsfl, study):
    done = bsfl("run", "study.toml", "--seeds", "2", "--jobs", "1", "--csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["policy"], row["seed"]) for row in rows] == [
        (label, seed) for label in ("bsfl", "plain") for seed in "01"
    ]
    assert all(float(row["mean_round_s"]) > 0 for row in rows)
    assert not (study / "results" / "study" / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "folder", "column", "value"),
    [(("--rounds", 3), "3-rounds", "round", 3), (("--time", 40), "40-s", "clock_s", 40.0)],
)
def test_another_length_on_the_command_line(run_study, study, words, folder, column, value):
    done = run_study("--csv", *words)
    (records,) = open_results(str(study / "results" / f"study-{folder}")).records("plain")
    *_, before, last = records[column]
    assert before < value <= last
    assert ("regret" in done.stdout) == (column == "round"), "which needs a fixed number of rounds"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run demoo", "error: unknown scenario 'demoo'; did you mean 'demo'?"),
        ("run missing.toml", "error: there is no scenario file missing.toml"),
        ("run .", "error: . is a folder; name a scenario file, such as my.toml"),
        ("run study.toml --seeds 0", "Invalid value for '--seeds'"),
        ("run study.toml --jobs 0", "at least 1, or -1 for one per core, got 0"),
        ("run study.toml --jobs -2", "at least 1, or -1 for one per core, got -2"),
        ("run study.toml --out study.toml", "study.toml is a file; a folder is needed"),
        ("run study.toml --csv --json", "choose one of --csv and --json"),
        ("run study.toml --time 0", "time_s must be a finite number above 0, got 0"),
        ("policies pacr", "unknown policy 'pacr'; did you mean 'pace'?"),
        ("report .", "holds no results (there is no manifest.json)"),
        ("reproduce figure-9", "error: unknown figure 'figure-9'; known are regret-iid"),
        ("ablation drift --out study.toml", "study.toml is a file; a folder is needed"),
        ("data list --data-dir study.toml", "study.toml is a file; a folder is needed"),
        ("inspect study.toml", "is not a saved scheduler"),
        ("inspect gone.bsfl", "gone.bsfl: No such file or directory\n"),
        ("scenarios copy demo gone/x.toml", "gone/x.toml: No such file or directory\n"),
        ("scenarios show demmo", "did you mean 'demo'?"),
        ("watch .", "error: . is not a journal"),
        ("watch study.toml --port 70000", "Invalid value for '--port'"),
    ],
)
def test_mistakes_give_one_line_and_exit_code_two(bsfl, study, words, message):
    result = bsfl(*words.split())
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
    assert not (study / "results").exists()


ENDLESS = """
import os, time
from pathlib import Path
from bsfl import UniformRandom

class Endless(UniformRandom):
    def observe(self, state, context, report):
        if context.round > 1:  # a dry run has one
            Path(f"{os.getpid()}.begun").touch()
            time.sleep(1000)
"""


@pytest.mark.slow
def test_ctrl_c_says_how_to_resume(study):
    endless = 'policy = "random"\n\n[policies.endless]\npolicy = "endless.py:Endless"'
    (study / "study.toml").write_text(SMALL.replace('policy = "random"', endless))
    (study / "endless.py").write_text(ENDLESS)
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
        while len(list(study.rglob("*.run"))) < 2 or len(list(study.rglob("*.begun"))) < 2:
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
    n_runs = len(list(study.rglob("*.run")))
    line = f"interrupted: {n_runs} of 6 runs are in {study / 'out'}; the same command resumes"
    assert said.splitlines()[-1] == line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("packages", "extra", "words"),
    [
        ("joblib", "sim", "run phones"),
        ("matplotlib", "plots", "reproduce generalization"),
        ("plotly", "plots", "report ."),
        ("typer joblib matplotlib", "cli", "policies"),
        ("typer joblib matplotlib", "cli,sim,plots", "run demo"),
        ("joblib matplotlib", "sim,plots", "run demo"),
        ("joblib matplotlib", "sim", "run demo --csv"),
    ],
)
def test_missing_extras_are_named_at_once_by_the_command_that_needs_them(
    packages, extra, words, tmp_path
):
    missing = packages.split()
    done = without(missing, *words.split(), cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert not list(tmp_path.iterdir()), "nothing was begun"
    said = f"error: this needs {missing[0]}, which is not installed; run: {pip_line(extra)}\n"
    assert done.stderr == said
    assert "pyproject.toml" in os.listdir(re.search(r"-e '(.*)\[", said)[1]), "works in a clone"


@pytest.mark.slow
@pytest.mark.parametrize("words", ["policies", "scenarios", "advise --help"])
def test_the_command_line_alone_is_enough_to_look_around(words):
    others = [package for package in EXTRA_OF if package not in PACKAGES["cli"]]
    done = without(others, *words.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout) > 10
