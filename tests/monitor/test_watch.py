"""bsfl watch: sums of a journal as it grows, and a page that no id and no other site can abuse."""

import html
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from statistics import NormalDist

import pytest
from typer.testing import CliRunner

from bsfl import Observation, Scheduler, UniformRandom
from bsfl.cli.app import app
from bsfl.monitor import Journal, read_journal
from bsfl.monitor.follow import ClientSums, Followed, Follower
from bsfl.monitor.live import journal_page
from served import served

NASTY = "<script>alert('x')</script>"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rounds.jsonl"


def play(scheduler, rounds, fleet):
    for _ in range(rounds):
        cohort = scheduler.select(fleet)
        scheduler.observe({c: 1.0 + fleet.index(c) for c in cohort})


def entry(t, latency, **more):
    """Return the line of a round whose clients are named a, b, c, ..."""
    who = [chr(97 + i) for i in range(len(latency))]
    known = {"kind": "round", "t": t, "available": 4, "enough": len(who), "invited": who}
    known |= {"outcome": ["ok"] * len(who), "latency_s": latency, "loss": [None] * len(who)}
    return known | {"duration_s": max(latency, default=None)} | more


def test_seconds_lost_are_those_beyond_the_next_slowest():
    sums = Followed()
    sums.add(entry(1, [2.0, 5.0, 11.0]))  # c costs 6 s
    sums.add(entry(2, [9.0, 5.0, 8.0]))  # a costs 1 s
    sums.add(entry(3, [7.0]))  # alone: all of it
    lost = {client: one.lost_s for client, one in sums.clients.items()}
    assert lost == {"a": 8.0, "b": 0.0, "c": 6.0}
    assert [one.last for one in sums.rounds] == [("c",), ("a",), ("a",)]
    assert (sums.n_rounds, sums.total_s) == (3, 27.0)
    assert sums.fair == 3 / 4 + 3 / 4 + 1 / 4
    assert sums.clients["a"].n_ok == 3


def test_an_answer_that_comes_late_is_shown_as_late_and_tells_how_long_it_takes():
    sums = Followed()
    sums.add(entry(1, [2.0, 0.0], outcome=["ok", None]) | {"latency_s": [2.0, None]})
    sums.add(entry(2, [3.0, 1.0]))
    sums.add({"kind": "late", "t": 1, "client": "b", "outcome": "late", "latency_s": 4.0})
    assert sums.cohorts[0]["outcome"] == ["ok", "late"]
    assert sums.cohorts[0]["latency_s"] == [2.0, 4.0]
    assert sums.cohorts[1]["latency_s"] == [3.0, 1.0], "another round's"
    assert sums.clients["b"].latency_s[0] == pytest.approx(2.0), "of 1 s and 4 s"


def test_who_comes_last_together_shares_the_seconds():
    sums = Followed()
    outcome = ["ok", "timeout", "timeout"]
    sums.add(entry(1, [2.0, 60.0, 60.0], outcome=outcome))  # 58 s for two
    assert [one.last for one in sums.rounds] == [("b", "c")]
    lost = {client: one.lost_s for client, one in sums.clients.items()}
    assert lost == {"a": 0.0, "b": 29.0, "c": 29.0}
    text = journal_page("x", sums)
    assert "round 1 took 60 s and waited for b, c, which missed the deadline." in text


def test_latencies_are_told_with_the_interval_of_8_in_10():
    sums = Followed()
    for t, latency in enumerate((1.0, 4.0, 16.0)):
        sums.add(entry(t, [latency]))
    # logarithms to base 4 are 0, 1, 2: mean 1, standard deviation sqrt(2 / 3)
    wide = 4 ** (NormalDist().inv_cdf(0.9) * (2 / 3) ** 0.5)
    assert sums.clients["a"].latency_s == pytest.approx((4.0, 4.0 / wide, 4.0 * wide), rel=1e-4)
    assert ClientSums().latency_s is None


def test_availability_is_counted_by_hour_of_the_day():
    sums = Followed()
    noon = time.mktime((2026, 3, 4, 12, 30, 0, 0, 0, 0))
    for days, available in ((0, 4), (1, 8)):
        sums.add(entry(1 + days, [2.0], available=available, time=noon + 86400 * days))
    assert (sums.n_available[12], sums.n_by_hour[12], sum(sums.n_by_hour)) == (12, 2, 2)
    text = journal_page("x", sums, now=noon + 86400 + 7)
    assert "6 clients could be chosen in a round, on average." in text, "one hour is no picture"
    assert "the last 7 s ago" in text
    assert "Nothing new for" not in text
    assert "Nothing new for 3 min" in journal_page("x", sums, now=noon + 86400 + 180)
    for hour in (1, 2, 3):
        sums.add(entry(2 + hour, [2.0], available=4, time=noon + 3600 * hour))
    assert "12:00 to 13:00: 6 available, 2 rounds" in journal_page("x", sums)


def test_the_page_tells_for_whom_the_round_under_way_waits(path):
    scheduler = Scheduler(UniformRandom(), cohort_size=3, journal=path)
    follower = Follower(path)
    a, b, c = scheduler.select(["ann", "bob", "<b>cem</b>"])
    scheduler.observe({a: 2.0})
    sums = follower.update()
    text = journal_page("x", sums, now=sums.waiting.since + 34)
    waited = html.escape(f"it waits for {b}, {c}.", quote=False)
    assert f"Round 1 has been under way for 34 s: 1 of 3 have answered, {waited}" in text
    scheduler.observe({b: 2.0, c: 3.0})
    assert follower.update().waiting is None, "it is over"
    scheduler.select()
    sums = follower.update()
    assert sums.waiting.t == 2
    for waited_s, is_first in ((9, False), (11, True)):  # a round takes 3 s
        text = journal_page("x", sums, now=sums.waiting.since + waited_s)
        assert (text.index("Round 2 has been") < text.index("Rounds take 3 s")) == is_first


@pytest.mark.parametrize("wrong", [b"", b"{", b"[]", b"{}", b'{"t": 1}', b'{"t": "x", "time": []}'])
def test_what_is_no_round_under_way_is_passed_over(wrong, path):
    play = Scheduler(UniformRandom(), cohort_size=2, journal=path)
    play.observe(dict.fromkeys(play.select(range(4)), 1.0))
    path.with_name("rounds.jsonl.now").write_bytes(wrong)
    assert Follower(path).update().waiting is None


def test_who_comes_after_the_end_costs_no_second():
    sums = Followed()
    outcome = ["ok", "ok", "late"]
    sums.add(entry(1, [2.0, 5.0, 70.0], outcome=outcome, duration_s=5.0, enough=2))
    sums.add({"kind": "late", "t": 1, "client": "d", "outcome": "timeout", "latency_s": 90.0})
    assert sums.clients["b"].lost_s == 3.0
    assert sums.clients["c"].lost_s == 0.0
    assert sums.clients["c"].n_late == sums.clients["d"].n_timeouts == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"kind": "round"},
        {"kind": []},
        entry(1, [2.0], outcome=[]),
        entry(1, [2.0], invited=[[]]),
        entry(1, [2.0], time="noon"),
        entry(1, [2.0], time=1e300),
        entry(
            1,
            [2.0],
            why={"unit": "s", "clients": [], "expected": [], "worth": 3},
            figures={"alpha": "x"},
        ),
        entry(1, [2.0], why=[], figures=7),
    ],
)
def test_an_entry_of_another_kind_is_passed_over(wrong):
    sums = Followed()
    sums.add(wrong)
    journal_page("x", sums)


def test_a_growing_journal_is_read_once_also_when_it_rotates(path):
    fleet = ["ann", "bob", "cem", "dan"]
    scheduler = Scheduler(
        UniformRandom(), cohort_size=2, journal=Journal(path, max_bytes=1500, n_kept=9)
    )
    follower = Follower(path)
    for n in (1, 3, 7, 2, 12):
        play(scheduler, n, fleet)
        sums = follower.update()
        assert sums.n_rounds == scheduler.t
        counted = {row["client"]: row["answers"] for row in scheduler.table() if row["answers"]}
        assert {c: one.n_ok for c, one in sums.clients.items()} == counted
    with path.open("ab") as file:
        file.write(b'{"kind":"round","t":99')  # it is being written
    assert follower.update().n_rounds == scheduler.t


def fetch(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
        return answer.read().decode(), answer.headers


def test_the_page_shows_rounds_and_finds_clients_and_ids_are_text(path):
    scheduler = Scheduler(UniformRandom(), cohort_size=2, journal=path)
    fleet = ["ann", NASTY, "cem"]
    play(scheduler, 8, fleet)
    with served(path) as url:
        text, headers = fetch(url)
        assert "round 8 took" in text
        assert NASTY not in text
        assert "&lt;script&gt;" in text
        assert "default-src 'none'; script-src 'sha256-" in text
        assert headers["X-Frame-Options"] == "DENY"
        assert "http://" not in text
        assert "https://" not in text
        play(scheduler, 1, fleet)
        assert "round 9 took" in fetch(url)[0]
        found, _ = fetch(f"{url}/?client={urllib.parse.quote(NASTY)}")
        assert NASTY not in found
        assert "was never invited.</p>" not in found
        missing, _ = fetch(f"{url}/?client=zoe")
        assert "zoe was never invited" in missing


def test_nothing_else_is_served_and_nothing_can_be_told(path):
    play(Scheduler(UniformRandom(), cohort_size=2, journal=path), 1, [1, 2, 3])
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


def test_100_000_clients_are_a_small_page(path):
    with path.open("w") as file:
        for t in range(1, 1001):
            who = list(range((t - 1) * 100, t * 100))
            latency = [1.0 + k % 17 for k in who]
            line = entry(t, latency, invited=who, available=100_000, enough=100)
            file.write(json.dumps(line) + "\n")
    follower, begin = Follower(path), time.process_time()
    sums = follower.update()
    read_s = time.process_time() - begin
    begin = time.process_time()
    text = journal_page("rounds", sums, "77777")
    page_s = time.process_time() - begin
    assert len(sums.clients) == 100_000
    assert len(text) < 150_000
    assert "77777" in text
    assert read_s < 20
    assert page_s < 2


def test_failures_and_silence_are_drawn_too(path):
    scheduler = Scheduler(UniformRandom(), cohort_size=2, journal=path)
    journal_page("x", Follower(path).update())
    a, _ = scheduler.select(["ann", "bob"])
    scheduler.observe({a: Observation(outcome="failed")})
    scheduler.select(["ann", "bob"])
    assert len(list(read_journal(path))) == 1
    assert "awaited" in journal_page("x", Follower(path).update())


def test_a_cohort_is_shown_with_what_it_was_weighed_by(path):
    fleet = [f"phone-{i}" for i in range(10)]
    scheduler = Scheduler(cohort_size=3, journal=path)
    play(scheduler, 20, fleet)
    last = list(read_journal(path))[-1]
    assert last["why"]["unit"] == "s"
    choice, why = scheduler._learned.choice, last["why"]
    assert sorted(why["clients"]) == sorted(last["invited"])
    assert why["expected"] == sorted(why["expected"], reverse=True), "the slowest first"
    for client, expected, worth in zip(why["clients"], why["expected"], why["worth"], strict=True):
        at = choice.place(fleet.index(client))
        assert expected == pytest.approx(-choice.u[at], abs=5.1e-5), "four decimals"
        assert worth == pytest.approx(choice.alpha * choice.g[at] / 3, abs=5.1e-5)
    text = journal_page("x", Follower(path).update())
    assert "expected (s)" in text
    assert "price of a second" in text


def test_a_policy_that_does_not_tell_is_said_so(path):
    play(Scheduler(UniformRandom(), cohort_size=2, journal=path), 3, ["ann", "bob", "cem"])
    assert "why" not in list(read_journal(path))[-1]
    assert "does not tell what it weighs" in journal_page("x", Follower(path).update())


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        (None, [], "rounds.jsonl is not there"),
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
