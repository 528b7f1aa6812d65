"""What is said of the project in several files is the same in all of them."""

import re
import tomllib
from pathlib import Path

import pytest

import bsfl

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_version_and_date_are_the_same_everywhere():
    releases = re.findall(r"^## (\S+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text()
    assert releases[0][0] == bsfl.__version__
    assert f"\nversion: {bsfl.__version__}\n" in citation
    assert f"\ndate-released: {releases[0][1]}\n" in citation
    assert [date for _, date in releases] == sorted((date for _, date in releases), reverse=True)


def test_workflows_try_every_python_that_is_promised():
    yaml = pytest.importorskip("yaml", reason="the extra docs is not installed")
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    tried = workflow["jobs"]["tests"]["strategy"]["matrix"]["python"]
    promised = re.findall(r":: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    assert tried == promised
    assert promised[0] == PROJECT["requires-python"].removeprefix(">=")
    _, python, bounds = workflow["jobs"]["lower-bounds"]["steps"]
    assert python["with"]["python-version"] == promised[0]
    assert (ROOT / bounds["run"].removeprefix("python ")).is_file()


@pytest.mark.parametrize(
    "path",
    [".pre-commit-config.yaml", "CITATION.cff", *ROOT.glob(".github/workflows/*.yml")],
    ids=lambda path: Path(path).name,
)
def test_files_of_other_tools_are_yaml_and_name_no_registry(path):
    yaml = pytest.importorskip("yaml", reason="the extra docs is not installed")
    text = (ROOT / path).read_text()
    assert isinstance(yaml.safe_load(text), dict)
    assert not re.search(r"index-url|pypi\.org|://(?!arxiv\.org)", text)


def test_wheels_hold_what_the_commands_need():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    targets = project["tool"]["hatch"]["build"]["targets"]
    included = {"scenarios": "bsfl/scenarios", "examples/new": "bsfl/examples"}
    assert targets["wheel"]["force-include"] == included
    assert all((ROOT / path).exists() for path in targets["sdist"]["include"])
