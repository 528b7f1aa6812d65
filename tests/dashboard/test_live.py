"""The live page: what it says of a journal."""

import re
import time

import pytest

from bsfl import BSFL, Alternating, Observation, Pace, UniformRandom
from bsfl.dashboard.live import View, client_part, draw, find, headline_part
from bsfl.dashboard.pictures import MANY_CLIENTS
from bsfl.dashboard.sums import Sums
from journal_entries import of_100_000_clients, opened, whole
from memory_journal import run, started

NASTY = "<script>alert('x')</script>"
TIMEOUT = Observation(latency_s=60.0, outcome="timeout")


class Followed:
    """A journal that was read."""

    n_malformed, fault, part_read = 0, "", 1.0

    def __init__(self, sums, **changes):
        self.shown, self.sums = self, sums
        vars(self).update(changes)


def words(part):
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", part)).strip()


def headline(sums, *, estimate=None, since_s=0.0, **changes):
    now = sums.time + since_s if sums.time == sums.time else 0.0
    return words(
        headline_part(View("x", Followed(sums, **changes), estimate, sums.blocks.effect(), now))
    )


def drawn(sums):
    return draw(sums, None, sums.blocks.effect())


def summed(*entries):
    sums = Sums()
    for entry in entries:
        sums.add(entry)
    return sums


def test_an_empty_journal_has_a_page():
    assert headline(Sums()) == "No round has closed yet."
    assert all(drawn(Sums()).values())


@pytest.mark.parametrize(
    ("estimate", "sentence"),
    [
        (None, "Rounds take 10 s."),
        ((25.0, 22.0, 28.0), "they would take 25 s (95 % interval 22 to 28), 2.5 times as long."),
        ((8.0, 7.0, 9.0), "would take 8 s (95 % interval 7 to 9), 80 % as long."),
        ((11.0, 9.0, 13.0), "(95 % interval 9 to 13), which is no significant difference."),
    ],
)
def test_the_headline_compares_with_random_selection(estimate, sentence):
    text = headline(summed(*whole(1, [5.0, 10.0])), estimate=estimate)
    assert sentence in text
    assert ("In simulation the estimate is 1 to 4 % too high where" in text) == bool(estimate)


@pytest.mark.parametrize(
    ("outcome", "blamed"),
    [
        (["ok", "ok", "ok"], "Round 1 took 60 s and waited for b, c."),
        (["ok", "timeout", "timeout"], "and waited for b, c, which timed out."),
        (["ok", "ok", "failed"], "and waited for b, c."),
    ],
)
def test_the_clients_that_came_last_are_named(outcome, blamed):
    assert blamed in headline(summed(*whole(1, [2.0, 60.0, 60.0], outcome=outcome)))


def test_a_server_that_has_stopped_is_reported_first():
    scheduler, journal = started()
    run(scheduler, 3, ["ann", "bob"])
    sums = journal.followed()
    assert headline(sums, since_s=9.0).startswith("Rounds take 2 s.")
    stopped = "No event for 12 min; rounds used to take 2 s. The server may have stopped."
    assert headline(sums, since_s=720.0).startswith(stopped)


def test_the_open_round_names_the_clients_that_are_pending():
    scheduler, journal = started(cohort_size=3, max_open_rounds=2)
    a, b, c = scheduler.select(["ann", "bob", "cem"])
    scheduler.observe({a: 2.0})
    text = headline(journal.followed(), since_s=34.0)
    assert f"has been open for 34 s: 1 of 3 clients have responded, pending are {b}, {c}." in text
    scheduler.select(["dan", "eve", "fay"])
    assert "; 1 older rounds are open." in headline(journal.followed())


def test_what_was_not_read_and_what_is_malformed_is_said():
    sums = summed(*whole(1, [2.0]))
    text = headline(sums, n_malformed=2, fault=f"byte 7: {NASTY}", part_read=0.34)
    assert "2 lines are malformed and ignored; the last one is at byte 7: &lt;script&gt;" in text
    assert "This page shows the last 1 rounds while older ones are read (34 % so far)." in text


@pytest.mark.parametrize(
    ("policy", "heads", "learned"),
    [
        (Pace(tau_max=60.0), ("expected (s)", "worth (s)"), "A second of waiting is worth"),
        (BSFL(alpha=2.0), ("speed index", "worth"), "speed (alpha) is 2."),
    ],
)
def test_a_cohort_is_shown_with_what_it_was_weighed_by(policy, heads, learned):
    scheduler, journal = started(policy, cohort_size=3)
    run(scheduler, 20, [f"phone-{i}" for i in range(10)])
    sums = journal.followed()
    parts = drawn(sums)
    assert all(head in parts["cohorts"] for head in heads)
    assert "Each cohort maximises" in parts["cohorts"]
    assert learned in parts["policy"]
    weighed = next(row for row in sums.cohorts[-1].rows if sums.clients.table["why_round"][row])
    assert "In round 20 its expected" in words(client_part(sums, int(weighed)))


def test_policies_that_alternate_are_compared():
    scheduler, journal = started(Alternating(Pace(), UniformRandom(), block=2, seed=0))
    run(scheduler, 12, ["ann", "bob", "cem", "dan"])
    sums = journal.followed()
    assert "An interval needs 6 pairs of blocks." in drawn(sums)["policy"]
    assert re.search(r"Rounds take \S+ s with Pace and \S+ s with UniformRandom\.", headline(sums))


def test_only_rounds_that_fell_short_are_marked():
    part = drawn(summed(*whole(1, [2.0, 5.0], target_responses=1)))["durations"]
    assert "marked" not in part.partition("</svg>")[0], "over-selection is normal"
    part = drawn(summed(*whole(1, [2.0, 5.0], target_responses=3)))["durations"]
    assert part.partition("</svg>")[0].count("bar marked") == 1


def test_a_mark_for_each_client_and_a_density_of_many():
    part = drawn(summed(*whole(1, [2.0, 5.0, 8.0])))["clients"]
    assert re.findall(r'<circle class="good" data-row="(\d)"', part) == ["0", "1", "2"]
    latency_s = {k: 1.0 + k % 17 for k in range(MANY_CLIENTS + 1)}
    sums = summed(opened(1, latency_s), *whole(2, [2.0]))
    for number in (3, 4, 5):  # one client that never responds in time
        sums.add(opened(number, ["lost"]))
        sums.add(
            {"kind": "responses", "round": number, "is_late": False, "dropped": False}
            | {"clients": ["lost"], "outcome": ["timeout"], "latency_s": [9.0]}
        )
    part = drawn(sums)["clients"]
    assert re.findall('<circle class="([a-z ]+)"', part) == ["good", "bad none"]
    assert part.count('class="cell"') == 1


def test_a_client_is_found_by_its_id():
    scheduler, journal = started()
    run(scheduler, 8, [1, 2, 3])
    sums = journal.followed()
    assert "in time, 0 late" in words(client_part(sums, find(sums, "2")))
    for wanted in ("zoe", "-7", "²", "9" * 5000):
        assert "was never invited." in client_part(sums, find(sums, wanted), wanted)


def test_ids_are_text():
    scheduler, journal = started()
    run(scheduler, 8, ["ann", NASTY, "cem"])
    sums = journal.followed()
    parts = [*drawn(sums).values(), client_part(sums, find(sums, NASTY)), headline(sums)]
    assert NASTY not in "".join(parts)
    assert "&lt;script&gt;" in "".join(parts)


def test_availability_is_drawn_when_several_hours_are_known():
    noon = time.mktime((2026, 3, 4, 12, 30, 0, 0, 0, 0))
    times = [(noon, 4), (noon + 86400, 8)]
    sums = summed(*(opened(i, ["a"], n_available=n, time=t) for i, (t, n) in enumerate(times)))
    assert "6 clients were available in a round, on average." in drawn(sums)["hours"]
    for hour in (1, 2, 3):
        sums.add(opened(2 + hour, ["a"], time=noon + 3600 * hour))
    assert "12:00 to 13:00: 6 available, 2 rounds" in drawn(sums)["hours"]


def test_100_000_clients_are_a_small_page():
    sums = summed(*of_100_000_clients())
    begin = time.process_time()
    text = "".join(drawn(sums).values())
    assert time.process_time() - begin < 1
    assert len(sums.index) == 100_000
    assert len(text) < 150_000
