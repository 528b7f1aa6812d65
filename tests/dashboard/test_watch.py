"""`bsfl watch`: a page that no id and no other site can abuse."""

import json
import re
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from typer.testing import CliRunner

from bsfl import Scheduler, UniformRandom
from bsfl.cli.app import app
from bsfl.dashboard import watch
from memory_journal import run
from served import served

NASTY = "<script>alert('x')</script>"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rounds.jsonl"


def fetch(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read().decode(), response.headers


def test_the_page_follows_the_journal_and_ids_are_text(path):
    scheduler = Scheduler(UniformRandom(), cohort_size=2, journal=path)
    clients = ["ann", NASTY, "cem"]
    run(scheduler, 8, clients)
    with served(path) as url:
        text, headers = fetch(url)
        assert "Round 8 took" in text
        assert "default-src 'none'; script-src 'sha256-" in text
        assert headers["X-Frame-Options"] == "DENY"
        assert not re.search("https?://", text)
        scheduler.select(clients)
        assert "Round 9 has been open" in fetch(url)[0]
        known = json.loads(fetch(f"{url}/parts")[0])["parts"]
        have = ",".join(f"{name}:{digest}" for name, (digest, _) in known.items())
        scheduler.observe(dict.fromkeys(scheduler.pending()[0].pending, 2.0))
        changed = json.loads(fetch(f"{url}/parts?have={have}")[0])["parts"]
        assert "Round 9 took 2 s" in changed["headline"][1]
        assert "hours" not in changed, "it has not changed"
        rows = [json.loads(fetch(f"{url}/client?row={row}")[0])["html"] for row in ("0", "99", "x")]
        assert ["was never invited" in row for row in rows] == [False, True, True]
        found, _ = fetch(f"{url}/?client={urllib.parse.quote(NASTY)}")
        assert NASTY not in found
        assert "was never invited.</p>" not in found
        assert "zoe was never invited" in fetch(f"{url}/?client=zoe")[0]


def test_nothing_else_is_served_and_nothing_can_be_changed(path):
    run(Scheduler(UniformRandom(), cohort_size=2, journal=path), 1, [1, 2, 3])
    with served(path) as url:
        for wrong in (
            urllib.request.Request(f"{url}/etc/passwd"),
            urllib.request.Request(f"{url}/../rounds.jsonl"),
            urllib.request.Request(url, headers={"Host": "evil.example"}),
            urllib.request.Request(url, data=b"x", method="POST"),
            urllib.request.Request(url, method="DELETE"),
        ):
            with pytest.raises(urllib.error.HTTPError) as error:
                urllib.request.urlopen(wrong, timeout=30)
            assert error.value.code in (403, 404, 501)
            error.value.close()
        assert "1" in fetch(f"{url}/?client=1")[0]


def test_several_readers_while_rounds_are_written(path):
    scheduler = Scheduler(UniformRandom(), cohort_size=2, journal=path)
    run(scheduler, 1, ["ann", "bob", "cem"])
    with served(path) as url, ThreadPoolExecutor(3) as readers:
        texts = readers.map(fetch, [url] * 30)
        run(scheduler, 50, ["ann", "bob", "cem"])
        assert all("Round" in text for text, _ in texts)
        assert "Round 51 took" in fetch(url)[0]


def test_connections_are_few_and_short(path, monkeypatch):
    monkeypatch.setattr(watch, "REQUEST_S", 5.0)
    run(Scheduler(UniformRandom(), cohort_size=2, journal=path), 1, [1, 2, 3])
    with served(path) as url, ExitStack() as stack:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        idle = [
            stack.enter_context(socket.create_connection(address, 30))
            for _ in range(watch.MAX_CONNECTIONS)
        ]
        begin = time.monotonic()
        with pytest.raises(OSError, match="closed|reset"):
            fetch(url)
        assert all(one.recv(1) == b"" for one in idle), "cut by the server"
        assert 1 < time.monotonic() - begin < 30
        assert "Round 1 took" in fetch(url)[0]


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        (None, [], "rounds.jsonl does not exist"),
        ("client,latency_s\nann,3\n", [], "rounds.jsonl is not a journal"),
        ("", ["--host", "203.0.113.9"], "cannot serve on 203.0.113.9:8571"),  # RFC 5737: not ours
    ],
)
def test_mistakes_are_one_line(path, content, more, message):
    if content is not None:
        path.write_text(content)
    done = CliRunner(env={"NO_COLOR": "1"}).invoke(app, ["watch", str(path), *more])
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert message in done.output
