"""Policies of a user's own on the command line: their settings, trust, and what cannot run."""

import json
import re

import pytest

from bsfl.experiments import open_results

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

    patience: int = 1

    def init(self, n_clients):
        return Counts(np.zeros(n_clients, dtype=int))

    def select(self, state, context, rng):
        order = np.argsort(state.invitations[context.available], kind="stable")
        return np.sort(context.available[order[: context.n_invited]])

    def observe(self, state, context, report):
        state.invitations[report.invited] += 1
"""


@pytest.mark.slow
def test_a_policy_in_a_file_runs_beside_finished_runs_and_in_reports(bsfl, study):
    (study / "mine.py").write_text(OWN)
    words = ["run", "study.toml", "--out", "out", "--jobs", "2"]
    assert bsfl(*words).exit_code == 0
    played = {p: p.read_bytes() for p in study.rglob("*.run")}
    result = bsfl(*words, "--policy", "mine.py:LeastServed")
    assert result.exit_code == 0, result.output
    assert re.search(r"LeastServed .* 0\.93 ", result.output), "7 of 7.5 rounds"
    assert {p: p.read_bytes() for p in played} == played, "a folder gains policies"
    assert bsfl("report", "out").exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in (study / "out").rglob("*")}
    assert "summary.json are in page" in bsfl("report", "out", "--out", "page").output
    assert (study / "page" / "report.html").exists()
    assert {path: path.stat().st_mtime_ns for path in (study / "out").rglob("*")} == before
    assert "LeastServed" in (study / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--policy mine.py:Nobody", "mine.py has no 'Nobody'; did you mean"),
        ("--policy other.py:Rule", "there is no file"),
        ("--policy mine.py:", "policy 'mine.py:' names no class; write mine.py:Name"),
        ("--policy mine.py:np", "mine.py:np' must be a class or a function, got <module"),
        ("--policy mine:Rule", "'mine:Rule'; one in a file is mine.py:"),
        ("--policy mine.py", "'mine.py'; one in a file is mine.py:Name"),
        ("--policy pace,age", "unknown policy 'pace,age'; did you mean"),
        ("--policy oort", "[policies.oort]: this policy needs losses, which no client reports"),
        ("--set alpha=3", "as in LABEL.alpha=3, where LABEL is one of bsfl, plain"),
        ("--set bslf.alpha=3", "no policy is called 'bslf'; did you mean 'bsfl'?"),
        ("--set bsfl.alpa=3", "unknown key 'alpa'; did you mean 'alpha'?"),
        ("--set bsfl.alpha", "a setting must be key=value or policy.key=value"),
        ("--set bsfl.alpha=much", "must be a number or one of min-participation, max-gini, got"),
    ],
)
def test_what_cannot_run_is_rejected_before_anything_runs(bsfl, study, words, message):
    (study / "mine.py").write_text(OWN.replace("LeastServed", "Nobodies"))
    result = bsfl("run", "study.toml", *words.split())
    assert result.exit_code == 2
    assert message in result.output
    assert not (study / "results").exists()


def test_a_run_names_the_files_that_it_executes_and_those_from_elsewhere_need_trust(
    bsfl, study, run_study, tmp_path_factory
):
    other = tmp_path_factory.mktemp("other") / "theirs.py"
    for file in (study / "mine.py", other):
        file.write_text("print('ALARM')\n" + OWN)
    done = run_study("--csv", "--policy", "mine.py:LeastServed")
    said = f"executes {study / 'mine.py'}"
    assert said in done.stderr
    assert done.output.index(said) < done.output.index("ALARM")
    words = ["--csv", "--policy", f"{other}:LeastServed", "--out", "elsewhere"]
    rejected = bsfl("run", "study.toml", *words)
    assert rejected.exit_code == 2
    assert f"{other} would be executed and is not below the current folder" in rejected.output
    assert "ALARM" not in rejected.output
    assert f"executes {other}" in run_study(*words, "--trust").stderr
    again = bsfl("report", "elsewhere")
    assert again.exit_code == 0, again.output
    assert "ALARM" not in again.output


def test_settings_of_policies_on_the_command_line(study, run_study):
    (study / "mine.py").write_text(OWN)
    words = ["--policy", "mine.py:LeastServed", "--set", "patience=5", "--set", "bsfl.alpha=7.5"]
    done = run_study("--json", *words)
    assert set(json.loads(done.stdout)["policies"]) == {"bsfl", "plain", "LeastServed"}
    played = open_results(study / "results" / "study").scenario.policies
    assert played["LeastServed"].settings == {"patience": 5}
    assert played["bsfl"].settings["alpha"] == 7.5


def test_a_policy_in_a_file_is_described_as_a_run_executes_it(bsfl, study, tmp_path_factory):
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
