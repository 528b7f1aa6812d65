"""One event a round: in the log, and for callbacks, which cannot stop it."""

import logging

import pytest

from bsfl import Observation, Scheduler, UniformRandom
from bsfl.errors import InvalidInput
from bsfl.monitor import read_journal


def play(scheduler, rounds, fleet=range(9)):
    for _ in range(rounds):
        scheduler.observe({c: 1.0 + c for c in scheduler.select(fleet)})


def test_a_callback_is_given_the_record_of_every_round_once():
    records, others = [], []
    scheduler = Scheduler(UniformRandom(), cohort_size=2, on_round=[records.append, others.append])
    play(scheduler, 3)
    first = scheduler.select(range(20, 29))
    scheduler.observe({first[0]: 2.0})
    assert len(records) == 3, "one is missing"
    scheduler.select(range(9))
    assert [record.t for record in records] == [1, 2, 3, 4]
    assert (records[3].n_answered, records[3].duration_s) == (1, 2.0)
    assert others == records


def test_a_callback_that_fails_stops_nothing_and_is_reported_once(caplog):
    def broken(record):
        raise RuntimeError("no network")

    records = []
    scheduler = Scheduler(UniformRandom(), cohort_size=2, on_round=[broken, records.append])
    play(scheduler, 5)
    assert len(records) == 5
    assert sum("rounds go on" in message for message in caplog.messages) == 1


def test_figures_that_fail_stop_nothing(caplog, tmp_path):
    class Broken(UniformRandom):
        def figures(self, state, context):
            raise RuntimeError("no figure")

    scheduler = Scheduler(Broken(), cohort_size=2, journal=tmp_path / "rounds.jsonl")
    play(scheduler, 3)
    assert [line["figures"] for line in read_journal(tmp_path / "rounds.jsonl")] == [{}] * 3
    assert sum("rounds go on" in message for message in caplog.messages) == 1


def test_a_callback_may_look_at_the_scheduler():
    texts = []
    scheduler = Scheduler(
        UniformRandom(), cohort_size=2, on_round=lambda r: texts.append(str(scheduler))
    )
    play(scheduler, 2)
    assert "round 2" in texts[1]


@pytest.mark.parametrize("wrong", [3, ["text"]])
def test_what_is_no_function_is_refused(wrong):
    with pytest.raises((InvalidInput, TypeError)):
        Scheduler(cohort_size=2, on_round=wrong)


def test_the_log_has_one_line_a_round(caplog):
    caplog.set_level(logging.INFO, logger="bsfl")
    scheduler = Scheduler(UniformRandom(), cohort_size=2)
    a, b = scheduler.select(["ann", "bob"])
    scheduler.observe({a: 3.0, b: Observation(latency=60.0, outcome="timeout")})
    scheduler.select(["ann", "bob"])
    assert caplog.messages == ["round 1: 1 of 2 answered in 60 s, 1 timed out"]
    assert caplog.records[0].round.t == 1
