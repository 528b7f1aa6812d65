"""What a scheduler shows of itself: rows by id, a text, and what became of the last round."""

import math
import statistics

import numpy as np
import pytest

from bsfl import BSFL, Floor, Observation, Pace, Scheduler, UniformRandom
from bsfl.monitor import COLUMNS
from bsfl.state import leaves

TIMEOUT = Observation(latency=60.0, outcome="timeout")
FAILED = Observation(outcome="failed")


def late(seconds):
    return Observation(latency=seconds, outcome="late")


def by_id(scheduler):
    return {row["client"]: row for row in scheduler.table()}


def test_a_row_tells_what_became_of_a_client():
    scheduler = Scheduler(UniformRandom(), cohort_size=3)
    fleet = ["ann", "bob", "cem"]  # all are chosen every time
    for told in (
        {"ann": 2.0, "bob": TIMEOUT, "cem": FAILED},
        {"ann": 8.0, "bob": late(70.0), "cem": FAILED},
        {"ann": 4.0, "bob": 5.0},
    ):
        scheduler.select(fleet)
        scheduler.observe(told)
    scheduler.join(["dan"])
    scheduler.leave(["cem"])
    rows = by_id(scheduler)
    assert list(rows) == ["ann", "bob", "cem", "dan"]
    assert all(list(row) == list(COLUMNS) for row in rows.values())
    counted = ("member", "answers", "late", "timeouts", "failures", "awaited", "last_chosen")
    assert [tuple(row[name] for name in counted) for row in rows.values()] == [
        (True, 3, 0, 0, 0, 0, 3),
        (True, 1, 1, 1, 0, 0, 3),
        (False, 0, 0, 0, 2, 1, 3),
        (True, 0, 0, 0, 0, 0, None),
    ]
    # three of three could be chosen in three rounds: a fair number of 3 each
    assert [row["share"] for row in rows.values()] == [1.0, pytest.approx(1 / 3), 0.0, None]
    assert rows["ann"]["latency_s"] == pytest.approx(4.0)  # the third root of 2 * 8 * 4
    assert rows["bob"]["latency_s"] == pytest.approx(math.sqrt(70.0 * 5.0))
    assert rows["cem"]["latency_s"] is rows["cem"]["low_s"] is rows["dan"]["share"] is None
    assert rows["ann"]["low_s"] < 4.0 < rows["ann"]["high_s"]


def test_eight_of_ten_answers_lie_in_the_interval():
    rng = np.random.default_rng(1)
    scheduler = Scheduler(UniformRandom(), cohort_size=20)
    middle, sigma = rng.uniform(0.0, 4.0, 20), rng.uniform(0.2, 0.8, 20)
    for _ in range(30):
        cohort = scheduler.select(range(20))
        scheduler.observe({k: math.exp(rng.normal(middle[k], sigma[k])) for k in cohort})
    inside = []
    for k, row in by_id(scheduler).items():
        new = np.exp(rng.normal(middle[k], sigma[k], 500))
        inside.append(np.mean((new >= row["low_s"]) & (new <= row["high_s"])))
    assert statistics.mean(inside) == pytest.approx(0.8, abs=0.03)


def test_rows_name_the_right_clients_whoever_left_or_was_forgotten():
    """In 0.1 people zipped scheduler.clients with arrays of the state, which has all ever met."""
    scheduler = Scheduler(UniformRandom(), cohort_size=4, seed=3)
    fleet = [f"p{k}" for k in range(12)]
    seconds = {client: 1.0 + k for k, client in enumerate(fleet)}
    for t in range(20):
        if t == 5:
            scheduler.leave(["p0", "p3"])
            fleet = [client for client in fleet if client not in ("p0", "p3")]
        if t == 9:
            scheduler.forget(["p1", "p7"])
            fleet = [client for client in fleet if client not in ("p1", "p7")]
        scheduler.observe({c: seconds[c] for c in scheduler.select(fleet)})
    rows = by_id(scheduler)
    assert set(rows) == set(seconds) - {"p1", "p7"}
    for client, row in rows.items():
        assert row["member"] == (client not in ("p0", "p3"))
        if row["latency_s"] is not None:
            assert row["latency_s"] == pytest.approx(seconds[client])


def test_the_ledger_costs_at_most_100_bytes_a_client():
    scheduler = Scheduler(cohort_size=2)
    scheduler.select(range(1000))
    ledger = scheduler._learned.ledger
    assert sum(np.asarray(a).nbytes for _, a in leaves(ledger) if np.ndim(a)) <= 100 * 1000


def test_rows_make_a_frame():
    pytest.importorskip("pandas")
    scheduler = Scheduler(cohort_size=2)
    scheduler.observe(dict.fromkeys(scheduler.select(["ann", "bob", "cem"]), 3.0))
    frame = scheduler.table().to_frame()
    assert list(frame.index) == ["ann", "bob", "cem"]
    assert frame["answers"].sum() == 2
    assert Scheduler(cohort_size=2).table().to_frame().empty


def test_without_pandas_the_frame_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        Scheduler(cohort_size=2).table().to_frame()


def test_the_last_round_is_filled_in_as_answers_come(tmp_path):
    scheduler = Scheduler(UniformRandom(), cohort_size=4)
    a, b, c, d = scheduler.select(range(4))
    assert scheduler.last_round.duration_s is None
    assert scheduler.last_round.n_timeouts is None
    scheduler.observe(
        {a: Observation(latency=3.0, loss=2.0), b: Observation(latency=5.0, loss=1.0)}
    )
    record = scheduler.last_round
    assert (record.duration_s, record.n_answered, record.n_timeouts) == (5.0, 2, 0)
    assert record.train_loss == 1.5
    scheduler.save(tmp_path / "s.bsfl")
    for one in (scheduler, Scheduler.load(tmp_path / "s.bsfl")):
        one.observe({c: TIMEOUT, d: FAILED})
        record = one.last_round
        counts = record.n_answered, record.n_timeouts, record.n_failed, record.n_late
        assert counts == (2, 1, 1, 0)
        assert record.duration_s == 60.0


def test_who_comes_late_makes_no_round_longer():
    scheduler = Scheduler(UniformRandom(), cohort_size=2, invite=2.0)
    a, b, c, d = scheduler.select(range(9))
    scheduler.observe({a: 3.0, b: 5.0})
    scheduler.observe({c: late(80.0), d: TIMEOUT})
    record = scheduler.last_round
    assert (record.duration_s, record.n_answered, record.n_late) == (5.0, 2, 1)


def test_an_answer_to_an_older_round_is_not_the_last_rounds():
    scheduler = Scheduler(UniformRandom(), cohort_size=2)
    first = scheduler.select(range(2))
    scheduler.select(range(2, 4))
    scheduler.observe({first[0]: 99.0})
    assert scheduler.last_round.duration_s is None


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        (Pace(), "price of a second"),
        (BSFL(alpha=10.0), "alpha 10"),
        (BSFL(alpha=Floor(0.5)), "alpha"),
        (UniformRandom(), None),
    ],
)
def test_a_summary_tells_who_is_slow_who_is_overdue_and_what_was_found(policy, found):
    scheduler = Scheduler(policy, cohort_size=2)
    assert "none yet" in str(scheduler)
    fleet = ["ann", "bob", "c\x1b[31mem", "dan", "eve", "flo", "gus"]
    for t in range(12):
        cohort = scheduler.select([c for c in fleet if c not in scheduler.outstanding])
        told = cohort if t != 3 else [c for c in cohort if c != max(cohort)]
        scheduler.observe({c: 1.0 + 10 * fleet.index(c) for c in told})
    text = scheduler.summary()
    assert text == str(scheduler)
    assert "7 clients" in text
    assert "since round 4" in text
    assert "\x1b" not in text, "an id cannot colour the terminal"
    assert (found or "alpha") in text or found is None
    assert "Gini" in text
    fastest = next(line for line in text.splitlines() if "fastest" in line)
    assert "ann 1 s" in fastest


def test_looking_changes_nothing(tmp_path):
    scheduler = Scheduler(cohort_size=2)
    scheduler.observe(dict.fromkeys(scheduler.select(range(5)), 3.0))
    scheduler.select()
    scheduler.join([99])  # has no row in the state yet
    scheduler.save(tmp_path / "before")
    str(scheduler), repr(scheduler), scheduler.table(), scheduler.explain(3), scheduler.explain(99)
    scheduler.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


def test_a_table_can_be_printed():
    scheduler = Scheduler(UniformRandom(), cohort_size=2)
    scheduler.observe(dict.fromkeys(scheduler.select(["ann", "<bob>\n"]), 3.25))
    scheduler.join([f"phone-{i}" for i in range(30)])
    lines = str(scheduler.table()).splitlines()
    assert lines[0].split() == list(COLUMNS)
    assert lines[1].split()[:3] == ["ann", "yes", "3.25"]
    assert lines[2].startswith("'<bob>\\n'  yes")
    assert lines[-1] == "and 12 more"
    assert len({line.index("yes") for line in lines[1:-1]}) == 1, "columns stand below each other"
    assert len(lines) == 22
