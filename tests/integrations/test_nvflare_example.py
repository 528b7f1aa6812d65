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


def test_slow_sites_train_together(tmp_path):
    state = tmp_path / "scheduler.bsfl"
    job = subprocess.Popen(
        [sys.executable, str(JOB), str(tmp_path / "workspace"), str(state)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    )
    try:
        log, _ = job.communicate(timeout=300.0)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    cohorts = [
        set(re.findall(r"site-\d", c)) for c in re.findall(r"bsfl: round \d+: (\[.*?\])", log)
    ]
    assert len(cohorts) == 12, log[-3000:]
    alike = [cohort in ({"site-1", "site-3"}, {"site-2", "site-4"}) for cohort in cohorts[-4:]]
    assert sum(alike) >= 3, cohorts
    assert Scheduler.load(state).t == 12
