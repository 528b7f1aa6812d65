"""Every Python snippet in the documentation runs as it stands, and every link leads somewhere.

Tutorials, whose snippets belong together, are run by test_tutorials.py. A snippet that runs long
opens with "```python slow"; one that opens with "```python mlflow" needs that package.
`python tests/docs/test_docs.py` writes the tables that come from the registry.
"""

import importlib.util
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bsfl._core.registry import REQUIRED
from bsfl.policies import POLICIES, make_policy

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted({*(ROOT / "docs").rglob("*.md")} - {*(ROOT / "docs" / "tutorials").iterdir()}),
    *sorted((ROOT / "examples").rglob("*.md")),
]
STRICT = ["-W", "error"]  # as in pyproject.toml


def mark_of(word):
    """Return the mark of a snippet that says "slow", or the name of a package that it needs."""
    if word == "slow":
        return pytest.mark.slow
    is_there = importlib.util.find_spec(word) is not None
    return pytest.mark.skipif(not is_there, reason=f"{word} is not installed")


SNIPPETS = [
    pytest.param(
        code,
        [] if set(marks.split()) - {"slow"} else STRICT,  # other packages warn as they like
        id=f"{page.relative_to(ROOT)}-{number}",
        marks=[mark_of(word) for word in marks.split()],
    )
    for page in PAGES
    for number, (marks, code) in enumerate(
        re.findall(r"```python(.*?)\n(.*?)```", page.read_text(), re.DOTALL), 1
    )
]


@pytest.mark.parametrize(("code", "flags"), SNIPPETS)
def test_snippets_run(code, flags, tmp_path):
    run = subprocess.run(
        [sys.executable, *flags, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    for printed, comment in re.findall(r"^print\((.*)\)  # (.*)$", code, re.MULTILINE):
        assert comment in run.stdout, f"print({printed}) did not print {comment}"


LINKED = sorted(
    {*PAGES, *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob(".github/**/*.md")}
)
CODE = re.compile(r"^(`{3,}).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def anchors_of(page):
    """Return the anchors of a page's headings, as code hosts and the site make them."""
    text = re.sub(r"^(`{3,}).*?^\1", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    shown = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in shown}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(CODE, "code", page.read_text())
    targets = re.findall(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)", text)
    for target, anchor in targets:
        there = page.parent / target if target else page
        assert there.exists(), target
        if anchor:
            assert anchor in anchors_of(there), f"{target}#{anchor}"


def test_a_dead_anchor_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One: two\n```sh\n# no heading\n```\n## `alpha` and [more](x.md)\n")
    assert anchors_of(page) == {"one-two", "alpha-and-more"}


def test_the_call_paths_of_the_architecture_page_lead_somewhere():
    steps = re.findall(r"`([a-z_.]+):(\w+(?:\.\w+)?)`", (ROOT / "docs/architecture.md").read_text())
    assert len(steps) > 20
    for module, name in steps:
        pkgutil.resolve_name(f"bsfl.{module}:{name}")


POLICY_PAGE = ROOT / "docs" / "policies" / "README.md"


def policy_table():
    """Return the table of the policies, from what they say of themselves."""
    lines = ["| name | class | what it does | needs | must be given |", "|---|---|---|---|---|"]
    for name, policy in POLICIES.items():
        made = make_policy(name, **policy.example)
        given = [f"`{k}`" for k, v in POLICIES.settings(name).items() if v is REQUIRED]
        cells = [
            f"[`{name}`]({name}.md)",
            f"[`{policy.__name__}`](../../src/{policy.__module__.replace('.', '/')}.py)",
            POLICIES.about(name) + " For comparison only." * policy.is_oracle,
            ", ".join(sorted(made.needs)),
            ", ".join(given),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def with_table(text):
    start, end = "<!-- policies -->\n", "\n<!-- /policies -->"
    head, _, rest = text.partition(start)
    _, _, tail = rest.partition(end)
    return head + start + policy_table() + end + tail


def test_every_policy_has_a_page_and_a_row_in_the_table():
    text = POLICY_PAGE.read_text()
    assert text == with_table(text), "run: python tests/docs/test_docs.py"
    for name in POLICIES.known:
        assert (POLICY_PAGE.parent / f"{name}.md").is_file(), name


if __name__ == "__main__":
    POLICY_PAGE.write_text(with_table(POLICY_PAGE.read_text()))
