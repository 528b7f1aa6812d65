"""Ablations on shrunken scenarios: the arithmetic of every column."""

import numpy as np
import pytest

from bsfl.estimators.fairness import gini
from bsfl.experiments import read_scenario, run_scenario
from bsfl.experiments.statistics import at_same_gini
from bsfl.report import figures_matplotlib
from bsfl.studies import ABLATIONS, STUDIES, ablations, radius
from bsfl.studies.study import Effort

TRAINING = {"rounds", "malicious-clients"}
"""Ablations that are not about options of BSFL."""


def shrunken(name):
    """Return a scenario with 20 clients, 2 a round, and 60 rounds."""
    scenario = read_scenario(name)
    clients = scenario.clients.changed(n_clients=20)
    if clients.drift:
        clients = clients.changed(drift=clients.drift.changed(at=31))
    length = {"rounds": 60, "time_s": None, "seeds": 2}
    return scenario.changed(clients=clients, cohort_size=2, learning=None, **length)


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setattr(ablations, "read_scenario", shrunken)
    monkeypatch.setattr(ablations, "FLOOR_ROUNDS", 60)

    def run(name):
        made = STUDIES.make(name)
        found = made.run(tmp_path, Effort(jobs=1))
        again = made.play(tmp_path, Effort(jobs=1))
        assert tuple(found) == made.scenarios
        rows = made.rows(found)
        (table,) = again.tables
        assert [line[0] for line in table.rows] == [next(iter(row.values())) for row in rows]
        assert [column.title for column in table.columns] == list(rows[0])
        assert again.headline[0].endswith("."), "every page has a conclusion"
        return rows, found

    return run


def test_all_ablations_are_studies():
    options = [name for name in ABLATIONS if name not in TRAINING]
    assert all(issubclass(STUDIES[name], ablations.Ablation) for name in options)
    assert set(STUDIES) > TRAINING


def check_radius_figure(found):
    (plot,) = radius.ConfidenceWidth().plots(found)
    fronts, regrets = np.reshape(figures_matplotlib.draw(plot).axes, (2, 3))
    indices = ["genie", "paper", "cucb", "bernstein", "lognormal", "tail"]
    for axes, results in zip(fronts, found.values(), strict=True):
        lines = {line.get_label(): line.get_xydata() for line in axes.lines}
        assert list(lines) == indices
        expected = sorted(
            np.mean([(g, t / 30) for t, g in seeds], axis=0).tolist()
            for alpha in (1, 5, 20, 100)
            for seeds in [
                [radius.late(r, results.scenario) for r in results.records(f"cucb-{alpha}")]
            ]
        )
        np.testing.assert_allclose(lines["cucb"], expected)
    for axes, results in zip(regrets, found.values(), strict=True):
        assert [line.get_label() for line in axes.lines] == indices[1:]
        last = results.cumulative("tail-5", "regret")[:, -1].mean()
        np.testing.assert_allclose(axes.lines[-1].get_ydata()[-1], last)


@pytest.mark.slow
def test_radius(study):
    rows, found = study("confidence-width")
    assert len(rows) == 3 * 21, "five indices with four weights and random, on three fleets"
    first = rows[0]
    results = found["ablation-radius-phones"]
    assert first["index"] == "paper-1"
    ratios, early = [], []
    for seed in range(2):

        def late(label, seed=seed):
            records = results.records(label)[seed]
            assert radius.left_out(results.scenario) == 30
            rest = records["cohort"][30:]
            counts = np.bincount(rest.ravel(), minlength=20)
            return records["duration_s"][30:].sum(), gini(counts)

        front = [late(k) for k in results.scenario.policies if k.startswith("genie")]
        time_s, uneven = late("paper-1")
        ratios.append(time_s / at_same_gini(front, uneven))
        early.append(results.records("paper-1")[seed]["duration_s"][:30].sum())
    assert first["time over genie at this Gini"].mean == pytest.approx(np.mean(ratios))
    assert first["exploration (s)"].mean == pytest.approx(np.mean(early))
    regret = {r["index"]: r["regret over the paper's"] for r in rows if r["fleet"] == "phones"}
    assert regret["paper-5"].mean == 1.0
    assert regret["cucb-5"] is not None
    assert regret["cucb-1"] is None, "regret is measured in the objective's alpha"
    check_radius_figure(found)


@pytest.mark.slow
def test_drift(study):
    rows, found = study("drift")
    by = {row["policy"]: row for row in rows}
    assert by["stationary"]["lost, over stationary"].mean == 1.0
    lost = [
        d["duration_s"][30:].sum() - s["duration_s"][30:].sum()
        for d, s in zip(
            found["ablation-drift"].records("sliding-window"),
            found["ablation-steady"].records("sliding-window"),
            strict=True,
        )
    ]
    assert by["sliding-window"]["lost by the change (s)"].mean == pytest.approx(np.mean(lost))
    steady = [
        r["duration_s"][:30].sum() for r in found["ablation-steady"].records("sliding-window")
    ]
    after = [r["duration_s"][30:].sum() for r in found["ablation-drift"].records("sliding-window")]
    assert by["sliding-window"]["after, over starting afresh"].mean == pytest.approx(
        np.mean(np.array(after) / steady)
    )
    # before the change both scenarios are the same
    assert [
        r["duration_s"][:30].sum() for r in found["ablation-drift"].records("sliding-window")
    ] == steady


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jitter", "cold-start"])
def test_round_times_are_compared_with_random(study, name):
    rows, found = study(name)
    by = {row["policy"]: row for row in rows}
    assert by["random"]["over random"].mean == 1.0
    (results,) = found.values()
    label = list(by)[1]
    ratio = [
        own["duration_s"].mean() / base["duration_s"].mean()
        for own, base in zip(results.records(label), results.records("random"), strict=True)
    ]
    assert by[label]["over random"].mean == pytest.approx(np.mean(ratio))
    if name == "jitter":
        assert by["means-20"]["over means"].mean == 1.0
        assert by["random"]["over means"] is None


@pytest.mark.slow
def test_floor(study):
    rows, _ = study("min-participation")
    assert len(rows) == 4 * len(ablations.FLOOR_FLEETS)
    for row in rows:
        assert 0 <= row["min participation ratio"].mean <= 1


def test_min_participation_is_the_worst_moment_of_the_worst_client(tmp_path, monkeypatch):
    monkeypatch.setattr(ablations, "FLOOR_ROUNDS", 60)
    scenario = ablations.FloorHeld().adapt(shrunken("phones-iid"))
    results = run_scenario(scenario, tmp_path, jobs=1)
    expected = []
    for records in results.records("random"):
        counts, worst = np.zeros(20), np.inf
        for t, cohort in enumerate(records["cohort"], 1):
            counts[cohort] += 1
            if t > 12:
                worst = min(worst, counts.min() / (t * 2 / 20))
        expected.append(worst)
    assert ablations.min_participations(results, "random") == pytest.approx(expected)


def test_a_front_is_not_extended():
    front = [(10.0, 0.2), (4.0, 0.6), (9.0, 0.7)]
    assert at_same_gini(front, 0.1) == 10.0
    assert at_same_gini(front, 0.4) == pytest.approx(7.0)
    assert at_same_gini(front, 0.9) == 4.0
