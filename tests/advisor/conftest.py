"""A log that the tests of the advisor share."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def log_file(tmp_path_factory):
    """A log of 24 clients, six responses each; the last never responds within 60 s."""
    rng = np.random.default_rng(0)
    medians = np.exp(rng.normal(2.0, 0.8, 24))
    lines = ["client,latency_s,outcome,loss"]
    for _ in range(6):
        for k, median in enumerate(medians):
            took = min(median * np.exp(0.1 * rng.normal()), 59.0)
            lines.append(f"<i>c{k},{took:.3f},ok,0.5" if k < 23 else f"<i>c{k},60,timeout,")
    path = tmp_path_factory.mktemp("log") / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    return path
