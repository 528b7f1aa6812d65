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
from typer.testing import CliRunner

from bsfl.cli.app import app
from bsfl.experiments import open_results, shipped_scenarios
from bsfl.extras import EXTRA_OF, PACKAGES, pip_line
from bsfl.policies import POLICIES
from bsfl.studies import FIGURES, PAPER_SCENARIOS, STUDIES
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
    for command in ("policies", "scenarios", "run", "reproduce", "report", "leaderboard", "advise"):
        assert command in bsfl("--help").output
        assert bsfl(command, "--help").exit_code == 0
        assert "\\[" not in bsfl(command, "--help").output
    assert "A scenario file, or a name" in bsfl("run", "--help").output
    assert "One of rounds, malicious-clients, confidence-width" in bsfl("ablation", "--help").output


def test_the_version_needs_no_extra():
    hidden = "import sys; sys.modules['typer'] = None; sys.argv = ['bsfl', '--version']"
    code = f"{hidden}; from bsfl.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], **CAPTURED)
    assert re.fullmatch(r"bsfl \d+\.\d+\.\d+\n", done.stdout), done.stderr


def test_one_policy_in_full():
    shown = bsfl("policies", "oort")
    assert shown.exit_code == 0
    assert "penalty: Exponent for clients slower than T." in shown.output
    assert "penalty=2.0" in shown.output
    assert shown.output.endswith("Needs losses and samples.\n")
    unknown = bsfl("policies", "pacr")
    assert unknown.exit_code == 2
    assert "unknown policy 'pacr'; did you mean 'pace'?" in unknown.output


def commands(words=(), group=app):
    """Yield the words of every command."""
    found = typer.main.get_command(group) if words == () else group
    yield words
    for name, command in getattr(found, "commands", {}).items():
        yield from commands((*words, name), command)


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_help_is_whole_at_80_columns(words):
    shown = runner.invoke(app, [*words, "--help"], env={"COLUMNS": "80"}).output
    assert not re.search(r"\w\.\.\.$", shown, re.MULTILINE), "a line is cut"
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_an_option_that_a_command_does_not_have_is_named(words):
    result = bsfl(*words, "--no-such-option")
    assert result.exit_code == 2
    assert "--no-such-option" in result.output


def test_the_package_can_be_run():
    words = [sys.executable, "-m", "bsfl", "--version"]
    assert subprocess.run(words, **CAPTURED).stdout == bsfl("--version").output


def test_lists():
    listed = bsfl("policies").output
    assert all(re.search(rf"^{name} ", listed, re.MULTILINE) for name in POLICIES)
    flat = " ".join(listed.split())  # settings, with a =, follow
    assert re.search(r" oort [^=]* Needs losses and samples\.", flat)
    assert re.search(r" tifl [^=]* Needs losses\.", flat)
    assert re.search(r" weighted [^=]* Needs samples\.", flat)
    assert not re.search(r" (bsfl|pace) [^=]* Needs", flat)
    listed = bsfl("scenarios").output
    assert bsfl("scenarios", "list").output == listed
    assert bsfl("data").output == bsfl("data", "list").output != ""
    assert all(re.search(rf"^{name} ", listed, re.MULTILINE) for name in PAPER_SCENARIOS)
    assert f"bsfl reproduce: {', '.join((*PAPER_SCENARIOS, *FIGURES))}" in listed


@pytest.mark.slow
def test_run_writes_everything_and_report_writes_it_again(study):
    result = bsfl("run", "study.toml", "--seeds", "2", "--jobs", "1", "--out", "out")
    assert result.exit_code == 0, result.output
    assert "K = 12, m = 3, 30 rounds, 2 seeds" in result.output
    assert re.search(r"plain .* 1\.00\s±\s0\.00 ", result.output)
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
    assert set(FIGURES) < set(STUDIES)
    for name in PAPER_SCENARIOS:
        scenario = STUDIES.make("scenario", name=name).scenario(quick=True)
        assert (scenario.name, scenario.seeds) == (name, 1 if scenario.learning else 3)


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
        (["run", "."], "error: . is a folder; name a scenario file, such as my.toml"),
        (["data", "list", "--data-dir", "study.toml"], "study.toml is a file; a folder is needed"),
        (["report", "."], "holds no results (there is no manifest.json)"),
        (["reproduce", "figure-9"], "error: unknown figure 'figure-9'; known are regret-iid"),
        (["run", "study.toml", "--seeds", "0"], "Invalid value for '--seeds'"),
        (["run", "study.toml", "--policy", "mine:Rule"], "'mine:Rule'; one in a file is mine.py:"),
        (["run", "study.toml", "--policy", "mine.py"], "'mine.py'; one in a file is mine.py:Name"),
        (["run", "study.toml", "--policy", "pace,age"], "unknown policy 'pace,age'; did you mean"),
        (["inspect", "gone.bsfl"], "gone.bsfl: No such file or directory\n"),
        (["scenarios", "copy", "demo", "gone/x.toml"], "gone/x.toml: No such file or directory\n"),
        (["run", "study.toml", "--out", "study.toml"], "study.toml is a file; a folder is needed"),
        (["ablation", "drift", "--out", "study.toml"], "study.toml is a file; a folder is needed"),
        (["watch", "."], "error: . is not a journal"),
        (["watch", "study.toml", "--port", "70000"], "Invalid value for '--port'"),
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
    folder = study / "out"
    line = f"interrupted: {n_runs} of 6 runs are in {folder}; the same command resumes"
    assert said.splitlines()[-1] == line


def without(packages, *words, cwd=None):
    """Run bsfl in a process that lacks packages."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({packages!r}))\n"
        f"from bsfl.cli import main; sys.argv = ['bsfl', *{words!r}]; main()"
    )
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, **CAPTURED)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("packages", "extra", "words"),
    [
        (["typer"], "cli", ["policies"]),
        (["joblib"], "sim", ["run", "phones"]),
        (["matplotlib"], "plots", ["reproduce", "generalization"]),
        (["plotly"], "plots", ["report", "."]),
        (["typer", "joblib", "matplotlib"], "cli", ["policies"]),
        (["typer", "joblib", "matplotlib"], "cli,sim,plots", ["run", "demo"]),
        (["joblib", "matplotlib"], "sim,plots", ["run", "demo"]),
        (["joblib", "matplotlib"], "sim", ["run", "demo", "--csv"]),
        (["joblib", "plotly"], "sim,plots", ["reproduce", "generalization"]),
    ],
)
def test_missing_extras_are_asked_for_at_once_by_the_command_that_needs_them(
    packages, extra, words, tmp_path
):
    done = without(packages, *words, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert not list(tmp_path.iterdir()), "nothing was begun"
    said = f"error: this needs {packages[0]}, which is not installed; run: {pip_line(extra)}\n"
    assert done.stderr == said
    assert "pyproject.toml" in os.listdir(re.search(r"-e '(.*)\[", said)[1]), "works in a clone"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["--version"], ["policies"], ["scenarios"], ["advise", "--help"]]
)
def test_the_command_line_alone_is_enough_to_look_around(words):
    others = [package for package in EXTRA_OF if package not in PACKAGES["cli"]]
    done = without(others, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout) > 10


OWN = """
from dataclasses import dataclass
import numpy as np
from bsfl import Policy

@dataclass
class Counts:
    invitations: np.ndarray

@dataclass(frozen=True)
class LeastServed(Policy):
    \"\"\"The clients invited least so far.\"\"\"

    def init(self, n_clients):
        return Counts(np.zeros(n_clients, dtype=int))

    def select(self, state, context, rng):
        order = np.argsort(state.invitations[context.available], kind="stable")
        return np.sort(context.available[order[: context.n_invited]])

    def observe(self, state, context, report):
        state.invitations[report.invited] += 1
"""


@pytest.mark.slow
def test_a_policy_in_a_file_plays_reports_and_resumes(study):
    (study / "mine.py").write_text(OWN)
    words = ["run", "study.toml", "--out", "out", "--jobs", "2"]
    result = bsfl(*words)
    assert result.exit_code == 0, result.output
    played = {p: p.read_bytes() for p in study.rglob("*.run")}
    words += ["--policy", "mine.py:LeastServed"]
    result = bsfl(*words)
    assert result.exit_code == 0, result.output
    assert re.search(r"LeastServed .* 0\.93 ", result.output), "7 of 7.5 rounds"
    assert "LeastServed" in (study / "out" / "report.html").read_text()
    assert {p: p.read_bytes() for p in played} == played, "a folder gains policies"
    (own, *_) = sorted((study / "out" / "runs" / "LeastServed").glob("*.run"))
    whole = open_results(study / "out").run("LeastServed", 0).records.tobytes()
    own.unlink()
    assert bsfl(*words).exit_code == 0
    assert own.exists()
    assert open_results(study / "out").run("LeastServed", 0).records.tobytes() == whole
    assert bsfl("report", "out").exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in (study / "out").rglob("*")}
    assert "summary.json are in page" in bsfl("report", "out", "--out", "page").output
    assert (study / "page" / "report.html").exists()
    assert {path: path.stat().st_mtime_ns for path in (study / "out").rglob("*")} == before


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("mine.py:Nobody", "mine.py has no 'Nobody'; did you mean"),
        ("other.py:Rule", "there is no file"),
        ("mine.py:", "policy 'mine.py:' names no class; write mine.py:Name"),
        ("mine.py:np", "policy '{folder}/mine.py:np' must be a class or a function, got <module"),
        ("bsfll", "unknown policy 'bsfll'; did you mean 'bsfl'?"),
        ("oort", "[policies.oort]: this policy needs losses, which no client reports"),
    ],
)
def test_a_policy_that_cannot_play_is_refused_before_anything_runs(study, policy, message):
    (study / "mine.py").write_text(OWN.replace("LeastServed", "Nobodies"))
    result = bsfl("run", "study.toml", "--policy", policy, "--out", "out")
    assert result.exit_code == 2
    assert message.format(folder=study) in result.output
    assert not (study / "out").exists()


def test_a_run_names_the_files_that_it_executes_and_asks_about_those_from_elsewhere(
    study, tmp_path_factory
):
    other = tmp_path_factory.mktemp("other") / "theirs.py"
    for file in (study / "mine.py", other):
        file.write_text("print('ALARM')\n" + OWN)
    words = ["run", "study.toml", "--jobs", "1", "--seeds", "1", "--csv", "--policy"]
    done = runner.invoke(app, [*words, "mine.py:LeastServed"])
    assert done.exit_code == 0, done.output
    said = f"executes {study / 'mine.py'}"
    assert said in done.stderr
    assert done.output.index(said) < done.output.index("ALARM")
    words += [f"{other}:LeastServed", "--out", "elsewhere"]
    refused = runner.invoke(app, words)
    assert refused.exit_code == 2
    assert f"{other} would be executed and is not below the current folder" in refused.output
    assert "ALARM" not in refused.output
    trusted = runner.invoke(app, [*words, "--trust"])
    assert trusted.exit_code == 0, trusted.output
    assert f"executes {other}" in trusted.stderr
    again = runner.invoke(app, ["report", "elsewhere"])
    assert again.exit_code == 0, again.output
    assert "ALARM" not in again.output


def test_a_policy_in_a_file_is_described_as_a_run_executes_it(study, tmp_path_factory):
    other = tmp_path_factory.mktemp("other") / "theirs.py"
    for file in (study / "mine.py", other):
        file.write_text("print('ALARM')\n" + OWN)
    done = bsfl("policies", "mine.py:LeastServed")
    assert done.exit_code == 0, done.output
    assert f"executes {study / 'mine.py'}" in done.output
    rejected = bsfl("policies", f"{other}:LeastServed")
    assert rejected.exit_code == 2
    assert f"{other} would be executed and is not below the current folder" in rejected.output
    assert "ALARM" not in rejected.output
    assert bsfl("policies", f"{other}:LeastServed", "--trust").exit_code == 0


def test_settings_of_policies_on_the_command_line(study):
    (study / "mine.py").write_text(OWN.replace('far."""', 'far."""\n\n    patience: int = 1\n'))
    words = ["run", "study.toml", "--jobs", "1", "--seeds", "1", "--json"]
    words += ["--policy", "mine.py:LeastServed", "--set", "patience=5", "--set", "bsfl.alpha=7.5"]
    done = runner.invoke(app, words)
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.stdout)["policies"]) == {"bsfl", "plain", "LeastServed"}
    played = open_results(study / "results" / "study").scenario.policies
    assert played["LeastServed"].settings == {"patience": 5}
    assert played["bsfl"].settings["alpha"] == 7.5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--set", "alpha=3"],
            "say whose setting it is, as in LABEL.alpha=3, where LABEL is one of bsfl, plain",
        ),
        (["--set", "bslf.alpha=3"], "no policy is called 'bslf'; did you mean 'bsfl'?"),
        (["--set", "bsfl.alpa=3"], "unknown key 'alpa'; did you mean 'alpha'?"),
        (["--set", "bsfl.alpha"], "a setting must be key=value or policy.key=value"),
        (
            ["--set", "bsfl.alpha=much"],
            "must be a number or one of min-participation, max-gini, got 'much'",
        ),
        (["--csv", "--json"], "choose one of --csv and --json"),
        (["--time", "0"], "time_s must be a finite number above 0, got 0"),
    ],
)
def test_settings_that_do_not_fit_are_named(study, words, message):
    done = bsfl("run", "study.toml", *words)
    assert done.exit_code == 2
    assert message in done.output
    assert not (study / "results").exists()


def test_another_length_on_the_command_line(study):
    for words, key, value in (["--rounds", "3"], "round", 3), (["--time", "40"], "clock_s", 40.0):
        asked = ["run", "study.toml", "--seeds", "1", "--jobs", "1", "--csv"]
        done = runner.invoke(app, [*asked, *words])
        assert done.exit_code == 0, done.output
        folder = {"round": "study-3-rounds", "clock_s": "study-40-s"}[key]
        (records,) = open_results(str(study / "results" / folder)).records("plain")
        *_, before, last = records[key]
        assert before < value <= last
        assert ("regret" in done.stdout) == (key == "round"), "which needs a fixed number of rounds"


def test_what_another_command_wrote_is_not_replaced(study):
    (study / "log.csv").write_text("client,latency_s\n" + "a,3.0\nb,4.0\nc,5.0\n" * 5)
    advise = ["advise", "log.csv", "--cohort-size", "1", "--rounds", "5", "--seeds", "1"]
    run = ["run", "study.toml", "--seeds", "1", "--jobs", "1"]
    assert bsfl(*run, "--out", "of-run").exit_code == 0
    assert bsfl(*advise, "--policy", "random", "--jobs", "1", "--out", "of-advise").exit_code == 0
    for words, folder in (advise, "of-run"), (run, "of-advise"):
        before = {p: p.read_bytes() for p in (study / folder).rglob("*") if p.is_file()}
        refused = bsfl(*words, "--out", folder)
        assert refused.exit_code == 2
        assert f"{folder} holds what another command wrote; choose another --out" in refused.output
        assert {p: p.read_bytes() for p in before} == before


def test_rows_for_another_program(study):
    done = runner.invoke(app, ["run", "study.toml", "--seeds", "2", "--jobs", "1", "--csv"])
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["policy"], row["seed"]) for row in rows] == [
        (label, seed) for label in ("bsfl", "plain") for seed in "01"
    ]
    assert all(float(row["mean_round_s"]) > 0 for row in rows)
    assert not (study / "results" / "study" / "report.html").exists()


def test_scenarios_are_shown_and_copied(study):
    shown = bsfl("scenarios", "show", "demo")
    assert shown.output == shipped_scenarios()["demo"].read_text()
    assert "bsfl run demo.toml" in bsfl("scenarios", "copy", "demo").output
    assert (study / "demo.toml").read_text() == shown.output
    again = bsfl("scenarios", "copy", "demo")
    assert again.exit_code == 2
    assert "demo.toml is there already; nothing was written" in again.output
    assert "did you mean 'demo'?" in bsfl("scenarios", "show", "demmo").output
    unnamed = bsfl("scenarios", "copy", "demo", "demo")
    assert "a scenario file must end in .toml, got demo" in unnamed.output
    assert not (study / "demo").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "name", "file"),
    [
        ("policy", "LeastServed", "least_served.py"),
        ("scenario", "my-fleet", "my-fleet.toml"),
        ("task", "MyTask", "my_task.py"),
    ],
)
def test_a_start_of_ones_own_passes_its_test(study, what, name, file):
    done = bsfl("new", what, name)
    assert done.exit_code == 0, done.output
    assert (study / file).exists()
    (test,) = study.glob("test_*.py")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test.name]
    run = subprocess.run(words, cwd=study, **CAPTURED)
    assert run.returncode == 0, run.stdout
    again = bsfl("new", what, name)
    assert again.exit_code == 2
    assert f"{file} and {test.name} are there already; nothing was written" in again.output


def test_a_start_elsewhere_says_how_to_try_it_from_here(study):
    said = bsfl("new", "policy", "Good", "--folder", "there").output.splitlines()
    assert said == [
        "wrote there/good.py and there/test_good.py",
        "try it: bsfl run phones --policy there/good.py:Good",
        "test it: python -m pytest there/test_good.py",
    ]


def test_a_start_says_what_is_wrong(study):
    assert "cannot begin a 'polcy'; did you mean 'policy'?" in bsfl("new", "polcy").output
    for name in ("a/b", "3x"):
        said = bsfl("new", "policy", name).output
        assert f"must be letters and digits, the first a letter, got {name!r}" in said
    assert "must not be a word of Python's own, got 'class'" in bsfl("new", "task", "class").output
    said = bsfl("new", "policy", "Random").output
    assert "random.py would hide the module random from Python" in said
    assert "such as MyRandom; nothing was written" in said
    assert [path.name for path in study.iterdir()] == ["study.toml"]


@pytest.mark.slow
def test_a_task_of_ones_own_plays_in_a_scenario(study):
    assert bsfl("new", "task", "MyTask").exit_code == 0
    (study / "study.toml").write_text(f'{SMALL}\n[learning]\ntask = "my_task.py:MyTask"\n')
    done = runner.invoke(app, ["run", "study.toml", "--seeds", "1", "--jobs", "1", "--json"])
    assert json.loads(done.stdout)["target"]["column"] == "test_loss", done.output
