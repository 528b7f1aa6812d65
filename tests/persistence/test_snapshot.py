"""Saved state: everything comes back, and what a file says is checked before it is believed."""

import pickle

import numpy as np
import pytest

from bsfl import BSFL, Observation, RoundPlan, Scheduler
from bsfl.errors import CorruptFile, NewerFormat, NotAStateFile
from bsfl.persistence import statefile
from saved_state import saved_state

NAN = float("nan")


@pytest.mark.parametrize(
    "ids",
    [
        [f"c{i}" for i in range(8)],
        list(range(8)),
        [-1, 2**63, 2**64 - 1, 3, 4, 5, 6, 7],
        ["", "ü", "日本", "a\nb", "\ud800", "x" * 1000, "<b>", "null"],
    ],
)
@pytest.mark.parametrize("wait", [True, False])
def test_everything_comes_back(tmp_path, ids, wait):
    policy = BSFL(alpha=4.0, tau_max=30.0)
    scheduler = Scheduler(policy, cohort_size=3, seed=2, clock=lambda: 0.0)
    scheduler.join(ids, samples=np.arange(1.0, 9.0))
    for _ in range(6):
        cohort = scheduler.select()
        scheduler.observe({c: 1.0 + k for k, c in enumerate(cohort[:-1])})
    scheduler.leave([ids[1]])
    scheduler.save(tmp_path / "s.bsfl", wait=wait)
    scheduler.saved()
    twin = Scheduler.load(str(tmp_path / "s.bsfl"), clock=lambda: 0.0)
    for _ in range(2):
        assert twin.policy == scheduler.policy
        assert twin.last_round == scheduler.last_round
        assert saved_state(twin) == saved_state(scheduler)
        assert twin.select() == scheduler.select()


def test_a_scheduler_without_clients(tmp_path):
    Scheduler(BSFL(), cohort_size=2).save(tmp_path / "s.bsfl")
    twin = Scheduler.load(tmp_path / "s.bsfl")
    assert (twin.round, twin.clients, twin.last_round) == (0, [], None)
    assert len(twin.select(available=["a", "b", "c"])) == 2


def test_every_number_of_a_plan_is_saved(tmp_path):
    plan = RoundPlan(
        target_responses=2,
        over_selection=1.5,
        deadline_s=3.0,
        min_responses=1,
        late="drop",
        max_staleness=4,
        lifetime_s=7.0,
        max_wait_s=5.0,
    )
    scheduler = Scheduler(cohort_size=1)
    scheduler.plan = plan
    scheduler.save(tmp_path / "s.bsfl")
    assert Scheduler.load(tmp_path / "s.bsfl").plan == plan


def test_no_pickle_is_involved(tmp_path, monkeypatch):
    for name in ("dump", "dumps", "load", "loads"):
        monkeypatch.delattr(pickle, name)
    Scheduler(cohort_size=1).save(tmp_path / "s.bsfl")
    Scheduler.load(tmp_path / "s.bsfl")


def test_a_file_of_something_else_is_rejected(tmp_path):
    statefile.write(tmp_path / "m", {"version": "0.1.0"}, {})
    with pytest.raises(NotAStateFile, match="holds something else than a scheduler"):
        Scheduler.load(tmp_path / "m")


# --- forged files


@pytest.fixture
def saved(tmp_path):
    """A file with rounds 4 and 5: both have a pending client, the last one is open."""
    scheduler = Scheduler(cohort_size=3, max_open_rounds=2, late="drop")
    scheduler.join(["ann", "bob", "cem", "dan", "eve"])
    for i in range(5):
        a, b, c = cohort = scheduler.select()
        first = {a: Observation(latency_s=3.0, loss=1.0), b: Observation(outcome="failed")}
        scheduler.observe(first)
        if i < 3:
            scheduler.observe({c: 2.0})
        if i == 3:
            scheduler.close(cohort)
    scheduler.save(tmp_path / "s")
    return tmp_path / "s"


def forged(path, change):
    header, arrays = statefile.read(path)
    change(header, arrays)
    statefile.write(path, header, arrays)
    return path


def test_the_file_as_it_is(saved):
    _, arrays = statefile.read(saved)
    assert arrays["rounds/number"].tolist() == [4, 5]
    assert arrays["rounds/size"].tolist() == [3, 3]
    assert (arrays["rounds/status"] > 0).tolist() == [True, False]
    assert arrays["rounds/outcome"].tolist() == [0, 2, -1, 0, 2, -1]
    scheduler = Scheduler.load(forged(saved, lambda header, arrays: None))
    assert [one.round for one in scheduler.pending()] == [5]


NUMBERED = "numbered in their order"
DISTINCT = "distinct clients, sorted"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rounds/outcome", np.array([0, 2, -1, 0, 2]), "must hold 6 values"),
        ("rounds/outcome", np.array([0, 2, -1, 0, 2, 4]), "holds 4"),
        ("rounds/outcome", np.array([0, 2, -1, 0, 2, -3]), "holds -3"),
        ("rounds/outcome", np.zeros(6), "must hold 6 values of type int64"),
        ("rounds/latency_s", np.array([-1.0] * 6), "holds -1.0"),
        ("rounds/latency_s", np.array([1e13] * 6), "holds"),
        ("rounds/loss", np.array([np.inf] * 6), "holds inf"),
        ("rounds/late", np.zeros(6, dtype=np.int64), "must hold"),
        ("rounds/late", np.array([False] * 3 + [True] * 3), "round is open"),
        ("rounds/late", np.array([False, False, True] + [False] * 3), "is late, or aggregated"),
        ("rounds/aggregated", np.array([True, True] + [False] * 4), "is late, or aggregated"),
        ("rounds/cohort", np.array([0, 0, 1, 0, 1, 2]), DISTINCT),
        ("rounds/cohort", np.array([0, 1, 2, 2, 1, 0]), DISTINCT),
        ("rounds/cohort", np.array([0, 1, 2, 0, 1, 5]), DISTINCT),
        ("rounds/cohort", np.array([-1, 1, 2, 0, 1, 2]), "holds -1"),
        ("rounds/size", np.array([7, -1]), "rounds/size must"),
        ("rounds/size", np.array([3, 2]), "must hold 5 values"),
        ("rounds/size", np.array([3]), "must hold 3 values"),
        ("rounds/number", np.array([5, 4]), NUMBERED),
        ("rounds/number", np.array([5, 5]), NUMBERED),
        ("rounds/number", np.array([0, 5]), NUMBERED),
        ("rounds/number", np.array([4, 6]), NUMBERED),
        ("rounds/number", np.array([3, 4]), "the last round is missing"),
        ("rounds/status", np.array([3, 0]), "holds 3"),
        ("rounds/target_responses", np.array([0, 3]), "holds 0"),
        ("rounds/n_invited", np.array([3, 10**16]), "holds"),
        ("rounds/n_available", np.array([-1, 5]), "holds -1"),
        ("rounds/deadline_s", np.array([-1.0, NAN]), "holds -1.0"),
        ("rounds/measured_s", np.array([np.inf, NAN]), "holds inf"),
        ("rounds/opened_s", np.array([NAN, 0.0]), "holds nan"),
        ("rounds/opened_s", np.array([np.inf, 0.0]), "holds inf"),
        ("pool/late", np.array([99, 0, 0, 0, 0], dtype=np.int32), "counted in part"),
        ("pool/failed", np.array([99, 0, 0, 0, 0], dtype=np.int32), "counted in part"),
        ("pool/n_timed", np.array([99, 0, 0, 0, 0], dtype=np.int32), "counted in part"),
        ("pool/spread", np.full(5, np.inf, dtype=np.float32), "holds inf"),
        ("pool/log_latency", np.full(5, 400.0, dtype=np.float32), "holds 400"),
        ("pool/n_members", np.array(4), "n_members does not count the members"),
        ("task/participations", np.full(5, 99, dtype=np.int32), "more responses than invitations"),
        ("task/participations", np.zeros(5, dtype=np.int32), "credit more participations"),
        ("task/invitations", np.full(5, 99, dtype=np.int32), "in more rounds than it was a member"),
        ("task/fair_count", np.full(5, 5.1), "in more rounds than it was a member"),
        ("task/joined", np.full(5, 7, dtype=np.int32), "left after the last round"),
        ("task/last_selected", np.full(5, 6, dtype=np.int32), "selected after the last round"),
        ("task/round", np.array(7), "the last round is missing"),
        ("task/round", np.array(-1), "holds -1"),
    ],
)
def test_forged_arrays_are_rejected(saved, name, value, message):
    with pytest.raises(CorruptFile, match=message):
        Scheduler.load(forged(saved, lambda header, arrays: arrays.update({name: value})))


def test_missing_arrays_are_rejected(saved):
    _, arrays = statefile.read(saved)
    content = saved.read_bytes()
    for name in arrays:
        with pytest.raises(CorruptFile):
            Scheduler.load(forged(saved, lambda header, arrays, name=name: arrays.pop(name)))
        saved.write_bytes(content)


def test_an_id_that_is_too_long_is_rejected(saved):
    def lengthen(header, arrays):
        text = arrays["ids/ids-text"].tobytes() + b"e" * 1000
        arrays["ids/ids-text"] = np.frombuffer(text, np.uint8)
        arrays["ids/ids-length"][-1] += 1000

    with pytest.raises(CorruptFile, match="at most 1,000 characters"):
        Scheduler.load(forged(saved, lengthen))


HEADERS = [("seq", -1), ("seq", "x"), ("clock_s", NAN), ("clock_s", None), ("n_rows", 6)]
HEADERS += [("n_rows", -1), ("plan", {}), ("plan", None), ("plan", {"m": 1}), ("seed", -1)]
HEADERS += [("max_open_rounds", 0), ("schema", 0), ("schema", "x"), ("feature_columns", 3)]
HEADERS += [("feature_columns", ["a"]), ("feature_columns", [5])]


@pytest.mark.parametrize(("key", "value"), HEADERS)
def test_forged_headers_are_rejected(saved, key, value):
    with pytest.raises(CorruptFile):
        Scheduler.load(forged(saved, lambda header, arrays: header.update({key: value})))


def test_a_newer_schema_says_so(saved):
    with pytest.raises(NewerFormat, match="has schema 2, this bsfl reads up to 1; upgrade bsfl"):
        Scheduler.load(forged(saved, lambda header, arrays: header.update(schema=2)))


@pytest.mark.parametrize(
    ("key", "value"),
    [("late", "maybe"), ("target_responses", 0), ("deadline_s", NAN), ("max_wait_s", -1.0)],
)
def test_forged_plans_are_rejected(saved, key, value):
    with pytest.raises(CorruptFile):
        Scheduler.load(forged(saved, lambda header, arrays: header["plan"].update({key: value})))
