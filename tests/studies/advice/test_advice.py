"""From a log to a recommendation: what is written, a warm start, Ctrl-C, mistakes."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from bsfl import Pace, Scheduler
from bsfl.cli.app import app
from bsfl.errors import InvalidInput
from bsfl.studies.advice import Advice, read_log
from bsfl.studies.advice.search import read_trials
from bsfl.studies.advice.warm_start import warm_start
from bsfl.studies.study import Effort

K, M = 24, 3


def test_a_warm_start_knows_what_the_log_knows(log_file, tmp_path):
    log = read_log(log_file)
    warm_start(log, Pace(tau_max=60.0), cohort_size=M, over_selection=1.3).save(tmp_path / "s.bsfl")
    scheduler = Scheduler.load(tmp_path / "s.bsfl")
    rows = {row["client"]: row for row in scheduler.table()}
    assert len(rows) == K
    for k in range(K - 1):
        own, row = log.latency_s[log.client == k], rows[f"<i>c{k}"]
        assert row["latency_s"] == pytest.approx(np.exp(np.log(own).mean()), rel=1e-3)
        assert row["participations"] == 6
        assert row["participation_ratio"] == pytest.approx(1.0), "no client has a deficit"
    assert rows[f"<i>c{K - 1}"]["timeouts"] == 6
    cohort = scheduler.select(available=log.clients)
    assert len(cohort) == 4
    slowest = max(rows.values(), key=lambda row: row["latency_s"] or 0.0)["client"]
    assert slowest not in cohort, "it starts with the fast ones"


@pytest.fixture(scope="module")
def advised(log_file, tmp_path_factory):
    """Return the folder, the first report and a function that asks for it again."""
    folder = tmp_path_factory.mktemp("advice")
    size = {"cohort_size": M, "rounds": 40, "policies": ("pace", "bsfl", "random")}
    advice = Advice(log=log_file, min_participation=0.5, **size)

    def play():
        return advice.play(folder, Effort(jobs=1, seeds=2))

    report = play()
    report.write(folder)
    return folder, report, play


@pytest.mark.slow
def test_what_is_written(advised):
    folder, report, _ = advised
    found = json.loads((folder / "summary.json").read_text())
    best = found["recommended"]
    assert found["n_clients"] == K
    assert best["saved"]["mean"] > 0.0
    assert len(found["recommended_by_floor"]) == 101
    assert found["trials"][found["recommended_by_floor"][50]]["setting"] == best["setting"]
    assert best["paste"] == report.code
    text = " ".join(report.headline)
    assert "1 of 24 clients never responded within 60 s" in text
    assert f"saves {100 * best['saved']['mean']:.0f} % (" in report.headline[0]
    page = (folder / "report.html").read_text()
    assert "<i>" not in page
    assert 'id="floor"' in page


@pytest.mark.slow
def test_a_warm_start_that_was_used_is_kept(advised):
    folder, _, play = advised
    scheduler = Scheduler.load(folder / "warm-start.bsfl")
    assert scheduler.cohort_size == M
    scheduler.observe(dict.fromkeys(scheduler.select(), 3.0))
    scheduler.save(folder / "warm-start.bsfl")
    before = (folder / "warm-start.bsfl").read_bytes()
    again = play()
    assert (folder / "warm-start.bsfl").read_bytes() == before
    assert "was not overwritten" in again.headline[-1]


INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from bsfl.cli import main; main()"
)
"""The program, also where tests run in the background of a shell, which ignores Ctrl-C."""


@pytest.mark.slow
def test_ctrl_c_keeps_finished_work_and_the_same_command_resumes(log_file, tmp_path):
    command = [sys.executable, "-c", INTERRUPTIBLE, "advise", str(log_file), "--cohort-size", "3"]
    command += ["--rounds", "400", "--seeds", "2", "--jobs", "2", "--policy", "pace"]
    command += ["--policy", "random", "--out", str(tmp_path / "out")]
    played = tmp_path / "out" / "trials.jsonl"
    new_group = {"start_new_session": True, "stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
    run = subprocess.Popen(command, text=True, **new_group)
    until = time.monotonic() + 300
    while time.monotonic() < until and not (played.exists() and len(read_trials(played)) >= 3):
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to all processes
    _, errors = run.communicate(timeout=120)
    assert run.returncode == 130, errors
    assert "finished work is kept. To resume: bsfl advise" in errors
    assert "Traceback" not in errors
    before = read_trials(played)
    assert len(before) >= 3
    done = subprocess.run(command, capture_output=True)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line)["key"] for line in played.read_text().splitlines()]
    assert len(lines) == len(set(lines)), "no run was repeated"
    assert lines[: len(before)] == list(before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--min-participation 1.5", "min_participation must be between 0 and 1, got 1.5"),
        ("--deadline -3", "deadline must be"),
        ("--deadline 0.001", "no client responded within 0.001 s"),
        ("--cohort-size 24", "cohort_size must be below the 24 clients of the log, got 24"),
        ("--ids hex", "ids must be one of auto, text, int, got 'hex'"),
        ("--ids int", "ids must be whole numbers"),
        ("--policy oort", "oort cannot be evaluated on a log of latencies"),
        ("--policy pase", "unknown policy 'pase'; did you mean 'pace'?"),
        ("--client-column client --outcome-column client", "line 2: the outcome must be ok"),
        ("--client-column client --time-column client", "line 2: the time must be"),
        ("--client-column client --loss-column client", "line 2: loss must be a number"),
    ],
)
def test_a_wrong_option_is_one_clear_line(log_file, tmp_path, options, message):
    words = ["advise", str(log_file), "--out", str(tmp_path / "o"), *options.split()]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert message in done.output
    assert not (tmp_path / "o").exists(), "nothing was written"


def test_the_cohort_size_comes_from_the_log_and_leaves_a_choice(tmp_path):
    file = tmp_path / "log.csv"
    file.write_text("client,latency_s\na,1\n")
    with pytest.raises(InvalidInput, match="has one client, so there is nothing to choose"):
        Advice(log=file).play(tmp_path, Effort(jobs=1))
    file.write_text("client,latency_s\na,1\nb,2\n")
    log = read_log(file)
    assert Advice(log=file).first_plan(log).cohort_size == 1
    with pytest.raises(InvalidInput, match="below the 2 clients .* got 5 from the journal"):
        Advice(log=file).first_plan(replace(log, cohort_size=5))


def test_what_was_read_is_logged_first(log_file, tmp_path):
    said = []

    def stop(title, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Advice(log=log_file).play(tmp_path, Effort(jobs=1, say=said.append, steps=stop))
    assert said == [
        f"{log_file}: 144 rows of 24 clients: 138 responses within 60 s, 6 timeouts or late "
        "responses, 0 failures; client from 'client', latency from 'latency_s' in s, outcome from "
        "'outcome', loss from 'loss'"
    ]
