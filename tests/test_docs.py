"""Every Python snippet in the documentation runs as it stands, and every link leads somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
STRICT = ["-W", "error", "-W", "ignore:'click:DeprecationWarning"]  # as in pyproject.toml
SNIPPETS = [
    pytest.param(code, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, code in enumerate(
        re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL), 1
    )
]


@pytest.mark.parametrize("code", SNIPPETS)
def test_snippets_run(code, tmp_path):
    run = subprocess.run(
        [sys.executable, *STRICT, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    for printed, comment in re.findall(r"^print\((.*)\)  # (.*)$", code, re.MULTILINE):
        assert comment in run.stdout, f"print({printed}) did not print {comment}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?://)([^)#]*)(?:#[^)]*)?\)", page.read_text()):
        assert not target or (page.parent / target).exists(), target
