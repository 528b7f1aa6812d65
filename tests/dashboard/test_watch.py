"""`bsfl watch`: a page that no id and no other site can abuse."""

import threading
import urllib.error
import urllib.parse
import urllib.request

import pytest
from typer.testing import CliRunner

from bsfl import Scheduler, UniformRandom
from bsfl.cli.app import app
from served import served

NASTY = "<script>alert('x')</script>"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rounds.jsonl"


def run(scheduler, rounds, clients):
    for _ in range(rounds):
        cohort = scheduler.select(clients)
        scheduler.observe({c: 1.0 + clients.index(c) for c in cohort})


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
        assert "round 8 took" in text
        assert NASTY not in text
        assert "&lt;script&gt;" in text
        assert "default-src 'none'; script-src 'sha256-" in text
        assert headers["X-Frame-Options"] == "DENY"
        assert "http://" not in text
        assert "https://" not in text
        run(scheduler, 1, clients)
        assert "round 9 took" in fetch(url)[0]
        scheduler.select(clients)
        assert "Round 10 has been open" in fetch(url)[0]
        found, _ = fetch(f"{url}/?client={urllib.parse.quote(NASTY)}")
        assert NASTY not in found
        assert "was never invited.</p>" not in found
        missing, _ = fetch(f"{url}/?client=zoe")
        assert "zoe was never invited" in missing


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
    texts, errors = [], []

    def read(url):
        try:
            texts.extend(fetch(url)[0] for _ in range(10))
        except BaseException as error:
            errors.append(error)

    with served(path) as url:
        readers = [threading.Thread(target=read, args=(url,)) for _ in range(3)]
        for reader in readers:
            reader.start()
        run(scheduler, 50, ["ann", "bob", "cem"])
        for reader in readers:
            reader.join()
        assert errors == []
        assert len(texts) == 30
        assert "round 51 took" in fetch(url)[0]


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        (None, [], "rounds.jsonl does not exist"),
        ("client,latency_s\nann,3\n", [], "rounds.jsonl is not a journal"),
        (
            "",
            ["--host", "203.0.113.9"],
            "cannot serve on 203.0.113.9:8571",
        ),  # not ours, by RFC 5737
    ],
)
def test_mistakes_are_one_line(path, content, more, message):
    if content is not None:
        path.write_text(content)
    done = CliRunner(env={"NO_COLOR": "1"}).invoke(app, ["watch", str(path), *more])
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert message in done.output
