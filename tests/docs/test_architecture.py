"""The architecture page lists what runs in one call, and the tests of the invariants."""

import ast
import re
import sys
from pathlib import Path

import bsfl
from bsfl import Observation, Scheduler

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
SOURCE = Path(bsfl.__file__).parent


def listed(name):
    """Return the files in a block of the page."""
    block = re.search(rf"<!-- {name} -->\n```text\n(.*?)```", PAGE, re.DOTALL)
    return set(block[1].split())


def files_of(call):
    """Return the files of bsfl that run in a call."""
    found = set()

    def trace(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(SOURCE):
            found.add(path.relative_to(SOURCE).as_posix())

    before = sys.gettrace()  # such as that of a coverage measurement
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return found


def test_the_files_of_select_observe_and_close_are_listed():
    scheduler, clients = Scheduler(cohort_size=3), [f"phone-{i}" for i in range(20)]
    for _ in range(8):  # all clients are known then, and the policy weighs them
        cohort = scheduler.select(available=clients)
        scheduler.observe(dict.fromkeys(cohort, 2.0), round=cohort)

    def call():
        cohort = scheduler.select(available=clients)
        scheduler.observe({cohort[0]: Observation(latency_s=3.0, loss=1.0)}, round=cohort)
        scheduler.close(round=cohort)

    assert len(listed("call path")) <= 14
    assert files_of(call) == listed("call path")


def test_every_invariant_names_its_tests_and_every_test_its_invariant():
    tree = ast.parse((ROOT / "tests" / "_core" / "test_invariants.py").read_text())
    tests = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
    rows = re.findall(r"^\| I(\d+) \|.*?\|(.*)\|$", PAGE, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    for number, names in rows:
        named = re.findall(r"`(\w+)`", names)
        assert named
        assert all(name.startswith(f"test_i{int(number):02}_") for name in named)
        assert set(named) <= tests
    numbered = {name[:8] for name in tests if name.startswith("test_i")}
    assert len(numbered) == len(rows)
