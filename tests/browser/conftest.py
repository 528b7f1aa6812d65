"""One headless Chromium for all tests of pages; they are skipped, with the reason, without it."""

import shutil
from contextlib import contextmanager

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")  # while it lives it has an event loop in this thread
def chromium():
    """A browser that has no way out of this machine."""
    driver = pytest.importorskip("playwright.sync_api", reason="pages are tested with playwright")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with driver.sync_playwright() as play:
        outside = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        browser = play.chromium.launch(
            executable_path=CHROMIUM, args=[*FLAGS, outside], timeout=PATIENCE_MS
        )
        yield browser
        browser.close()


class Visit:
    """A page that is open, with its messages and requests."""

    def __init__(self, page, url):
        self.page, self.said, self.asked = page, [], []
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(url)

    def column(self, i, table=".table"):
        """Return the texts of a column of the first such table, from top to bottom."""
        return self.page.locator(
            f"{table} >> nth=0 >> tbody tr td:nth-child({i})"
        ).all_inner_texts()

    def overflow(self):
        """Return how many pixels the page is wider than the window."""
        return self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )


@pytest.fixture
def visit(chromium):
    """A function that opens a page as a context: (url, width, colour scheme)."""

    @contextmanager
    def opened(url, width=1400, scheme="light"):
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        try:
            yield Visit(context.new_page(), url)
        finally:
            context.close()

    return opened
