"""Run a smoke part of the tests with every direct dependency at its lower bound.

    python tests/lower_bounds.py [ARGUMENTS OF PYTEST]

The bounds are those of pyproject.toml. The environment, .venv-lower, is made on the first call and
whenever a bound has changed. It needs the oldest Python that bsfl promises, as old versions have no
wheels for newer ones; where that is not installed nothing is checked, and the output says so.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VENV = ROOT / ".venv-lower"
EXTRAS = ("cli", "data", "sim", "dashboard", "plots", "flower", "metrics")
TOOLS = ("pytest", "hypothesis")
"""What the tests themselves need; any version."""
SMOKE = [
    "tests/test_scheduler.py",
    "tests/cli",
    "tests/policies/test_contract.py",
    "tests/experiments/test_scenario.py",
    "tests/simulation/test_simulate.py",
    "tests/report",
    "tests/monitoring/test_prometheus.py",
    "tests/integrations/flower/test_selected.py",
    "tests/learning/test_fedavg.py",
]
"""Scheduler, policies, scenarios, simulation, commands with their mistakes, reports, Flower and JAX."""


def lower_bound(requirement):
    """Return the name of a required package and the least version that is allowed.

    >>> lower_bound("click>=8.2,<8.5"), lower_bound("prometheus_client>=0.20")
    (('click', '8.2'), ('prometheus_client', '0.20'))
    """
    found = re.fullmatch(r"([\w.-]+)>=([\d.]+)(,<[\d.]+)?", requirement)
    if not found:
        raise SystemExit(f"pyproject.toml: {requirement!r} has no lower bound of the form NAME>=X")
    return found[1], found[2]


def pins():
    """Return NAME==BOUND for every direct dependency of the core and of the extras."""
    required = list(PROJECT["dependencies"])
    for extra in EXTRAS:
        required += PROJECT["optional-dependencies"][extra]
    bounds = {}
    for name, version in (lower_bound(one) for one in required if not one.startswith("bsfl[")):
        if bounds.setdefault(name, version) != version:
            raise SystemExit(f"pyproject.toml: {name} has two lower bounds")
    return sorted(f"{name}=={version}" for name, version in bounds.items())


def install(python):
    """Bring the environment up to date, unless that was done with the same pins."""
    mark, text = VENV / ".installed", "\n".join(pins()) + "\n"
    if mark.is_file() and mark.read_text() == text:
        return
    shutil.rmtree(VENV, ignore_errors=True)
    subprocess.run([python, "-m", "venv", VENV], check=True)
    pip = [VENV / "bin" / "python", "-m", "pip", "install", "--quiet"]
    pip += ["--disable-pip-version-check", *pins(), *TOOLS, "--editable"]
    print(f"installing the lower bounds into {VENV.name}: {' '.join(pins())}", flush=True)
    subprocess.run([*pip, f"{ROOT}[{','.join(EXTRAS)}]"], check=True)
    mark.write_text(text)


def main(arguments):
    """Install, and run the tests; old versions may warn of each other."""
    oldest = "python" + PROJECT["requires-python"].removeprefix(">=")
    is_oldest = Path(sys.base_prefix, "bin", oldest)
    python = is_oldest if is_oldest.exists() else shutil.which(oldest)
    if python is None:
        print(f"lower bounds not checked: there is no {oldest}")
        return 0
    install(python)
    tests = [VENV / "bin" / "pytest", "-o", "filterwarnings=", "--tb=short"]
    tests += ["-m", "not slow and not attack", "-p", "no:cacheprovider", "--no-header", "-q"]
    return subprocess.run([*tests, "--disable-warnings", *SMOKE, *arguments], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
