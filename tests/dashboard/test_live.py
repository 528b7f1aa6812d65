"""The live page: what it says of a journal, the most pressing first."""

import html
import time

import pytest

from bsfl import Observation
from bsfl.dashboard.follow import Followed
from bsfl.dashboard.live import journal_page
from journal_entries import of_100_000_clients, opened
from memory_journal import run, started

NASTY = "<script>alert('x')</script>"
TIMEOUT = Observation(latency_s=60.0, outcome="timeout")


def test_an_empty_journal_has_a_page():
    assert "No round has closed yet." in journal_page("x", Followed())


def test_the_headline_names_the_duration_and_the_clients_that_came_last():
    scheduler, journal = started(cohort_size=3)
    for latencies, headline in (
        ((2.0, 5.0, 11.0), "Recent rounds take 11 s; round 1 took 11 s and waited for cem."),
        (
            (2.0, TIMEOUT, TIMEOUT),
            "Recent rounds take 35.5 s; round 2 took 60 s and waited for bob, cem, which timed out.",
        ),
        ((), "Recent rounds take 35.5 s; the duration of round 3 is unknown."),
    ):
        scheduler.select(["ann", "bob", "cem"])
        if latencies:
            scheduler.observe(dict(zip(("ann", "bob", "cem"), latencies, strict=True)))
        else:
            scheduler.close()
        text = journal_page("x", journal.followed())
        assert headline in text
    # 58 s for two, and 6 s of 71 s for cem in the first round
    assert "35 s lost, 49 %" in text


def test_the_open_round_names_the_clients_that_are_pending():
    scheduler, journal = started(cohort_size=3)
    a, b, c = scheduler.select(["ann", "bob", "<b>cem</b>"])
    scheduler.observe({a: 2.0})
    sums = journal.followed()
    opened = sums.waiting.entry["time"]
    text = journal_page("x", sums, now=opened + 34)
    names = html.escape(f"pending are {b}, {c}.", quote=False)
    assert f"Round 1 has been open for 34 s: 1 of 3 clients have responded, {names}" in text
    scheduler.observe({b: 2.0, c: 3.0})
    assert journal.followed().waiting is None
    assert "has been open" not in journal_page("x", journal.followed())
    scheduler.select()
    sums = journal.followed()
    for waited_s, is_first in ((9, False), (11, True)):  # a round takes 3 s
        text = journal_page("x", sums, now=sums.waiting.entry["time"] + waited_s)
        assert (text.index("Round 2 has been open") < text.index("rounds take 3 s")) == is_first


def test_several_open_rounds_are_counted():
    scheduler, journal = started(max_open_rounds=3)
    for _ in range(3):
        scheduler.select(["ann", "bob"])
    text = journal_page("x", journal.followed())
    assert "Round 3 has been open for 0 s: 0 of 2 clients have responded" in text
    assert "pending are ann, bob; 2 older rounds are open." in text


def test_silence_is_reported():
    scheduler, journal = started()
    run(scheduler, 3, ["ann", "bob"])
    sums = journal.followed()
    quiet, silent = (journal_page("x", sums, now=sums.ended + s) for s in (7, 180))
    assert "the last closed 7 s ago" in quiet
    assert "No new round" not in quiet
    assert "No new round for 3 min" in silent


def test_availability_is_drawn_when_several_hours_are_known():
    noon = time.mktime((2026, 3, 4, 12, 30, 0, 0, 0, 0))
    sums = Followed()
    sums.add(opened(1, ["a"], n_available=4, time=noon))
    sums.add(opened(2, ["a"], n_available=8, time=noon + 86400))
    assert "6 clients were available in a round, on average." in journal_page("x", sums)
    for hour in (1, 2, 3):
        sums.add(opened(2 + hour, ["a"], time=noon + 3600 * hour))
    assert "12:00 to 13:00: 6 available, 2 rounds" in journal_page("x", sums)


def test_speeds_and_participation():
    scheduler, journal = started(cohort_size=1)
    for client, latency_s in (("ann", 2.0), ("bob", 8.0), ("ann", 2.0), ("cem", 32.0)):
        scheduler.select([client])
        scheduler.observe({client: latency_s})
    text = journal_page("x", journal.followed())
    # medians 2, 8 and 32: the 90th percentile is 80 % of the way from 8 to 32
    assert (
        "Of the 3 clients that have responded, 50 % have a median latency of at most 8 s, 90 % of "
        "at most 27.2 s; the slowest has 32 s."
    ) in text
    row = scheduler.client("cem")
    assert f"32 ({row['low_s']:.3g} – {row['high_s']:.3g})" in text, "as in bsfl inspect"
    # each round had one available client: a fair count of 4; ann has 2 / 4, the others 1 / 4
    assert text.count("0.25 to 0.5") == 1


def test_a_client_can_be_found():
    scheduler, journal = started()
    run(scheduler, 8, [1, 2, 3])
    sums = journal.followed()
    found = journal_page("x", sums, "2")
    assert 'data-name="found"' in found
    assert "was never invited" not in found
    assert "zoe was never invited.</p>" in journal_page("x", sums, "zoe")
    assert "-7 was never invited.</p>" in journal_page("x", sums, "-7")


def test_ids_are_text():
    scheduler, journal = started()
    run(scheduler, 8, ["ann", NASTY, "cem"])
    for wanted in ("", NASTY, "<b>zoe</b>"):
        text = journal_page(NASTY, journal.followed(), wanted)
        assert NASTY not in text
        assert "<b>zoe" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize(
    "why",
    [[], 7, {"unit": "s", "clients": [], "expected": [], "worth": 3}, {"unit": [], "clients": 5}],
)
def test_a_journal_that_was_changed_has_a_page(why):
    scheduler, journal = started()
    run(scheduler, 2, ["ann", "bob"])
    sums = Followed()
    for entry in journal.entries:
        more = {"why": why} if entry["kind"] == "opened" else {"diagnostics": {"alpha": "x"}}
        sums.add(entry | more)
    journal_page("x", sums)


def test_100_000_clients_are_a_small_page():
    sums = Followed()
    for entry in of_100_000_clients():
        sums.add(entry)
    begin = time.process_time()
    text = journal_page("rounds", sums, "77777")
    assert time.process_time() - begin < 2
    assert len(sums.clients) == 100_000
    assert len(text) < 150_000
    assert "77777" in text
