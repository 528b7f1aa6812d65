"""Clients that are forgotten: the others go on as if these had never been."""

import numpy as np
import pytest

from bsfl import BSFL, Genie, Lognormal, Oort, Pace, Pisces, Scheduler, TiFL, UniformRandom
from bsfl.errors import InvalidInput, UnknownClient
from bsfl.scheduling.outstanding import MOST_AWAITED, Outstanding
from bsfl.state import leaves

IDS = [f"phone-{i}" for i in range(12)]


def play(scheduler, rounds, available=None):
    for _ in range(rounds):
        for client in scheduler.select(available):
            scheduler.observe({client: 1.0 + int(client.rpartition("-")[2])})


@pytest.mark.parametrize("policy", [BSFL(alpha=5.0), Pace(), BSFL(index=Lognormal())])
def test_what_is_known_of_the_others_stays(policy):
    scheduler = Scheduler(policy, cohort_size=3)
    scheduler.join(IDS, samples=np.arange(1.0, 13.0), features=np.arange(12.0).reshape(12, 1))
    play(scheduler, 20)
    gone = [IDS[0], IDS[5], IDS[11]]
    kept = [k for k, client in enumerate(IDS) if client not in gone]
    before = {name: np.copy(leaf) for name, leaf in leaves(scheduler.state)}
    samples = scheduler._clients.column("samples").copy()
    scheduler.forget(gone)
    assert scheduler.clients == [IDS[k] for k in kept]
    for name, leaf in leaves(scheduler.state):
        expected = before[name][kept] if before[name].shape[:1] == (12,) else before[name]
        assert np.array_equal(leaf, expected, equal_nan=True), name
    assert np.array_equal(scheduler._clients.column("samples"), samples[kept])
    play(scheduler, 5)
    with pytest.raises(UnknownClient, match="unknown client 'phone-5'"):
        scheduler.forget(["phone-5"])


def test_who_comes_back_is_new():
    scheduler = Scheduler(BSFL(), cohort_size=3)
    scheduler.join(IDS)
    play(scheduler, 20)
    scheduler.forget([IDS[0]])
    scheduler.join([IDS[0]])
    scheduler.select()
    assert scheduler.state.selected[scheduler._clients.index_of(IDS[0])] == 0


def test_open_rounds_go_on_without_them(tmp_path):
    scheduler = Scheduler(BSFL(), cohort_size=4)
    first = scheduler.select(IDS)
    second = scheduler.select()
    scheduler.forget([first[0], second[1]])
    left = [c for c in (*first, *second) if c not in (first[0], second[1])]
    assert scheduler.outstanding == left
    assert scheduler.last_round.cohort == (second[0], *second[2:])
    scheduler.save(tmp_path / "s")
    twin = Scheduler.load(tmp_path / "s")
    for one in (scheduler, twin):
        assert one.observe(dict.fromkeys(left, 2.0)) == {}
        assert one.outstanding == []
        assert one.state.memory.observed.sum() == 6
    assert twin.select() == scheduler.select()


def test_a_fleet_that_changed_in_an_open_round_is_forgotten_in_part(tmp_path):
    scheduler = Scheduler(BSFL(alpha=3.0), cohort_size=3)
    scheduler.join(IDS)
    play(scheduler, 3)
    cohort = scheduler.select()
    scheduler.leave([IDS[1]])
    scheduler.join(["phone-99"])
    gone = next(c for c in IDS if c not in cohort and c != IDS[1])
    scheduler.forget([gone])
    scheduler.save(tmp_path / "s")
    twin = Scheduler.load(tmp_path / "s")
    for one in (scheduler, twin):
        one.observe(dict.fromkeys(cohort, 1.0), strict=True)
    assert twin.select() == scheduler.select()


def test_forget_after_lets_go_of_whoever_is_away():
    scheduler = Scheduler(UniformRandom(), cohort_size=2, forget_after=20)
    for t in range(1, 101):
        scheduler.select([f"once-{t}", "stays-1", "stays-2"])
        n_lately = len(scheduler._clients) - 2
        assert n_lately <= 22, "20 rounds, and a tenth more"
        if t >= 25:
            assert n_lately >= 20
    assert {"stays-1", "stays-2"} <= set(scheduler.clients)


def test_forget_after_counts_from_the_last_time_a_client_was_available():
    scheduler = Scheduler(UniformRandom(), cohort_size=1, forget_after=10)
    scheduler.join(["left", "never named", "member"])
    scheduler.leave(["left"])
    for _ in range(30):
        scheduler.select(["member"])
    assert scheduler.clients == ["member"]
    everyone = Scheduler(UniformRandom(), cohort_size=1, forget_after=10)
    everyone.join(["a", "b"])
    for _ in range(30):
        everyone.select()
    assert everyone.clients == ["a", "b"], "all members are available where nobody is named"


def test_forget_after_is_saved(tmp_path):
    scheduler = Scheduler(UniformRandom(), cohort_size=1, forget_after=10)
    scheduler.select(["a", "b"])
    scheduler.save(tmp_path / "s")
    twin = Scheduler.load(tmp_path / "s")
    for one in (scheduler, twin):
        for _ in range(15):
            one.select(["a"])
        assert one.clients == ["a"]


@pytest.mark.parametrize("policy", [Oort(tau_max=20.0), TiFL(tau_max=20.0), Pisces()])
def test_peers_go_on(policy):
    from bsfl import Observation

    scheduler = Scheduler(policy, cohort_size=3)
    scheduler.join(IDS, samples=[5.0] * 12)
    for t in range(30):
        cohort = scheduler.select()
        scheduler.observe({c: Observation(latency=2.0, loss=1.0, samples=5) for c in cohort[:2]})
        if t % 5 == 4 and len(scheduler.clients) > 4:
            scheduler.forget([cohort[2]])
    if isinstance(policy, Pisces):
        assert scheduler.state.n_at_work == scheduler.state.at_work.sum()


def test_policies_that_know_places_forget_nobody():
    genie = Genie(mean_speed=[0.5, 0.4, 0.3])
    with pytest.raises(InvalidInput, match=r"Genie knows clients by their place \(mean_speed\)"):
        Scheduler(genie, cohort_size=1, forget_after=5)
    scheduler = Scheduler(genie, cohort_size=1)
    scheduler.join(["a", "b"])
    with pytest.raises(InvalidInput, match="so none can be forgotten"):
        scheduler.forget(["a"])
    with pytest.raises(InvalidInput, match="forget_after must be a whole number of at least 1"):
        Scheduler(cohort_size=1, forget_after=0)


def test_invitations_are_not_kept_for_ever():
    awaited, size = Outstanding(), 1000
    for t in range(1, 301):
        awaited.invite(t, range(size), (size, size))
    arrays = awaited.to_arrays()
    assert len(arrays["waiting"]) == MOST_AWAITED
    assert arrays["sizes"][:, 0].tolist() == list(range(201, 301)), "the oldest are given up"
    assert awaited.oldest(5) == 201
    assert awaited.size(200) is None
    for t in range(201, 301):
        awaited.settle(5, t)
    assert awaited.oldest(5) is None
    twin = Outstanding.from_arrays(awaited.to_arrays())
    for name, array in twin.to_arrays().items():
        assert np.array_equal(array, awaited.to_arrays()[name])
