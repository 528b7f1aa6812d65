"""The command that recommends a policy from a log."""

import os
import signal
import subprocess
import sys
import time

import pytest

from bsfl import Scheduler

LOG = "client,latency_s,outcome,loss\n" + "a,3.0,ok,1\nb,4.0,ok,1\nc,9.0,ok,1\nd,60,timeout,\n" * 5


@pytest.fixture
def log(study):
    (study / "log.csv").write_text(LOG)
    return "log.csv"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--min-participation 1.5", "min_participation must be between 0 and 1, got 1.5"),
        ("--deadline -3", "deadline must be"),
        ("--deadline 0.001", "log.csv: no client responded within 0.001 s"),
        ("--cohort-size 4", "cohort_size must be below the 4 clients of the log, got 4"),
        ("--ids hex", "ids must be one of auto, text, int, got 'hex'"),
        ("--ids int", "ids must be whole numbers"),
        ("--policy oort", "oort cannot be evaluated on a log of latencies"),
        ("--policy pase", "unknown policy 'pase'; did you mean 'pace'?"),
        ("--client-column client --outcome-column client", "line 2: the outcome must be ok"),
        ("--client-column client --loss-column client", "line 2: loss must be a number"),
        ("--outcome x", "--outcome must be WORD=failed or the like, got 'x'"),
        ("--outcome x=late-ish", "outcome 'x' must be one of ok, timeout, failed, late"),
        ("--unit h", "unit must be one of"),
        ("--state log.csv", "log.csv exists already; choose another --state, or delete it"),
        ("--state no/state.bsfl", "--state: there is no folder no"),
    ],
)
def test_a_wrong_option_is_one_clear_line(bsfl, study, log, options, message):
    done = bsfl("advise", log, "--out", "out", *options.split())
    assert done.exit_code == 2
    assert message in done.output.splitlines()[-1]
    assert not (study / "out").exists(), "nothing was written"


def test_a_log_becomes_a_report_and_a_warm_start(bsfl, study, log):
    few = ["--cohort-size", "1", "--rounds", "8", "--seeds", "1", "--jobs", "1"]
    options = ["--policy", "random", "--state", "s.bsfl", "--out", "out"]
    done = bsfl("advise", log, *few, *options)
    assert done.exit_code == 0, done.output
    assert "20 rows of 4 clients: 15 responses within 60 s, 5 timeouts" in done.output
    assert "scheduler = Scheduler(UniformRandom(), cohort_size=1, " in done.output
    assert sorted(Scheduler.load(study / "s.bsfl").clients) == ["a", "b", "c", "d"]
    assert {"report.html", "report.md", "summary.json", "advice.png"} <= {
        path.name for path in (study / "out").iterdir()
    }


INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from bsfl.cli import main; main()"
)
"""The program, also where tests run in the background of a shell, which ignores Ctrl-C."""


@pytest.mark.slow
def test_ctrl_c_keeps_finished_runs_and_the_same_command_resumes(study, log):
    command = [sys.executable, "-c", INTERRUPTIBLE, "advise", log, "--cohort-size", "2"]
    command += ["--rounds", "1000", "--seeds", "2", "--jobs", "2", "--out", "out"]
    new_group = {"start_new_session": True, "stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
    run = subprocess.Popen(command, text=True, cwd=study, **new_group)
    until = time.monotonic() + 300
    while time.monotonic() < until and len([*study.glob("out/runs/**/*.run")]) < 15:
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to all processes
    _, errors = run.communicate(timeout=120)
    assert run.returncode == 130, errors
    assert "the same command resumes" in errors
    assert "1 of 4: policies" in errors, "progress without a terminal"
    assert "Traceback" not in errors
    before = {path: path.stat().st_mtime_ns for path in study.glob("out/runs/**/*.run")}
    done = subprocess.run(command, capture_output=True, cwd=study)
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before, "no run was repeated"
