"""Ctrl-C at any point of a call, and callbacks that call the scheduler: rounds stay consistent."""

import os

import pytest

from bsfl import BSFL, Observation, Scheduler
from bsfl.errors import InvalidInput
from bsfl.monitoring import read_journal
from memory_journal import MemoryJournal
from saved_state import differences, saved_state

IDS = [f"phone-{i}" for i in range(8)]


class Interrupted(BSFL):
    """BSFL in which Ctrl-C is pressed once, in the middle of a method, when `armed` says so."""

    armed: set = set()  # noqa: RUF012 - shared on purpose

    def _interrupt(self, name):
        if name in self.armed:
            self.armed.discard(name)
            raise KeyboardInterrupt

    def init(self, n_clients):
        state = super().init(n_clients)
        self._interrupt("init")
        return state

    def select(self, state, context, rng):
        selection = super().select(state, context, rng)
        self._interrupt("select")
        return selection

    def observe(self, state, context, report):
        super().observe(state, context, report)
        state.slowest_s = 99.0
        self._interrupt("observe")

    def close(self, state, context, closed):
        state.memory.observed += 7
        self._interrupt("close")
        state.memory.observed -= 7

    def diagnostics(self, state, context):
        self._interrupt("diagnostics")
        return super().diagnostics(state, context)


@pytest.fixture(autouse=True)
def _disarmed():
    Interrupted.armed.clear()
    yield
    assert not Interrupted.armed, "the interrupt did not come"


def started(journal, on_round=None):
    """Return a scheduler with an open round that lacks one response."""
    scheduler = Scheduler(
        Interrupted(alpha=2.0),
        cohort_size=3,
        journal=journal,
        on_round=on_round,
        clock=lambda: 0.0,
    )
    scheduler.join(IDS)
    scheduler.observe(dict.fromkeys(scheduler.select(), 2.0))
    cohort = scheduler.select()
    scheduler.observe(dict.fromkeys(cohort[:2], 3.0))
    return scheduler, cohort


def kinds(journal):
    return [entry["kind"] for entry in read_journal(journal)]


CALLS = {
    "select": lambda s, cohort: s.select(),
    "select with new clients": lambda s, cohort: s.select([*IDS[1:], "new-1", "new-2"]),
    "observe": lambda s, cohort: s.observe({cohort[2]: 4.0}),
    "observe a failure": lambda s, cohort: s.observe({cohort[2]: Observation(outcome="failed")}),
    "close": lambda s, cohort: s.close(cohort, aggregated=cohort[:1]),
    "abandon": lambda s, cohort: s.abandon(),
    "forget": lambda s, cohort: s.forget([cohort[2]]),
}
POINTS = [(call, point) for call in CALLS for point in ("close", "diagnostics")]
POINTS += [("select", "select"), ("select with new clients", "select")]
POINTS += [("observe", "observe"), ("observe a failure", "observe")]
POINTS += [("select with new clients", "init"), ("forget", "init")]


@pytest.mark.parametrize(("call", "point"), POINTS)
def test_ctrl_c_in_a_policy_leaves_everything_as_it_was(call, point, tmp_path):
    closed, journal = [], tmp_path / "journal"
    scheduler, cohort = started(journal, on_round=closed.append)
    before, entries = saved_state(scheduler), list(read_journal(journal))
    Interrupted.armed.add(point)
    with pytest.raises(KeyboardInterrupt):
        CALLS[call](scheduler, cohort)
    assert differences(saved_state(scheduler), before) == []
    assert list(read_journal(journal)) == entries
    assert [record.round for record in closed] == [1]
    found = CALLS[call](scheduler, cohort)
    uninterrupted, _ = started(tmp_path / "uninterrupted")
    assert CALLS[call](uninterrupted, cohort) == found
    assert differences(saved_state(scheduler), saved_state(uninterrupted)) == []
    assert [record.round for record in closed] == [1, 2]
    assert kinds(journal) == kinds(tmp_path / "uninterrupted")


def test_ctrl_c_in_a_callback_leaves_the_round_closed(tmp_path):
    closed = []

    def interrupt(record):
        closed.append(record.round)
        if record.round in (2, 3):
            raise KeyboardInterrupt

    scheduler, cohort = started(tmp_path / "journal", on_round=interrupt)
    with pytest.raises(KeyboardInterrupt):
        scheduler.observe({cohort[2]: 4.0})
    assert scheduler.pending() == scheduler.in_flight == []
    assert scheduler.last_round.n_fresh == 3
    assert kinds(tmp_path / "journal")[-2:] == ["responses", "closed"]
    scheduler.select()
    with pytest.raises(KeyboardInterrupt):
        scheduler.select()  # closes round 3
    (cohort,) = scheduler.pending()
    assert (cohort.round, len(cohort)) == (4, 3), "the caller finds it here"
    scheduler.observe(dict.fromkeys(cohort, 1.0), round=cohort)
    assert closed == [1, 2, 3, 4]


def test_ctrl_c_while_the_journal_is_written_loses_no_event(tmp_path, monkeypatch):
    def interrupt(handle, content):
        raise KeyboardInterrupt

    scheduler = Scheduler(cohort_size=2, journal=tmp_path / "journal")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            scheduler.join(IDS)
    scheduler.select()
    assert kinds(tmp_path / "journal") == ["joined", "opened"]


# --- callbacks and handlers that call the scheduler -----------------------------------------------


def test_a_callback_may_call_the_scheduler(tmp_path):
    texts, cohorts = [], []

    def on_round(record):
        texts.append(scheduler.summary())
        assert scheduler.last_round == record
        scheduler.save(tmp_path / "s")
        scheduler.explain(record.cohort[0])
        if record.round < 4:
            cohorts.append(scheduler.select())

    scheduler = Scheduler(
        cohort_size=2, on_round=on_round, journal=tmp_path / "journal", clock=lambda: 0.0
    )
    cohorts.append(scheduler.select(IDS))
    while scheduler.pending():
        scheduler.observe(dict.fromkeys(scheduler.pending()[0], 1.0))
    assert [cohort.round for cohort in cohorts] == [1, 2, 3, 4]
    assert "round 4" in texts[3]
    written = kinds(tmp_path / "journal")
    assert written.count("opened") == written.count("closed") == 4
    assert Scheduler.load(tmp_path / "s").round == 4


class BrokenJournal(MemoryJournal):
    def flush(self):
        raise ValueError("no")


def broken(record):
    raise RuntimeError("no network")


def test_callbacks_and_a_journal_that_fail_stop_nothing_and_are_reported_once(caplog):
    records = []
    hooks = {"on_round": [broken, records.append], "journal": BrokenJournal()}
    scheduler = Scheduler(cohort_size=2, **hooks)
    for _ in range(5):
        scheduler.observe(dict.fromkeys(scheduler.select(IDS), 1.0))
    assert [record.round for record in records] == [1, 2, 3, 4, 5]
    assert sum("rounds continue" in message for message in caplog.messages) == 2


def test_a_signal_handler_may_call_the_scheduler_while_the_journal_is_written(
    tmp_path, monkeypatch
):
    def interrupted(handle, content):
        if not scheduler.clients[2:]:
            scheduler.join(["cem"])  # as a handler would
        return write(handle, content)

    write = os.write
    scheduler = Scheduler(cohort_size=2, journal=tmp_path / "journal")
    monkeypatch.setattr(os, "write", interrupted)
    scheduler.join(["ann", "bob"])
    new = [entry["new"] for entry in read_journal(tmp_path / "journal")]
    assert new == [["ann", "bob"], ["cem"]]


@pytest.mark.parametrize("point", ["select", "observe", "close"])
def test_a_call_in_the_middle_of_another_is_rejected(point, tmp_path):
    """As by a signal handler that saves; half of a call would be in the file."""

    class Reentrant(BSFL):
        def _call(self, name):
            if name == point and scheduler.round:
                for call in (scheduler.join, scheduler.save):
                    with pytest.raises(InvalidInput, match="in the middle of another"):
                        call(tmp_path / "s" if call == scheduler.save else ["new"])
                rejected.append(name)

        def select(self, state, context, rng):
            self._call("select")
            return super().select(state, context, rng)

        def observe(self, state, context, report):
            self._call("observe")
            super().observe(state, context, report)

        def close(self, state, context, closed):
            self._call("close")

    rejected = []
    scheduler = Scheduler(Reentrant(), cohort_size=2)
    for _ in range(2):
        scheduler.observe(dict.fromkeys(scheduler.select(IDS), 1.0))
    assert point in rejected
    assert (scheduler.round, scheduler.clients) == (2, IDS)
    assert not (tmp_path / "s").exists()
