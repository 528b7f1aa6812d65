"""What a file says of rounds and clients is checked before it is believed."""

import numpy as np
import pytest

from bsfl import Observation, Scheduler
from bsfl.errors import CorruptFile
from bsfl.persistence import statefile

NAN = float("nan")


@pytest.fixture
def saved(tmp_path):
    """A file with rounds 4 and 5: both have a pending client, the last one is open."""
    scheduler = Scheduler(cohort_size=3, max_open_rounds=2, late="drop")
    scheduler.join(["ann", "bob", "cem", "dan", "eve"])
    for i in range(5):
        cohort = scheduler.select()
        a, b, c = cohort
        scheduler.observe(
            {a: Observation(latency_s=3.0, loss=1.0), b: Observation(outcome="failed")}
        )
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


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rounds/outcome", np.array([0, 2, -1, 0, 2]), "rounds/outcome must hold 6 values"),
        ("rounds/outcome", np.array([0, 2, -1, 0, 2, 4]), "rounds/outcome holds 4"),
        ("rounds/outcome", np.array([0, 2, -1, 0, 2, -3]), "rounds/outcome holds -3"),
        ("rounds/outcome", np.zeros(6), "rounds/outcome must hold 6 values of type int64"),
        ("rounds/latency_s", np.array([-1.0] * 6), "rounds/latency_s holds -1.0"),
        ("rounds/latency_s", np.array([1e13] * 6), "rounds/latency_s holds"),
        ("rounds/loss", np.array([np.inf] * 6), "rounds/loss holds inf"),
        ("rounds/late", np.zeros(6, dtype=np.int64), "rounds/late"),
        ("rounds/cohort", np.array([0, 0, 1, 0, 1, 2]), "distinct clients, sorted"),
        ("rounds/cohort", np.array([0, 1, 2, 2, 1, 0]), "distinct clients, sorted"),
        ("rounds/cohort", np.array([0, 1, 2, 0, 1, 5]), "distinct clients, sorted"),
        ("rounds/cohort", np.array([-1, 1, 2, 0, 1, 2]), "rounds/cohort holds -1"),
        ("rounds/size", np.array([7, -1]), "rounds/size must"),
        ("rounds/size", np.array([3, 2]), "must hold 5 values"),
        ("rounds/size", np.array([3]), "rounds/cohort must hold 3 values"),
        ("rounds/number", np.array([5, 4]), "numbered in their order"),
        ("rounds/number", np.array([5, 5]), "numbered in their order"),
        ("rounds/number", np.array([0, 5]), "numbered in their order"),
        ("rounds/number", np.array([4, 6]), "numbered in their order"),
        ("rounds/number", np.array([3, 4]), "the last round is missing"),
        ("rounds/status", np.array([3, 0]), "rounds/status holds 3"),
        ("rounds/target_responses", np.array([0, 3]), "rounds/target_responses holds 0"),
        ("rounds/n_invited", np.array([3, 10**16]), "rounds/n_invited holds"),
        ("rounds/n_available", np.array([-1, 5]), "rounds/n_available holds -1"),
        ("rounds/deadline_s", np.array([-1.0, NAN]), "rounds/deadline_s holds -1.0"),
        ("rounds/measured_s", np.array([np.inf, NAN]), "rounds/measured_s holds inf"),
        ("rounds/opened_s", np.array([NAN, 0.0]), "rounds/opened_s holds nan"),
        ("rounds/opened_s", np.array([np.inf, 0.0]), "rounds/opened_s holds inf"),
        ("pool/late", np.array([99, 0, 0, 0, 0], dtype=np.int32), "counted in part"),
        ("pool/failed", np.array([99, 0, 0, 0, 0], dtype=np.int32), "counted in part"),
        ("pool/n_timed", np.array([99, 0, 0, 0, 0], dtype=np.int32), "counted in part"),
        ("pool/spread", np.full(5, np.inf, dtype=np.float32), "spread holds inf"),
        ("pool/log_latency", np.full(5, 400.0, dtype=np.float32), "log_latency holds 400"),
        ("pool/n_members", np.array(4), "n_members does not count the members"),
        ("task/participations", np.full(5, 99, dtype=np.int32), "more responses than invitations"),
        ("task/round", np.array(7), "the last round is missing"),
        ("task/round", np.array(-1), "round holds -1"),
    ],
)
def test_forged_arrays_are_rejected(saved, name, value, message):
    with pytest.raises(CorruptFile, match=message):
        Scheduler.load(forged(saved, lambda header, arrays: arrays.update({name: value})))


def test_missing_parts_are_rejected(saved):
    _, arrays = statefile.read(saved)
    content = saved.read_bytes()
    for name in arrays:
        with pytest.raises(CorruptFile):
            Scheduler.load(forged(saved, lambda header, arrays, name=name: arrays.pop(name)))
        saved.write_bytes(content)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seq", -1), ("seq", "x"), ("clock_s", NAN), ("clock_s", None), ("n_rows", 6),
        ("n_rows", -1), ("feature_columns", 3), ("plan", {}), ("plan", None), ("plan", {"m": 1}),
        ("max_open_rounds", 0), ("seed", -1), ("schema", 0), ("schema", "x"),
    ],
)  # fmt: skip
def test_forged_headers_are_rejected(saved, key, value):
    with pytest.raises(CorruptFile):
        Scheduler.load(forged(saved, lambda header, arrays: header.update({key: value})))


@pytest.mark.parametrize(
    ("key", "value"),
    [("late", "maybe"), ("target_responses", 0), ("deadline_s", NAN), ("max_wait_s", -1.0)],
)
def test_forged_plans_are_rejected(saved, key, value):
    with pytest.raises(CorruptFile):
        Scheduler.load(forged(saved, lambda header, arrays: header["plan"].update({key: value})))
