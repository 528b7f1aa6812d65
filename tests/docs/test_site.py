"""The site is built without a warning, stands alone, and everything in it can be reached."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
TOOLS = ("material", "mkdocstrings", "latex2mathml")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(importlib.util.find_spec(tool) is None for tool in TOOLS),
        reason="the extra docs is not installed",
    ),
]


class Links(HTMLParser):
    """Anchors of a page, where its links lead, and what a browser loads for it."""

    def __init__(self):
        super().__init__()
        self.anchors, self.links, self.loaded, self.navigation = set(), [], [], set()

    def handle_starttag(self, tag, attrs):
        here = dict(attrs)
        self.anchors |= {here[key] for key in ("id", "name") if here.get(key)}
        if tag == "a" and "href" in here:
            self.links.append(here["href"])
            if "md-nav__link" in here.get("class", ""):
                self.navigation.add(here["href"])
        elif tag == "link" and here.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(here["href"])
        elif tag in ("script", "img", "iframe", "source", "video") and here.get("src"):
            self.loaded.append(here["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    warnings = [line for line in run.stderr.splitlines() if not line.startswith("INFO")]
    assert run.returncode == 0, "\n".join(warnings)
    return folder


@pytest.fixture(scope="module")
def pages(site):
    pages = {path: Links() for path in sorted(site.rglob("*.html"))}
    for path, links in pages.items():
        links.feed(path.read_text())
    return pages


def test_every_link_leads_somewhere(site, pages):
    for page, found in pages.items():
        if page.name == "404.html":  # written for the root of a server
            continue
        for target in [*found.links, *found.loaded]:
            if re.match(r"https?:|mailto:|data:", target):
                continue
            path, _, anchor = unquote(target).partition("#")
            there = (page.parent / path.partition("?")[0]).resolve() if path else page
            there = there / "index.html" if there.is_dir() else there
            assert there.is_file(), f"{page.relative_to(site)}: {target}"
            if anchor and there in pages:
                assert anchor in pages[there].anchors, f"{page.relative_to(site)}: {target}"


def test_nothing_is_loaded_from_elsewhere(site, pages):
    for page, found in pages.items():
        assert [url for url in found.loaded if "//" in url] == [], page.relative_to(site)
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", path.read_text()), path.relative_to(site)


def test_every_page_is_in_the_navigation(site, pages):
    home = site / "index.html"
    there = {(site / link).resolve() for link in pages[home].navigation if "#" not in link}
    missing = set(pages) - there - {site / "404.html", home}
    assert sorted(str(page.relative_to(site)) for page in missing) == []


def test_formulas_are_mathml(site, pages):
    assert "<math" in (site / "policies" / "pace.html").read_text()
    for page in pages:
        assert "arithmatex" not in page.read_text(), page.relative_to(site)


def test_tutorials_are_notebooks_too(site):
    for path in (ROOT / "docs" / "tutorials").glob("*.md"):
        notebook = json.loads((site / "tutorials" / f"{path.stem}.ipynb").read_text())
        assert notebook["nbformat"] == 4
        assert {cell["cell_type"] for cell in notebook["cells"]} == {"code", "markdown"}


FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--dump-dom"),
    *("--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND"),
    "--virtual-time-budget=20000",
)


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize(
    ("word", "page", "n_first"),
    [("fairness", "policies/pace.html", 1000), ("over-selection", "rounds.html", 6)],
)
def test_search_works_without_a_server(site, tmp_path, word, page, n_first):
    url = (site / "index.html").as_uri() + f"?q={word}"
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'browser'}", url]
    run = subprocess.run(command, capture_output=True, text=True, timeout=180)
    hits = re.findall(r'href="([^"]*)" class="md-search-result__link"', run.stdout)
    found = list(dict.fromkeys(hit.partition("?")[0].partition("#")[0] for hit in hits))
    assert any(hit.endswith(page) for hit in found[:n_first]), found
