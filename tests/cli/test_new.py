"""`bsfl new`: templates that pass their own tests, and are never written over a file."""

import json
import subprocess
import sys

import pytest

from small_scenario import SMALL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "name", "file"),
    [
        ("policy", "LeastServed", "least_served.py"),
        ("scenario", "my-fleet", "my-fleet.toml"),
        ("task", "MyTask", "my_task.py"),
    ],
)
def test_a_template_passes_its_test(bsfl, study, what, name, file):
    done = bsfl("new", what, name)
    assert done.exit_code == 0, done.output
    assert (study / file).exists()
    (test,) = study.glob("test_*.py")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test.name]
    run = subprocess.run(words, cwd=study, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
    again = bsfl("new", what, name)
    assert again.exit_code == 2
    assert f"{file} and {test.name} are there already; nothing was written" in again.output


def test_a_template_in_another_folder_says_how_to_try_it_from_here(bsfl, study):
    assert bsfl("new", "policy", "Good", "--folder", "there").output.splitlines() == [
        "wrote there/good.py and there/test_good.py",
        "try it: bsfl run phones --policy there/good.py:Good",
        "test it: python -m pytest there/test_good.py",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("polcy", "cannot begin a 'polcy'; did you mean 'policy'?"),
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
def test_a_task_from_the_template_runs_in_a_scenario(bsfl, study):
    assert bsfl("new", "task", "MyTask").exit_code == 0
    (study / "study.toml").write_text(f'{SMALL}\n[learning]\ntask = "my_task.py:MyTask"\n')
    done = bsfl("run", "study.toml", "--seeds", "1", "--jobs", "1", "--json")
    assert json.loads(done.stdout)["target"]["column"] == "test_loss", done.output
