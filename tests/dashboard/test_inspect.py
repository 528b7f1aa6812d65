"""The page of `bsfl inspect`."""

from bsfl import Observation, Scheduler, UniformRandom
from bsfl.dashboard.inspect import inspected_page

TIMEOUT = Observation(latency_s=60.0, outcome="timeout")
NASTY = "<script>alert(1)</script>[red]"


def page_of(scheduler):
    return inspected_page("state.bsfl", scheduler.summary(), scheduler.table())


def test_the_headline_names_the_slowest():
    scheduler = Scheduler(UniformRandom(), cohort_size=3)
    scheduler.join(["ann", "bob", "cem"])
    assert "No client has responded yet." in page_of(scheduler)
    scheduler.select()
    scheduler.observe({"ann": 2.0, "bob": 8.0, "cem": 32.0})
    text = page_of(scheduler)
    headline = (
        "50 % of the clients have a median latency of at most 8 s; the slowest, cem, has 32 s."
    )
    assert headline in text
    assert "What state.bsfl knows of its clients" in text


def test_unresponsive_clients_come_first():
    scheduler = Scheduler(cohort_size=2)
    for _ in range(9):
        cohort = scheduler.select(available=["ann", "bob", "cem"])
        scheduler.observe({c: TIMEOUT if c == "cem" else 2.0 for c in cohort})
    n = scheduler.client("cem")["timeouts"]
    assert n >= 3
    text = page_of(scheduler)
    assert f"cem never responded to {n} invitations." in text
    assert text.index('"name">cem') < text.index('"name">ann'), "it comes first"


def test_the_facts():
    scheduler = Scheduler(UniformRandom(), cohort_size=2)
    scheduler.join(["dan"])
    scheduler.leave(["dan"])
    scheduler.select(["ann", "bob"])
    scheduler.observe({"ann": 2.0, "bob": TIMEOUT})
    scheduler.select(["ann", "bob"])
    text = page_of(scheduler)
    for name, value, more in (
        ("clients", "2", "1 left"),
        ("have responded", "1", "1 participations"),
        ("timed out or failed", "1", "of 4 invitations"),
        ("in flight", "2", "clients with a pending response"),
        ("underserved", "1", "have a participation ratio below 0.5"),
    ):
        assert f"<dt>{name}</dt><dd>{value}<small>{more}</small></dd>" in text


def test_ids_are_text_and_nothing_else_is_needed():
    scheduler = Scheduler(UniformRandom(), cohort_size=2)
    scheduler.observe(dict.fromkeys(scheduler.select(["ann", NASTY, "\ud800\x1b[31m"]), 1.0))
    text = page_of(scheduler)
    assert NASTY not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;[red]" in text
    assert "http:" not in text
    assert "https:" not in text
    assert text.count("<tr>") == 1 + 3
