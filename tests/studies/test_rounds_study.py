"""The study of how rounds are closed, on a world that plays in a moment."""

import pytest

pytest.importorskip("jax", reason="training needs the extra sim")

from bsfl.rounds import BufferPlan
from bsfl.scenario import parse_scenario
from bsfl.studies import STUDIES, rounds
from bsfl.studies.study import Effort

CONTENT = {
    "title": "a moment",
    "time_s": 60.0,
    "cohort_size": 4,
    "seeds": 2,
    "fleet": {
        "n_clients": 15,
        "tau_min": 1.0,
        "tau_max": 30.0,
        "latency": {"population": "lognormal"},
    },
    "learning": {
        "dataset": "fashion-mnist-small",
        "split": {"kind": "iid", "samples": 20},
        "target_accuracy": 0.05,
    },
    "policies": {"random": {}},
}


@pytest.mark.slow
def test_every_world_is_played_with_every_kind_of_rounds(tmp_path, monkeypatch):
    world = parse_scenario(CONTENT, name="moment", file="moment.toml")
    monkeypatch.setattr(rounds, "find_scenario", lambda _: world)
    small = {kind: {**table} for kind, table in rounds.ROUNDS.items()}
    small["no barrier"]["buffer"] = 2
    monkeypatch.setattr(rounds, "ROUNDS", small)
    study = STUDIES.make("rounds", worlds=("moment",))
    findings = study.play(tmp_path, Effort(jobs=1))
    (table,) = findings.tables
    assert [row[:2] for row in table.rows] == [["moment", kind] for kind in rounds.ROUNDS]
    assert table.columns[2:] == list(rounds.POLICIES)
    assert all("±" in cell for row in table.rows for cell in row[2:]), "all reach such a target"
    (plot,) = findings.plots
    (panel,) = plot.panels
    first = findings.numbers["moment, barrier"]["policies"]["random"]["time_to_target_s"]["mean"]
    assert panel.marks[0].height[0] == pytest.approx(first)
    assert isinstance(rounds.scenario("moment", "no barrier").plan, BufferPlan)
