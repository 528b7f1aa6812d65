"""The NVFlare example, in NVFlare's own simulator."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bsfl import Scheduler

JOB = Path(__file__).parents[2] / "examples" / "nvflare-app" / "job.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("nvflare") is None, reason="the example needs nvflare"
    ),
]


def play(workspace, state):
    """Run the example's job; return its log."""
    job = subprocess.Popen(
        [sys.executable, str(JOB), str(workspace), str(state)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=state.parent,
        start_new_session=True,
    )
    try:
        log, _ = job.communicate(timeout=300.0)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    return log


def cohorts_in(log):
    found = re.findall(r"bsfl: round \d+: (\[.*?\])", log)
    return [set(re.findall(r"site-\d", cohort)) for cohort in found]


def test_slow_sites_train_together_also_in_the_next_job(tmp_path):
    state = tmp_path / "scheduler.bsfl"
    log = play(tmp_path / "first", state)
    cohorts = cohorts_in(log)
    assert len(cohorts) == 12, log[-3000:]
    alike = [cohort in ({"site-1", "site-3"}, {"site-2", "site-4"}) for cohort in cohorts[-4:]]
    assert sum(alike) >= 3, cohorts
    assert Scheduler.load(state).round == 12

    log = play(tmp_path / "second", state)
    assert f"{state} resumes after round 12" in log, log[-3000:]
    assert cohorts_in(log)[0] in ({"site-1", "site-3"}, {"site-2", "site-4"})
    assert Scheduler.load(state).round == 24
