"""The command line in this process, and a folder to try it in."""

import pytest
from typer.testing import CliRunner

from bsfl.cli.app import app
from small_scenario import SMALL


@pytest.fixture
def bsfl():
    """Return a function that runs a command."""
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})
    return lambda *words, **env: runner.invoke(app, [*map(str, words)], env=env)


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Return the current folder, which holds study.toml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(SMALL)
    return tmp_path


@pytest.fixture
def run_study(bsfl, study):
    """Return a function that runs study.toml with one seed and further words."""

    def run(*words):
        done = bsfl("run", "study.toml", "--seeds", "1", "--jobs", "1", *words)
        assert done.exit_code == 0, done.output
        return done

    return run
