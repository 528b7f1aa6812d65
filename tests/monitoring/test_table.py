"""What a scheduler knows: rows by client, a text, and the result of the last round."""

import math
import statistics
import sys

import numpy as np
import pytest

from bsfl import BSFL, Observation, Scheduler, UniformRandom
from bsfl._core.state import leaves
from bsfl.dashboard.sums import Sums
from bsfl.monitoring import COLUMNS, read_journal

TIMEOUT = Observation(latency_s=60.0, outcome="timeout")
FAILED = Observation(outcome="failed")


def by_id(scheduler):
    return {row["client"]: row for row in scheduler.table()}


def test_a_row_holds_the_results_of_a_client():
    scheduler = Scheduler(UniformRandom(), cohort_size=3)
    clients = ["ann", "bob", "cem"]  # all are selected every time
    first = {"ann": 2.0, "bob": TIMEOUT, "cem": FAILED}
    for responses in (first, {"ann": 8.0, "cem": FAILED}, {"ann": 4.0, "bob": 5.0}):
        scheduler.observe(responses, round=scheduler.select(clients))
    scheduler.observe({"bob": 70.0}, round=2)  # it has closed
    scheduler.close()  # credits who responded to round 3
    scheduler.join(["dan"])
    scheduler.leave(["cem"])
    rows = by_id(scheduler)
    assert list(rows) == ["ann", "bob", "cem", "dan"]
    assert all(list(row) == list(COLUMNS) for row in rows.values())
    assert [scheduler.client(client) for client in rows] == list(rows.values())
    counts = ("member", "online", "invitations", "participations", "late", "timeouts", "failures")
    assert [tuple(row[name] for name in counts) for row in rows.values()] == [
        (True, True, 3, 3, 0, 0, 0),
        (True, True, 3, 2, 1, 1, 0),
        (False, False, 3, 0, 0, 0, 2),
        (True, True, 0, 0, 0, 0, 0),
    ]
    assert [row["pending"] for row in rows.values()] == [0, 0, 1, 0]
    assert [row["last_selected"] for row in rows.values()] == [3, 3, 3, None]
    # three of three could be selected in three rounds: a fair count of 3 each
    assert [row["participation_ratio"] for row in rows.values()] == [
        1.0, pytest.approx(2 / 3), 0.0, None,
    ]  # fmt: skip
    assert rows["ann"]["latency_s"] == pytest.approx(4.0)  # the third root of 2 * 8 * 4
    assert rows["bob"]["latency_s"] == pytest.approx(math.sqrt(70.0 * 5.0))
    assert rows["cem"]["latency_s"] is rows["cem"]["low_s"] is rows["dan"]["high_s"] is None
    assert rows["ann"]["low_s"] < 4.0 < rows["ann"]["high_s"]


def test_the_interval_by_hand():
    scheduler = Scheduler(UniformRandom(), cohort_size=1)
    for latency_s in (1.0, math.e, math.e**2):
        scheduler.observe({"ann": latency_s}, round=scheduler.select(["ann"]))
    row = scheduler.client("ann")
    # logarithms 0, 1, 2: mean 1, squared deviations 2, freedom 2. All clients together:
    # variance (4 * 0.05 + 2) / (4 + 2), which counts as 4 responses: (4 v + 2) / (4 + 2)
    variance = (4 * 0.05 + 2) / (4 + 2)
    sigma = math.sqrt((4 * variance + 2) / (4 + 2))
    half = statistics.NormalDist().inv_cdf(0.9) * sigma * math.sqrt(1 + 1 / 3)
    expected = [math.exp(1.0 + k * half) for k in (0, -1, 1)]
    assert [row[n] for n in ("latency_s", "low_s", "high_s")] == pytest.approx(expected, rel=1e-6)


def test_the_live_page_shows_the_same_intervals(tmp_path):
    """`bsfl inspect` reads the scheduler, `bsfl watch` the journal; both see one history."""
    rng, journal, clients = np.random.default_rng(3), tmp_path / "journal", range(30)
    scheduler = Scheduler(cohort_size=4, max_open_rounds=2, forget_after=15, journal=journal)
    for i in range(60):
        scheduler.select([c for c in clients if rng.random() < 0.7])
        for client in scheduler.in_flight[:5]:
            outcome = str(rng.choice(["ok", "ok", "ok", "timeout", "failed"]))
            latency_s = float(rng.lognormal(client / 10.0, 0.4))
            scheduler.observe({client: Observation(latency_s=latency_s, outcome=outcome)})
        if i % 10 == 9:
            scheduler.observe(dict.fromkeys(scheduler.in_flight[:1], 1e-8))
            scheduler.abandon()
            scheduler.forget({i % 30} & set(scheduler.clients))
    scheduler.rename(scheduler.clients[0], 99)
    sums = Sums()
    for entry in read_journal(journal):
        sums.add(entry)
    shown = {
        row["client"]: pytest.approx((row["latency_s"], row["low_s"], row["high_s"]), rel=1e-5)
        for row in scheduler.table()
        if row["latency_s"] is not None
    }
    assert len(shown) > 20
    rows = sums.invited()
    latencies = zip(*(column.tolist() for column in sums.latencies(rows)), strict=True)
    found = {sums.names[k]: one for k, one in zip(rows.tolist(), latencies, strict=True)}
    assert {client: one for client, one in found.items() if not np.isnan(one[0])} == shown


def test_rows_name_the_right_clients_after_others_left_or_were_forgotten():
    """In 0.1 users zipped scheduler.clients with arrays of the state, which has all rows."""
    scheduler = Scheduler(UniformRandom(), cohort_size=4)
    seconds = {f"p{k}": 1.0 + k for k in range(12)}
    clients = list(seconds)
    for gone, part in ((scheduler.leave, ["p0", "p3"]), (scheduler.forget, ["p1", "p7"])):
        for _ in range(8):
            scheduler.observe({c: seconds[c] for c in scheduler.select(clients)})
        gone(part)
        clients = [client for client in clients if client not in part]
    rows = by_id(scheduler)
    assert set(rows) == set(seconds) - {"p1", "p7"}
    for client, row in rows.items():
        assert row["member"] == (client in clients)
        assert row["latency_s"] == pytest.approx(seconds[client])


def test_pool_and_task_cost_at_most_100_bytes_a_client():
    scheduler = Scheduler(cohort_size=2)
    scheduler.join(range(4000))
    arrays = [*leaves(scheduler._engine.pool), *leaves(scheduler._engine.task)]
    assert sum(array[:4000].nbytes for _, array in arrays if np.ndim(array)) <= 100 * 4000


def test_rows_make_a_data_frame():
    pytest.importorskip("pandas")
    scheduler = Scheduler(cohort_size=2)
    scheduler.observe(dict.fromkeys(scheduler.select(["ann", "bob", "cem"]), 3.0))
    frame = scheduler.table().to_frame()
    assert frame["member"].to_dict() == {"ann": True, "bob": True, "cem": True}
    assert Scheduler(cohort_size=2).table().to_frame().empty


def test_without_pandas_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        Scheduler(cohort_size=2).table().to_frame()


# --- the summary ------------------------------------------------------------------------------------


def test_a_whole_summary():
    scheduler = Scheduler(BSFL(alpha=10.0), cohort_size=2, over_selection=1.5)
    scheduler.join(["ann", "bob", "cem", "dan", "eve"])
    cohort = scheduler.select(["ann", "bob", "cem"])
    scheduler.observe({"ann": 2.0, "bob": 8.0}, round=cohort)
    scheduler.select(["ann", "bob", "cem"])
    scheduler.observe({"ann": 2.0, "bob": TIMEOUT})
    scheduler.leave(["eve"])
    rows = by_id(scheduler)
    ann, bob = (
        f"{c} {m} s ({rows[c]['low_s']:.3g} - {rows[c]['high_s']:.3g})"
        for c, m in (("ann", 2), ("bob", 8))
    )
    # round 1 credits ann and bob, round 2 is open; the fair count of all three is 4 / 3, so the
    # ratios are 0, 3 / 4 and 3 / 4, and their Gini is (0 * 3 / 4 + 2 * 3 / 4) / (3 * 3 / 2) = 1 / 3
    assert scheduler.summary().splitlines() == [
        f"{scheduler.policy}, cohorts of 2, round 2",
        "  clients    4 members, 2 have responded; 1 left",
        "  last round 1 of 3 responded in 60 s, 1 timed out, 1 pending",
        f"  fastest    {ann}, {bob}",
        "  overdue    1 clients: cem since round 1",
        "  fairness   Gini 0.33; the tenth that takes part least has a participation ratio of 0.00",
        "  learned    alpha 10",
    ]


def test_a_summary_names_a_few_clients_and_hides_control_characters():
    """Seven clients that took 1, 11, 21, ... s; those of four rounds are overdue."""
    scheduler = Scheduler(UniformRandom(), cohort_size=7, max_open_rounds=9)
    assert "none yet" in str(scheduler)
    clients = ["ann", "bob", "c\x1b[31mem", "dan", "eve", "flo", "gus"]
    scheduler.observe({c: 1.0 + 10 * clients.index(c) for c in scheduler.select(clients)})
    for client in ("gus", "ann", "flo", "bob", "dan"):
        scheduler.select([client])
    text = str(scheduler)
    assert "fastest    ann 1 s (" in text
    assert "slowest    gus 61 s (" in text
    assert "4 clients: gus since round 2, ann since round 3, flo since round 4, ..." in text
    assert "\x1b" not in text, "an id cannot colour the terminal"
    assert "learned" not in text


def test_looking_changes_nothing(tmp_path):
    scheduler = Scheduler(cohort_size=2, clock=lambda: 0.0)
    scheduler.observe(dict.fromkeys(scheduler.select(range(5)), 3.0))
    scheduler.select()
    scheduler.join([99])  # has no row in the state yet
    scheduler.save(tmp_path / "before")
    str(scheduler), repr(scheduler), scheduler.table(), scheduler.explain(3), scheduler.explain(99)
    scheduler.client(3), scheduler.pending(), scheduler.in_flight, scheduler.diagnostics()
    scheduler.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


def test_a_table_can_be_printed():
    scheduler = Scheduler(UniformRandom(), cohort_size=2)
    scheduler.observe(dict.fromkeys(scheduler.select(["ann", "<bob>\n"]), 3.25))
    scheduler.join([f"phone-{i}" for i in range(30)])
    lines = str(scheduler.table()).splitlines()
    assert lines[0].split() == list(COLUMNS)
    assert lines[1].split()[:4] == ["ann", "yes", "yes", "3.25"]
    assert lines[2].startswith("'<bob>\\n'  yes")
    assert lines[-1] == "and 12 more"
    assert len({line.index("yes") for line in lines[1:-1]}) == 1, "columns stand below each other"
    assert len(lines) == 22
