"""A floor is held by an alpha that finds itself."""

import numpy as np
import pytest

from bsfl import BSFL, Discounted, Floor, Lognormal, MaxGini, Means, Scheduler, Windowed
from bsfl.errors import InvalidInput
from bsfl.estimation.participation import served as shares_of
from bsfl.fairness import gini
from bsfl.records import Roster, RoundContext
from bsfl.scenario.fleet_spec import FleetSpec
from bsfl.simulation import simulate

K, M = 200, 10
PHONES = FleetSpec(
    n_clients=K, tau_min=2.0, tau_max=180.0, population="phones", population_settings={}
)


def shares(policy, rounds=600, seed=0):
    """Return each client's share of its fair number after every round, and the time it took."""
    records = list(simulate(policy, PHONES.build(seed), cohort_size=M, rounds=rounds, seed=seed))
    counts = np.cumsum([np.bincount(r.cohort, minlength=K) for r in records], axis=0)
    fair = np.arange(1, rounds + 1)[:, np.newaxis] * M / K
    return counts / fair, records[-1].clock_s


@pytest.mark.parametrize("floor", [0.5, 0.8])
@pytest.mark.parametrize(
    "index", [Means(radius="bernstein"), Lognormal(quantile=0.5, optimism=1.0)]
)
def test_the_floor_is_held(floor, index):
    served, _ = shares(BSFL(alpha=Floor(floor), index=index))
    assert served[120:].min() >= floor - 0.02


def test_a_lower_floor_is_quicker():
    times = [
        shares(BSFL(alpha=Floor(floor), index=Means(radius="none")))[1] for floor in (0.2, 0.5, 0.9)
    ]
    assert times == sorted(times)
    assert times[0] < 0.9 * times[2]


def test_the_gini_is_held():
    served, _ = shares(BSFL(alpha=MaxGini(0.1), index=Means(radius="none")))
    assert 0.05 < gini(served[-1]) <= 0.11


def at(t, m=2, **roster):
    k = roster.pop("k", 4)
    who = Roster(n_members=k, **roster) if roster else None
    return RoundContext(t=t, available=np.arange(k), cohort_size=m, roster=who)


def adapted(aim, selected, context, alpha=0.0):
    state = aim.init()
    state.alpha = alpha
    aim.adapt(state, np.array(selected), context)
    return state.alpha


def test_alpha_grows_below_the_floor_and_shrinks_above():
    selected = [50, 50, 50, 20]  # fair: 50
    start = Floor(0.8).weight(Floor(0.8).init(), at(100), 4)
    assert start == 2 * 4 / 2
    assert adapted(Floor(0.8), selected, at(100)) == pytest.approx(1.15 * start)
    assert adapted(Floor(0.2), selected, at(100)) == pytest.approx(start / 1.03)
    assert adapted(Floor(0.8), selected, at(100), alpha=5.0) == pytest.approx(1.15 * 5.0)
    assert adapted(Floor(0.8), selected, at(4), alpha=5.0) == 5.0, "too early to tell"


def test_newcomers_and_those_who_left_are_judged_fairly():
    late = at(
        100,
        since=np.array([1, 1, 91, 1]),
        members=np.array([True, True, True, False]),
        k=4,
    )
    share = shares_of(np.array([50, 50, 5, 0]), late)
    assert Floor(0.5).excess(share, turns=100 / 1.5) > 0, "5 of 10 rounds, 50 of 100: the same"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Floor(1.2), "share must be"),
        (lambda: MaxGini(-0.1), "limit must be"),
        (lambda: BSFL(alpha=Floor(0.8), generalization="loss"), "is about equal shares"),
        (lambda: BSFL(alpha="floor"), "alpha must be a finite number"),
        (lambda: Discounted(1.5), "gamma must be"),
        (lambda: Windowed(1), "window must be"),
        (lambda: Lognormal(quantile=1.0), "quantile must be"),
        (lambda: Lognormal(optimism=-1.0), "optimism must be"),
        (lambda: BSFL(index=Windowed(10)), r"index must be Means\(...\) or Lognormal\(...\), got"),
        (lambda: BSFL(memory=Means()), r"memory must be Lasting\(...\) or Discounted"),
        (lambda: BSFL(index=Lognormal), "index must be Means"),
    ],
)
def test_wrong_parts_are_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


@pytest.mark.parametrize(
    "settings",
    [
        {"radius": "bernstein"},
        {"speeds": "lognormal"},
        {"optimism": 5.0},
        {"floor": 0.8},
        {"discount": 0.9, "window": 10},
    ],
)
def test_what_means_nothing_cannot_be_written(settings):
    with pytest.raises(TypeError, match="unexpected keyword"):
        BSFL(**settings)


def play(scheduler, rounds, latency=lambda client: 1.0 + client):
    for _ in range(rounds):
        scheduler.observe({client: latency(client) for client in scheduler.select()})


def test_clients_may_join_a_round_nobody_reported_under_a_floor():
    scheduler = Scheduler(BSFL(alpha=Floor(0.8)), cohort_size=2)
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
    scheduler = Scheduler(BSFL(alpha=Floor(0.8)), cohort_size=2)
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
    assert loaded.state.weight.alpha == scheduler.state.weight.alpha
    scheduler.save(tmp_path / "a")
    loaded.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_alpha_of_a_floor_follows_cohorts_of_changing_size():
    scheduler = Scheduler(BSFL(alpha=Floor(0.8), index=Means(radius="bernstein")), cohort_size=5)
    scheduler.join(range(50))
    for t in range(600):
        cohort = scheduler.select(cohort_size=10 if t % 3 == 0 else None)
        scheduler.observe({k: 1.0 + k for k in cohort})
    assert 0.1 < scheduler.state.weight.alpha < 50, "a constant size leads to 2"
    assert scheduler.state.selected.min() / scheduler.state.selected.mean() > 0.78


def test_alpha_of_a_floor_follows_a_fleet_that_shrinks():
    scheduler = Scheduler(BSFL(alpha=Floor(0.8), index=Means(radius="bernstein")), cohort_size=5)
    scheduler.join(range(100))
    play(scheduler, 600)
    scheduler.leave(range(50))
    play(scheduler, 400)
    assert scheduler.state.weight.alpha < 50, "not its upper limit, 100,000"
    stayed = scheduler.state.selected[50:]
    assert stayed.min() / stayed.mean() > 0.78


def test_alpha_of_a_floor_does_not_depend_on_the_number_of_reports():
    at_once, one_by_one = (
        Scheduler(BSFL(alpha=Floor(0.8), index=Means(radius="bernstein")), cohort_size=5)
        for _ in range(2)
    )
    for scheduler in (at_once, one_by_one):
        scheduler.join(range(50))
    for _ in range(80):
        answers = {client: 1.0 + client for client in at_once.select()}
        at_once.observe(answers)
        assert one_by_one.select() == list(answers)
        for client, latency in answers.items():
            one_by_one.observe({client: latency})
        assert one_by_one.state.weight.alpha == at_once.state.weight.alpha
    assert at_once.state.weight.alpha not in (0.0, 20.0), "it has moved from its start, 2 K/m"


@pytest.mark.parametrize("aim", [Floor(0.8), MaxGini(0.1)])
def test_a_floor_is_about_equal_shares(aim):
    with pytest.raises(InvalidInput, match="equal shares"):
        BSFL(generalization="weighted", alpha=aim)
