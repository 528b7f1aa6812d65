"""What a file says of the last round and of the ledger is checked before it is believed."""

import numpy as np
import pytest

from bsfl import Observation, Scheduler
from bsfl.errors import CorruptFile
from bsfl.saving import statefile


@pytest.fixture
def saved(tmp_path):
    scheduler = Scheduler(cohort_size=3)
    for _ in range(4):
        a, b, _ = scheduler.select(["ann", "bob", "cem", "dan", "eve"])
        scheduler.observe({a: Observation(latency=3.0, loss=1.0), b: Observation(outcome="failed")})
    scheduler.save(tmp_path / "s")
    return tmp_path / "s"


def forged(path, change):
    header, arrays = statefile.read(path)
    change(header, arrays)
    statefile.write(path, header, arrays)
    return path


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("last/outcome", np.array([0, 1]), "one value for each of the cohort"),
        ("last/outcome", np.array([0, 1, 4]), "holds 4"),
        ("last/outcome", np.array([0.0, 1.0, 2.0]), "one value for each of the cohort"),
        ("last/latency", np.array([-1.0, 1.0, 1.0]), "holds -1.0"),
        ("last/loss", np.array([np.inf, 1.0, 1.0]), "holds inf"),
        ("ledger/late", np.array([99, 0, 0, 0, 0]), "counted in part"),
        ("ledger/failed", np.array([99, 0, 0, 0, 0]), "counted in part"),
        ("ledger/n_timed", np.array([99, 0, 0, 0, 0]), "counted in part"),
        ("ledger/spread", np.array([1e90, 0, 0, 0, 0]), "spread holds inf, which cannot be"),
        ("ledger/log_latency", np.array([400.0, 0, 0, 0, 0]), "holds 400"),
    ],
)
def test_forged_arrays_are_refused(saved, name, value, message):
    with pytest.raises(CorruptFile, match=message):
        Scheduler.load(forged(saved, lambda header, arrays: arrays.update({name: value})))


def test_forged_words_and_missing_parts_are_refused(saved):
    content = saved.read_bytes()
    with pytest.raises(CorruptFile, match="is_told"):
        Scheduler.load(forged(saved, lambda header, arrays: header.update(is_told="yes")))
    saved.write_bytes(content)
    with pytest.raises(CorruptFile, match="not complete"):
        Scheduler.load(forged(saved, lambda header, arrays: arrays.pop("last/loss")))
    saved.write_bytes(content)
    with pytest.raises(CorruptFile):
        Scheduler.load(forged(saved, lambda header, arrays: arrays.update({"last/x": np.zeros(3)})))


def test_a_file_from_before_tells_nothing_of_its_last_round_and_goes_on(saved):
    new = ("late", "failed", "last_chosen", "n_timed", "log_latency", "spread")

    def older(header, arrays):
        header.pop("is_told")
        header["schema"] = 4
        for name in [n for n in arrays if n.startswith("last/")] + [f"ledger/{n}" for n in new]:
            del arrays[name]

    scheduler = Scheduler.load(forged(saved, older))
    assert len(scheduler.last_round.cohort) == 3
    assert scheduler.last_round.duration_s is None
    assert all(row["latency_s"] is None for row in scheduler.table())
    scheduler.observe({scheduler.outstanding[0]: 2.0})
    assert sum(row["latency_s"] == pytest.approx(2.0) for row in scheduler.table()) == 1
    str(scheduler)
