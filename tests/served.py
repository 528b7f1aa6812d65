"""The live page of a journal while a test runs."""

import threading
from contextlib import contextmanager

from bsfl.dashboard.watch import server


@contextmanager
def served(journal):
    """Yield the address of the page."""
    with server(journal, port=0) as page:
        threading.Thread(target=page.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{page.server_port}"
        finally:
            page.shutdown()
