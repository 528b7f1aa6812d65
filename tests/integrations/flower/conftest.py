"""Flower in tests: no telemetry, a home of its own, and messages without a server."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def flower_at_home(tmp_path_factory):
    """Keep Flower from reporting its use and from writing into the user's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLWR_TELEMETRY_ENABLED", "0")
        patch.setenv("FLWR_DISABLE_UPDATE_CHECK", "1")
        patch.setenv("FLWR_HOME", str(tmp_path_factory.mktemp("flwr-home")))
        yield


@pytest.fixture(autouse=True)
def a_task(monkeypatch):
    """Messages can only be written by a process that Flower gave a task."""
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(identity, name, 1)


collect_ignore_glob = ["probe/*"]
