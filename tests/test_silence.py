"""Clients that stop answering, and fleets that change while a round is open."""

import os

import numpy as np
import pytest

from bsfl import BSFL, Scheduler
from bsfl.errors import InvalidInput, StateFileError
from bsfl.policies import make_policy
from bsfl.records import Observation

FLOOR = BSFL.for_participation(floor=0.8)


def play(scheduler, rounds, latency=lambda client: 1.0 + client):
    for _ in range(rounds):
        scheduler.observe({client: latency(client) for client in scheduler.select()})


@pytest.mark.parametrize(
    "policy",
    [
        BSFL(),
        BSFL(radius="bernstein"),
        BSFL(discount=0.95),
        BSFL(window=20),
        make_policy("cs-ucb", tau_max=60.0),
        make_policy("cs-ucb-q", tau_max=60.0),
    ],
    ids=repr,
)
def test_who_stops_answering_is_not_asked_for_ever(policy):
    scheduler = Scheduler(policy, cohort_size=5)
    scheduler.join(range(50))
    for t in range(400):
        cohort = scheduler.select()
        scheduler.observe({k: 1.0 + k for k in cohort if k >= 5 or t <= 10})
    asked = scheduler.state.selected
    assert asked[:5].max() < 3 * np.median(asked[5:])


def test_clients_may_join_a_round_nobody_reported_under_a_floor():
    scheduler = Scheduler(FLOOR, cohort_size=2)
    scheduler.join(range(4))
    play(scheduler, 20)
    scheduler.join([5])
    cohort = scheduler.select()
    scheduler.join([10, 11])
    scheduler.select()
    scheduler.observe(dict.fromkeys(cohort, 1.0))
    play(scheduler, 5)
    assert scheduler.t == 27


@pytest.mark.parametrize("change", ["join and leave", "leave", "all leave"])
def test_a_fleet_that_changed_in_an_open_round_goes_on_from_its_file(tmp_path, change):
    scheduler = Scheduler(FLOOR, cohort_size=2)
    scheduler.join(range(6))
    play(scheduler, 20)
    cohort = scheduler.select()
    if change == "join and leave":
        scheduler.join([10])
    scheduler.leave({"join and leave": [5], "leave": [0, 1, 2], "all leave": range(6)}[change])
    scheduler.save(tmp_path / "s")
    loaded = Scheduler.load(tmp_path / "s")
    for one in (scheduler, loaded):
        one.observe(dict.fromkeys(cohort, 1.0))
    assert loaded.state.alpha == scheduler.state.alpha
    scheduler.save(tmp_path / "a")
    loaded.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_alpha_of_a_floor_follows_cohorts_of_changing_size():
    scheduler = Scheduler(BSFL.for_participation(floor=0.8, radius="bernstein"), cohort_size=5)
    scheduler.join(range(50))
    for t in range(600):
        cohort = scheduler.select(cohort_size=10 if t % 3 == 0 else None)
        scheduler.observe({k: 1.0 + k for k in cohort})
    assert 0.1 < scheduler.state.alpha < 50, "a constant size leads to 2"
    assert scheduler.state.selected.min() / scheduler.state.selected.mean() > 0.78


def test_alpha_of_a_floor_follows_a_fleet_that_shrinks():
    scheduler = Scheduler(BSFL.for_participation(floor=0.8, radius="bernstein"), cohort_size=5)
    scheduler.join(range(100))
    play(scheduler, 600)
    scheduler.leave(range(50))
    play(scheduler, 400)
    assert scheduler.state.alpha < 50, "not its upper limit, 100,000"
    stayed = scheduler.state.selected[50:]
    assert stayed.min() / stayed.mean() > 0.78


@pytest.mark.parametrize("aim", [{"floor": 0.8}, {"max_gini": 0.1}])
def test_a_floor_is_about_equal_shares(aim):
    with pytest.raises(InvalidInput, match="equal shares"):
        BSFL(generalization="weighted", **aim)


def test_failures_before_the_first_latency_are_never_fast():
    scheduler = Scheduler(BSFL(speeds="lognormal"), cohort_size=2)
    scheduler.join(range(10))
    broken = None
    for _ in range(30):
        cohort = scheduler.select()
        broken = broken or cohort
        failed = Observation(outcome="failed")
        scheduler.observe({k: failed if k in broken else 100.0 + k for k in cohort})
    asked = scheduler.state.selected
    assert asked[broken].max() <= np.median(np.delete(asked, broken))


@pytest.mark.parametrize(
    ("saved", "given"),
    [
        ({}, {"speeds": "lognormal"}),
        ({"speeds": "lognormal"}, {}),
        ({}, {"discount": 0.98}),
        ({}, {"window": 50}),
        ({"window": 50}, {"window": 20}),
    ],
)
def test_a_memory_is_only_read_as_it_was_written(tmp_path, saved, given):
    scheduler = Scheduler(BSFL(**saved), cohort_size=2)
    scheduler.join(range(5))
    play(scheduler, 5)
    scheduler.save(tmp_path / "s")
    (setting,) = saved.keys() | given.keys()
    with pytest.raises(StateFileError, match=f"saved with {setting}="):
        Scheduler.load(tmp_path / "s", policy=BSFL(**given))
    assert Scheduler.load(tmp_path / "s", policy=BSFL(alpha=7.0, **saved)).policy.alpha == 7.0


def test_features_may_come_after_the_first_answers():
    scheduler = Scheduler(BSFL(alpha=100.0, speeds="lognormal"), cohort_size=2)
    scheduler.join(range(100))
    play(scheduler, 1)
    scheduler.join(range(100), features=np.log(1.0 + np.arange(100.0))[:, None])
    play(scheduler, 30)
    state = scheduler.state
    effect = np.linalg.solve(state.gram, state.moment)[1] / state.scale[0]
    assert effect == pytest.approx(1.0, abs=0.1), "ln tau is the feature itself"


@pytest.mark.filterwarnings("error")
def test_an_empty_report_and_unknown_features_teach_nothing():
    scheduler = Scheduler(BSFL(speeds="lognormal"), cohort_size=2)
    scheduler.join(range(10), features=np.full((10, 1), np.nan))
    scheduler.select()
    scheduler.observe({})
    play(scheduler, 10)
    assert scheduler.state.centre.tolist() == [0.0]


@pytest.mark.parametrize("features", [["wifi"], [[1.0], [2.0, 3.0]], [object()]])
def test_features_that_are_no_numbers_are_refused(features):
    scheduler = Scheduler(BSFL(), cohort_size=2)
    with pytest.raises(InvalidInput, match="features must"):
        scheduler.register("a", features=features)
    assert scheduler.clients == []


def test_a_background_save_goes_where_it_was_asked_to(tmp_path, monkeypatch):
    scheduler = Scheduler(BSFL(), cohort_size=2)
    scheduler.join(range(5))
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    scheduler.save("s", wait=False)
    scheduler.save("t", wait=False)
    os.chdir(there)
    scheduler.saved()
    assert sorted(os.listdir(here)) == ["s", "t"]
    assert os.listdir(there) == []
