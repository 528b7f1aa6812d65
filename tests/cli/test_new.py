"""`bsfl new`: copies of tested examples under other names, never written over a file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from small_scenario import SMALL


def test_the_default_names_are_those_of_the_examples(bsfl, study, monkeypatch):
    monkeypatch.setattr("bsfl.cli.new.find_spec", lambda module: None)  # pytest imports examples
    source = Path(__file__).parents[2] / "examples" / "new"
    for what in ("policy", "scenario", "task"):
        done = bsfl("new", what)
        assert done.exit_code == 0, done.output
    for path in source.glob("*.*"):
        assert (study / path.name).read_text() == path.read_text()
    again = bsfl("new", "task")
    assert again.exit_code == 2
    assert "my_task.py and test_my_task.py are there already; nothing" in again.output


@pytest.mark.slow
@pytest.mark.parametrize(("what", "name"), [("policy", "LeastServed"), ("scenario", "my-fleet")])
def test_a_renamed_copy_passes_its_test(bsfl, study, what, name):
    assert bsfl("new", what, name).exit_code == 0
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    run = subprocess.run(words, cwd=study, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


def test_a_copy_in_another_folder_says_how_to_try_it_from_here(bsfl, study):
    assert bsfl("new", "policy", "Good", "--folder", "there").output.splitlines() == [
        "wrote there/good.py and there/test_good.py",
        "try it: bsfl run phones --policy there/good.py:Good",
        "test it: python -m pytest there/test_good.py",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("polcy", "cannot create a 'polcy'; did you mean 'policy'?"),
        ("policy a/b", "must be letters and digits, the first a letter, got 'a/b'"),
        ("policy 3x", "must be letters and digits, the first a letter, got '3x'"),
        ("task class", "must not be a word of Python's own, got 'class'"),
        ("policy Random", "would hide the module random from Python: choose another name, such as"),
    ],
)
def test_a_name_that_does_not_work_is_rejected(bsfl, study, words, message):
    done = bsfl("new", *words.split())
    assert done.exit_code == 2
    assert message in done.output
    assert [path.name for path in study.iterdir()] == ["study.toml"]


@pytest.mark.slow
def test_a_renamed_task_runs_in_a_scenario(bsfl, study):
    assert bsfl("new", "task", "Linear").exit_code == 0
    (study / "study.toml").write_text(f'{SMALL}\n[learning]\ntask = "linear.py:Linear"\n')
    done = bsfl("run", "study.toml", "--seeds", "1", "--jobs", "1", "--json")
    assert json.loads(done.stdout)["target"]["column"] == "test_loss", done.output
