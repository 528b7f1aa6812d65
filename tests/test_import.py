"""The core is light: beside the standard library it loads numpy alone."""

import subprocess
import sys

CODE = """
import sys
import numpy.random
before = set(sys.modules)
from bsfl import Scheduler, BSFL
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(loaded - set(sys.stdlib_module_names) - {"numpy"}))
"""


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_importing_the_core_loads_numpy_and_nothing_else():
    assert run(CODE).stdout.split() == ["bsfl"]


def test_scenarios_are_read_without_the_packages_that_run_them():
    code = "import sys, bsfl.experiments; print({'scipy', 'jax', 'joblib'} & set(sys.modules))"
    assert run(code).stdout == "set()\n"


def test_a_missing_package_of_the_simulator_is_named():
    code = "import sys; sys.modules['pydantic'] = None; import bsfl; bsfl.read_scenario"
    message = "MissingExtra: this needs pydantic, which is not installed; run: pip"
    assert message in run(code).stderr
