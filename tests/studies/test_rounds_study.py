"""The study of how rounds close, on a scenario that runs in a moment."""

import pytest

pytest.importorskip("jax", reason="training needs the extra sim")

from bsfl.rounds import BufferPlan
from bsfl.studies import STUDIES, rounds
from bsfl.studies.study import Effort
from small_scenario import parse

PARTITION = {"kind": "iid", "samples": 20}
LEARNING = {"dataset": "fashion-mnist-small", "partition": PARTITION, "target_accuracy": 0.05}


@pytest.mark.slow
def test_every_scenario_runs_with_every_kind_of_rounds(tmp_path, monkeypatch):
    length = {"rounds": None, "time_s": 60.0, "cohort_size": 4}
    scenario = parse(**length, objective=None, learning=LEARNING, policies={"random": {}})
    monkeypatch.setattr(rounds, "read_scenario", lambda _: scenario)
    small = {kind: {**table} for kind, table in rounds.ROUNDS.items()}
    small["asynchronous"]["buffer_size"] = 2
    monkeypatch.setattr(rounds, "ROUNDS", small)
    study = STUDIES.make("rounds", scenarios=("study",))
    report = study.play(tmp_path, Effort(jobs=1))
    (table,) = report.tables
    assert [row[:2] for row in table.rows] == [["study", kind] for kind in rounds.ROUNDS]
    assert [column.title for column in table.columns] == ["scenario", "rounds", *rounds.POLICIES]
    assert all("±" in cell for row in table.texts() for cell in row[2:]), "all reach such a target"
    (plot,) = report.plots
    (panel,) = plot.panels
    first = report.numbers["study, synchronous"]["policies"]["random"]["time_to_target_s"]["mean"]
    assert panel.marks[0].height[0] == pytest.approx(first)
    assert isinstance(rounds.with_rounds("study", "asynchronous").plan, BufferPlan)
