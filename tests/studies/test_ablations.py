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


def durations(results, label, first, last=None):
    """Return the seconds of some rounds by seed."""
    return np.array([r["duration_s"][first:last].sum() for r in results.records(label)])


def test_all_ablations_are_studies():
    options = [name for name in ABLATIONS if name not in TRAINING]
    assert all(issubclass(STUDIES[name], ablations.Ablation) for name in options)
    assert set(STUDIES) > TRAINING


def check_radius_figure(found):
    (plot,) = radius.ConfidenceWidth().plots(found)
    fronts, regrets = np.reshape(figures_matplotlib.draw(plot).axes, (2, 3))
    indices = ["genie", "paper", "cucb", "bernstein", "lognormal", "tail"]
    for front, regret, results in zip(fronts, regrets, found.values(), strict=True):
        lines = {line.get_label(): line.get_xydata() for line in front.lines}
        assert list(lines) == indices
        late = [
            [radius.late(r, results.scenario) for r in results.records(f"cucb-{alpha}")]
            for alpha in (1, 5, 20, 100)
        ]
        by_weight = [np.mean([(g, t / 30) for t, g in seeds], axis=0).tolist() for seeds in late]
        np.testing.assert_allclose(lines["cucb"], sorted(by_weight))
        assert [line.get_label() for line in regret.lines] == indices[1:]
        last = results.cumulative("tail-5", "regret")[:, -1].mean()
        np.testing.assert_allclose(regret.lines[-1].get_ydata()[-1], last)


@pytest.mark.slow
def test_radius(study):
    rows, found = study("confidence-width")
    assert len(rows) == 3 * 21, "five indices with four weights and random, on three fleets"
    first, results = rows[0], found["ablation-radius-phones"]
    assert first["index"] == "paper-1"
    assert radius.left_out(results.scenario) == 30

    def late(label):
        """Return seconds and Gini of the rounds that count, by seed."""
        counts = [
            np.bincount(records["cohort"][30:].ravel(), minlength=20)
            for records in results.records(label)
        ]
        return list(zip(durations(results, label, 30), map(gini, counts), strict=True))

    genie = [late(k) for k in results.scenario.policies if k.startswith("genie")]
    ratios = [
        time_s / at_same_gini(list(front), uneven)
        for (time_s, uneven), front in zip(late("paper-1"), zip(*genie, strict=True), strict=True)
    ]
    assert first["time over genie at this Gini"].mean == pytest.approx(np.mean(ratios))
    early = durations(results, "paper-1", 0, 30)
    assert first["exploration (s)"].mean == pytest.approx(early.mean())
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
    drift, steady = found["ablation-drift"], found["ablation-steady"]
    window = by["sliding-window"]
    before, after = (durations(drift, "sliding-window", a, b) for a, b in ((0, 30), (30, None)))
    afresh, same = (durations(steady, "sliding-window", a, b) for a, b in ((0, 30), (30, None)))
    assert before.tolist() == afresh.tolist(), "before the change both scenarios are the same"
    assert window["lost by the change (s)"].mean == pytest.approx(np.mean(after - same))
    assert window["after, over starting afresh"].mean == pytest.approx(np.mean(after / afresh))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jitter", "cold-start"])
def test_round_times_are_compared_with_random(study, name):
    rows, found = study(name)
    by = {row["policy"]: row for row in rows}
    assert by["random"]["over random"].mean == 1.0
    (results,) = found.values()
    label = list(by)[1]
    ratio = durations(results, label, 0) / durations(results, "random", 0)
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
