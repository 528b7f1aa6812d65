"""What `./run test all` prints, and when it fails."""

import sys

import pytest

from whole_suite import Part, run_side_by_side


def says(text, code=0):
    return [sys.executable, "-c", f"print({text!r}); raise SystemExit({code})"]


@pytest.mark.parametrize(("code", "outcome"), [(0, "passed"), (3, "FAILED")])
def test_every_command_runs_and_one_that_fails_fails_everything(tmp_path, capsys, code, outcome):
    parts = [
        Part("checks", says("badly formatted", code), says("types are fine"), log=tmp_path / "a"),
        Part("tests", says("== 5 passed in 1.00s =="), log=tmp_path / "b"),
    ]
    assert run_side_by_side(parts) == (code > 0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "== 5 passed in 1.00s =="
    assert lines.index("badly formatted") < lines.index("types are fine")
    assert lines[-3].startswith(f"checks       {outcome} in ")
