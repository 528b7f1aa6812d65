"""The last cohorts on the live page, and what their clients were weighed by."""

from bsfl import BSFL, Observation, Pace
from bsfl.dashboard.cohorts import cohorts
from bsfl.dashboard.live import journal_page
from memory_journal import run, started

CLIENTS = [f"phone-{i}" for i in range(10)]


def test_a_cohort_is_shown_with_what_it_was_weighed_by():
    for policy, heads, learned in (
        (Pace(tau_max=60.0), ("expected (s)", "worth (s)"), "value per second"),
        (BSFL(alpha=2.0), ("speed index", "worth"), "alpha 2"),
    ):
        scheduler, journal = started(policy, cohort_size=3)
        run(scheduler, 20, CLIENTS)
        text = cohorts(journal.followed().cohorts)
        assert all(head in text for head in heads)
        assert f"The policy has learned: {learned}" in text or f", {learned}" in text
        assert "Each cohort maximises" in text


def test_a_policy_that_does_not_report_what_it_weighs():
    scheduler, journal = started()
    run(scheduler, 3, CLIENTS)
    assert "does not report what it weighs" in journal_page("x", journal.followed())


def test_the_head_of_a_cohort_and_its_results():
    scheduler, journal = started(over_selection=2.0)
    scheduler.select(["ann", "bob", "cem", "dan"])
    scheduler.observe({"cem": Observation(latency_s=3.0, outcome="timeout")})
    scheduler.observe({"ann": 2.0, "bob": 7.0})
    scheduler.close(discard=True)
    text = cohorts(journal.followed().cohorts)
    head = "Round 1: 2 of 4 responded in time, 7 s, selected from 4 available clients"
    assert head in text
    assert [text.count(f">{words}<") for words in ("in time", "timeout", "pending")] == [2, 1, 1]
    scheduler.observe({"dan": 9.0})
    assert ">late<" in cohorts(journal.followed().cohorts)
    scheduler.select()
    scheduler.observe({"ann": 2.0})
    scheduler.close(discard=True)
    text = cohorts(journal.followed().cohorts)
    assert (
        "Round 2: 1 of 4 responded in time, 2 s, selected from 4 available clients, discarded"
        in text
    )
    assert text.index("Round 2") < text.index("Round 1"), "the latest first"


def test_of_a_large_cohort_the_slowest_are_shown():
    scheduler, journal = started(cohort_size=50)
    cohort = scheduler.select(range(50))
    scheduler.observe({k: 1.0 + k for k in cohort})
    text = cohorts(journal.followed().cohorts)
    assert "The 20 that took longest" in text
    assert text.count("<tr>") == 21


def test_no_cohort_is_nothing():
    assert cohorts([]) == ""
