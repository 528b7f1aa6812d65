"""The example differs from plain Flower by an import and one line, and a missing extra is named."""

import difflib
import subprocess
import sys
from pathlib import Path

from bsfl.extras import pip_line

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower-app" / "flower_app"


def test_the_difference_is_an_import_and_a_line():
    plain, ours = (
        (EXAMPLE / name).read_text().splitlines() for name in ("server_plain.py", "server_app.py")
    )
    changes = [line for line in difflib.ndiff(plain, ours) if line[0] in "+-?"]
    assert changes == [
        "+ from bsfl.integrations.flower import Scheduler, Selected, make_policy",
        '+     strategy = Selected(strategy, Scheduler(make_policy(config["selection"]), cohort_size=m))',
    ]


def test_without_flower_the_pip_line_is_named():
    code = "import sys; sys.modules['flwr'] = None; import bsfl.integrations.flower"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (
        "bsfl.errors.MissingExtra: this needs flwr, which is not installed; "
        f"run: {pip_line('flower')}" in run.stderr
    )
