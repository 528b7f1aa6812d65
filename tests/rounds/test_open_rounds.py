"""Several open rounds in one scheduler: which close, and whose responses are fresh."""

from bsfl import Scheduler, UniformRandom
from memory_journal import MemoryJournal


def test_a_round_whose_pending_clients_are_forgotten_closes_and_takes_no_place():
    """Else the limit of two open rounds would close the first, whose response is on its way."""
    journal = MemoryJournal()
    scheduler = Scheduler(UniformRandom(), cohort_size=1, max_open_rounds=2, journal=journal)
    first, second = scheduler.select(["a", "b", "c"]), scheduler.select(["a", "b", "c"])
    while second[0] == first[0]:
        scheduler.observe(dict.fromkeys(second, 1.0), round=second)
        second = scheduler.select(["a", "b", "c"])
    scheduler.forget(second)
    assert [cohort.round for cohort in scheduler.pending()] == [first.round]
    third = scheduler.select()
    assert [cohort.round for cohort in scheduler.pending()] == [first.round, third.round]
    scheduler.observe({first[0]: 1.0}, round=first)
    assert journal.results()[-1] == (first.round, first[0], "ok", False, False)
    assert scheduler.client(first[0])["late"] == 0


def test_a_round_closes_when_the_last_missing_client_is_forgotten():
    scheduler = Scheduler(UniformRandom(), cohort_size=3)
    cohort = scheduler.select(["a", "b", "c"])
    scheduler.observe({"a": 1.0, "b": 2.0}, round=cohort)
    scheduler.forget(["c"])
    assert scheduler.pending() == []
    assert scheduler.client("a")["participations"] == 1
