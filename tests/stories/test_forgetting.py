"""Forgotten clients: the others continue as if these had never been."""

import numpy as np
import pytest

from bsfl import (
    BSFL,
    Genie,
    Lognormal,
    Observation,
    Pace,
    Pisces,
    RoundPlan,
    Scheduler,
    UniformRandom,
)
from bsfl._core.engine import Engine
from bsfl._core.events import CloseRound, OpenRound
from bsfl._core.rounds import Rounds
from bsfl._core.state import leaves
from bsfl.errors import InvalidInput, UnknownClient

IDS = [f"phone-{i}" for i in range(12)]


def run(scheduler, rounds):
    for _ in range(rounds):
        for client in scheduler.select():
            scheduler.observe({client: 1.0 + int(client.rpartition("-")[2])})


def columns(scheduler):
    """Return all arrays with a row for each client, of the pool, the task and the policy."""
    engine = scheduler._engine
    n = engine.pool.n
    states = {"pool": engine.pool, "task": engine.task, "policy": engine.policy_state}
    return {
        f"{name}/{leaf}": np.copy(x[:n])
        for name, state in states.items()
        for leaf, x in leaves(state)
        if isinstance(x, np.ndarray) and len(x) >= n
    }


@pytest.mark.parametrize("policy", [BSFL(alpha=5.0), Pace(), BSFL(index=Lognormal())])
def test_what_is_known_of_the_others_stays(policy):
    scheduler = Scheduler(policy, cohort_size=3)
    scheduler.join(IDS, samples=np.arange(1.0, 13.0), features=np.arange(12.0).reshape(12, 1))
    run(scheduler, 20)
    gone = [IDS[0], IDS[5], IDS[11]]
    kept = [k for k, client in enumerate(IDS) if client not in gone]
    before = columns(scheduler)
    scheduler.forget(gone)
    assert scheduler.clients == [IDS[k] for k in kept]
    after = columns(scheduler)
    assert {"pool/samples", "task/fair_count"} < after.keys() == before.keys()
    for name, column in after.items():
        assert np.array_equal(column, before[name][kept], equal_nan=True), name
    run(scheduler, 5)


def test_a_forgotten_client_is_called_forgotten_and_is_new_when_it_comes_back():
    scheduler = Scheduler(BSFL(), cohort_size=3)
    scheduler.join(IDS)
    run(scheduler, 20)
    scheduler.forget(["phone-5"])
    for call in (scheduler.forget, scheduler.leave, scheduler.offline, scheduler.abandon):
        with pytest.raises(UnknownClient, match="'phone-5'; it was forgotten"):
            call(["phone-5"])
    with pytest.raises(UnknownClient, match="'phone-99'; it never joined"):
        scheduler.client("phone-99")
    with pytest.raises(InvalidInput, match="samples"):
        scheduler.join(["phone-5"], samples=[-1.0])
    with pytest.raises(UnknownClient, match="it was forgotten"):
        scheduler.explain("phone-5")
    scheduler.join(["phone-5"])
    row = scheduler.client("phone-5")
    numbers = [row[name] for name in ("invitations", "participations", "late", "latency_s")]
    assert numbers == [0, 0, 0, None]
    assert scheduler.clients[-1] == "phone-5", "the last to join"


# --- forget_after


def test_forget_after_forgets_clients_that_are_away(tmp_path):
    closed = []
    scheduler = Scheduler(
        UniformRandom(), cohort_size=2, forget_after=20, max_open_rounds=99, on_round=closed.append
    )
    scheduler.select(["first-1", "first-2"])
    for number in range(1, 101):
        scheduler.select([f"once-{number}", "stays-1", "stays-2"])
        n_lately = sum(client.startswith("once") for client in scheduler.clients)
        assert min(number, 20) <= n_lately <= 22, "20 rounds, and a tenth more"
        if number == 50:
            assert [record.round for record in closed] == [1], "no client is left in it"
            scheduler.save(tmp_path / "s")
            scheduler = Scheduler.load(tmp_path / "s")
    assert {"stays-1", "stays-2"} <= set(scheduler.clients)


@pytest.mark.parametrize("available", [None, ["a", "b"]])
def test_forget_after_counts_from_the_last_time_a_client_was_online(available):
    scheduler = Scheduler(UniformRandom(), cohort_size=1, forget_after=10)
    scheduler.join(["a", "b", "left", "offline"])
    scheduler.leave(["left"])
    scheduler.offline(["offline"])
    for _ in range(30):
        scheduler.select(available)
    assert [row["client"] for row in scheduler.table()] == ["a", "b"]


def test_an_online_client_in_flight_is_not_forgotten():
    scheduler = Scheduler(cohort_size=1, forget_after=10, lifetime_s=1e9, max_open_rounds=99)
    scheduler.join(range(40))
    first = scheduler.select(now_s=0.0)[0]
    for _ in range(30):
        scheduler.select(now_s=1.0)
    assert first in scheduler.clients
    assert first in scheduler.in_flight


# --- policies


def test_pisces_counts_again_what_is_in_flight():
    scheduler = Scheduler(Pisces(), cohort_size=3)
    scheduler.join(IDS, samples=[5.0] * 12)
    for _ in range(5):
        cohort = scheduler.select()
        scheduler.observe({c: Observation(latency_s=2.0, loss=1.0, samples=5) for c in cohort[:2]})
        scheduler.forget([cohort[2]])
        assert scheduler.state.n_in_flight == scheduler.state.in_flight.sum()


def test_policies_with_settings_by_position_forget_no_client():
    genie = Genie(mean_speed=[0.5, 0.4, 0.3])
    with pytest.raises(InvalidInput, match=r"by their position \(mean_speed\)"):
        Scheduler(genie, cohort_size=1, forget_after=5)
    scheduler = Scheduler(genie, cohort_size=1)
    scheduler.join(["a", "b"])
    with pytest.raises(InvalidInput, match="none can be forgotten"):
        scheduler.forget(["a"])


# --- invitations that are too old


def test_the_oldest_invitations_are_abandoned_and_an_error_takes_that_back(monkeypatch):
    monkeypatch.setattr(Rounds, "MAX_PENDING", 6)
    engine = Engine(UniformRandom(), RoundPlan(target_responses=2), n_clients=20, max_open_rounds=4)
    for _ in range(4):
        engine.run(OpenRound())
    assert [len(one.pending) for one in engine.rounds] == [0, 2, 2, 2]
    assert len(engine.rounds.open()) == 4
    before, pending = engine.rounds.to_arrays(), engine.rounds.in_flight

    def open_another():
        with engine.transaction():
            engine.run(CloseRound(round=1))
            engine.run(OpenRound())
            assert [len(one.pending) for one in engine.rounds] == [0, 2, 2, 2], "round 1 is gone"
            raise ArithmeticError

    for _ in range(2):
        with pytest.raises(ArithmeticError):
            open_another()
        assert engine.rounds.in_flight == pending
        for name, array in engine.rounds.to_arrays().items():
            assert np.array_equal(array, before[name], equal_nan=True), name


def test_closed_rounds_without_invitations_are_not_kept(monkeypatch):
    monkeypatch.setattr(Rounds, "MAX_PENDING", 40)
    engine = Engine(UniformRandom(), RoundPlan(target_responses=4), n_clients=4)
    for number in range(1, 31):
        engine.run(OpenRound())
        engine.run(CloseRound(round=number))
    assert engine.rounds.n_pending == 40
    assert [one.number for one in engine.rounds] == list(range(21, 31)), "older ones are not kept"
    twin = Rounds.from_arrays(engine.rounds.to_arrays(), n_clients=4, last_round=30)
    for rounds in (engine.rounds, twin):
        assert rounds.pending_rounds(3) == tuple(range(21, 31))
        for number in range(21, 31):
            rounds.settle(rounds.get(number), np.array([3]))
        assert rounds.pending_rounds(3) == ()
