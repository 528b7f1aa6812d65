"""A running job changes its settings or its policy, and keeps what is known of the clients."""

import numpy as np
import pytest

from bsfl import BSFL, Genie, Observation, Pace, RoundPlan, Scheduler, UCBIndex, UniformRandom
from bsfl.errors import InvalidInput, StateFileError
from bsfl.policies import POLICIES
from saved_state import saved_state

IDS = [f"phone-{i}" for i in range(12)]


def run(scheduler, rounds):
    """Run rounds in which phone-i takes i + 1 seconds; phone-11 never responds."""
    for _ in range(rounds):
        cohort = scheduler.select()
        scheduler.observe({c: observed(c) for c in cohort}, round=cohort)


def observed(client):
    i = int(client.rpartition("-")[2])
    if i == 11:
        return Observation(latency_s=60.0, outcome="timeout")
    return Observation(latency_s=1.0 + i, loss=1.0 / (1 + i), samples=100)


def some_rounds_old(policy=None, **settings):
    scheduler = Scheduler(policy, cohort_size=3, clock=lambda: 0.0, **settings)
    scheduler.join(IDS, samples=[100.0] * 12)
    run(scheduler, 30)
    return scheduler


def test_a_file_is_loaded_with_other_settings(tmp_path):
    scheduler = some_rounds_old(over_selection="auto", deadline_s=60.0, late="drop")
    scheduler.save(tmp_path / "s")
    before = scheduler.table()
    changed = Scheduler.load(tmp_path / "s", cohort_size=5, over_selection=1.2)
    assert (changed.cohort_size, changed.over_selection) == (5, 1.2)
    assert changed.plan == RoundPlan(
        target_responses=5, over_selection=1.2, deadline_s=60.0, late="drop"
    )
    assert changed.table() == before
    assert len(changed.select()) == 6
    with pytest.raises(InvalidInput, match="cohort_size"):
        Scheduler.load(tmp_path / "s", cohort_size=0)
    with pytest.raises(InvalidInput, match="over_selection"):
        Scheduler.load(tmp_path / "s", over_selection=0.5)


def test_from_pace_to_bsfl_keeps_what_is_known(tmp_path):
    scheduler = some_rounds_old(Pace())
    rows = scheduler.table()
    assert all(row["invitations"] for row in rows)
    scheduler.save(tmp_path / "s")
    by_speed = BSFL(alpha=0.0, tau_min=1.0, index=UCBIndex(confidence_width="none"))
    changed = Scheduler.load(tmp_path / "s", policy=by_speed, cohort_size=4, clock=lambda: 0.0)
    assert (changed.policy, changed.round) == (by_speed, scheduler.round)
    assert changed.table() == rows, "invitations, latencies, participations stay"
    latencies = np.array([row["latency_s"] or np.nan for row in rows])
    observed = changed.state.memory.observed > 0
    assert observed.tolist() == [row["latency_s"] is not None for row in rows]
    means = changed.state.memory.mean[observed]
    assert means == pytest.approx(1.0 / latencies[observed], rel=1e-6), "one response of each"
    assert changed.select() == [f"phone-{i}" for i in range(4)], "by what Pace has seen of them"
    for client in IDS:
        assert "never been selected" not in str(changed.explain(client)), "none is new"
        assert changed.explain(client).unit == "index"
    run(changed, 5)
    changed.save(tmp_path / "s")
    assert Scheduler.load(tmp_path / "s").policy == by_speed


@pytest.mark.parametrize("name", list(POLICIES))
def test_every_policy_takes_over_from_pace_in_an_open_round_and_pace_from_it(name, tmp_path):
    scheduler = some_rounds_old(Pace(), late="drop")
    cohort = scheduler.select()
    scheduler.observe({cohort[0]: observed(cohort[0])})
    scheduler.save(tmp_path / "s")
    policy = POLICIES.make(name, **POLICIES[name].example)
    changed = Scheduler.load(tmp_path / "s", policy=policy, clock=lambda: 0.0)
    assert changed.table() == scheduler.table()
    assert changed.pending() == [cohort]
    assert changed.observe({c: observed(c) for c in cohort[1:]}, round=cohort) == {}
    run(changed, 10)
    changed.save(tmp_path / "s")
    again = Scheduler.load(tmp_path / "s", clock=lambda: 0.0)
    assert repr(again.policy) == repr(policy)
    back = Scheduler.load(tmp_path / "s", policy=Pace())
    assert back.table() == changed.table()
    assert again.select() == changed.select()
    run(back, 3)


def test_a_policy_that_does_not_fit_is_rejected_and_the_file_stays(tmp_path):
    scheduler = some_rounds_old(UniformRandom())
    path = tmp_path / "s"
    scheduler.save(path)
    content = path.read_bytes()
    for wrong, message in (
        (BSFL, "got the class BSFL"),
        ("bsfl", "policy must be an object"),
        (Genie(mean_speed=[0.5, 0.5]), "mean_speed"),
    ):
        with pytest.raises(InvalidInput, match=message):
            Scheduler.load(path, policy=wrong)
    assert path.read_bytes() == content
    assert saved_state(Scheduler.load(path, clock=lambda: 0.0)) == saved_state(scheduler)


def test_a_policy_that_cannot_forget_is_no_policy_for_a_scheduler_that_does(tmp_path):
    scheduler = some_rounds_old(UniformRandom(), forget_after=50)
    scheduler.save(tmp_path / "s")
    with pytest.raises(InvalidInput, match="mean_speed"):
        Scheduler.load(tmp_path / "s", policy=Genie(mean_speed=np.linspace(0.1, 0.9, 12)))


def test_a_custom_policy_must_be_given_again(tmp_path):
    class Custom(UniformRandom):
        pass

    scheduler = some_rounds_old(Custom())
    scheduler.save(tmp_path / "s")
    with pytest.raises(StateFileError, match="custom policy"):
        Scheduler.load(tmp_path / "s")
    assert Scheduler.load(tmp_path / "s", policy=Custom()).select() == scheduler.select()
