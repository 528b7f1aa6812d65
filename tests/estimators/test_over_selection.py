"""How many clients to invite: as many as it takes for enough responses, by their response rates."""

import numpy as np
import pytest

from bsfl import BSFL, Observation, Scheduler, UniformRandom
from bsfl.errors import InvalidInput
from bsfl.estimators.over_selection import n_to_invite
from bsfl.types import max_invited
from saved_state import saved_state


@pytest.mark.parametrize("rate", [0.7, 0.8, 0.9, 0.95])
def test_enough_clients_respond_in_19_of_20_rounds(rate):
    rng, n = np.random.default_rng(0), n_to_invite(40, rate)
    enough = np.mean(rng.binomial(n, rate, 20_000) >= 40)
    assert enough > 0.93
    if n > 52:  # not the smallest number allowed
        assert np.mean(rng.binomial(n - 3, rate, 20_000) >= 40) < 0.95


def test_limits():
    assert n_to_invite(10, 1.0) == 13
    assert n_to_invite(10, 0.1) == 20
    assert max_invited(1.0, 7) == 7
    assert max_invited(1.3, 10) == 13


def run(scheduler, loss_rate, n_rounds=80, n=60):
    """Run rounds in which a response of client k is lost with probability loss_rate(k)."""
    rng = np.random.default_rng(0)
    lost = Observation(latency_s=9.0, outcome="timeout")
    for _ in range(n_rounds):
        cohort = scheduler.select(available=range(n))
        reported = {k: lost if rng.random() < loss_rate(k) else 1.0 for k in cohort}
        scheduler.observe(reported, round=cohort)
    return scheduler


def auto(cohort_size=10, **settings):
    return Scheduler(cohort_size=cohort_size, over_selection="auto", **settings)


def test_the_less_reliable_clients_are_the_more_are_invited():
    sizes = [run(auto(), lambda _, p=p: p).last_round.n_invited for p in (0.0, 0.2, 0.4)]
    assert sizes[0] == 13
    assert sizes[0] < sizes[1] < sizes[2] <= 20
    mixed = run(auto(), lambda k: 0.5 if k < 30 else 0.0)
    assert len(mixed.select(range(30))) > len(mixed.select(range(30, 60))) + 3


# --- chronically late clients ---------------------------------------------------------------------


def respond_in_order(scheduler, cohort, seconds, **values):
    """Report responses as they come: those after the target are late. Return the fresh ones."""
    in_order = sorted(cohort, key=seconds.get)
    fresh, late = in_order[: cohort.target_responses], in_order[cohort.target_responses :]
    scheduler.observe({k: Observation(latency_s=seconds[k], **values) for k in fresh}, round=cohort)
    scheduler.observe({k: seconds[k] for k in late}, round=cohort)
    return fresh


@pytest.mark.parametrize("m", [4, 6])
@pytest.mark.parametrize("falls", [True, False], ids=["losses fall", "losses stay"])
def test_one_client_much_slower_than_all_others_enters_the_model(m, falls):
    """It takes part in about a tenth of its fair count, 800 m / 15, less a few.

    Rounds that would drop two or more wait for it if its participation deficit is as large.
    """
    rng, scheduler = np.random.default_rng(0), auto(m, late="drop")
    usual_s, n_kept = np.append(rng.uniform(2.0, 5.0, 14), 30.0), 0
    for t in range(800):
        cohort = scheduler.select(available=range(15))
        seconds = {k: usual_s[k] * rng.lognormal(0, 0.15) for k in cohort}
        loss = 0.3 + 2.0 * np.exp(-t / 100) if falls else 1.0
        n_kept += 14 in respond_in_order(scheduler, cohort, seconds, loss=loss)
    assert 0.05 * 800 * m / 15 <= n_kept <= 0.15 * 800 * m / 15


def test_a_round_waits_for_all_only_if_it_would_drop_chronically_late_clients():
    scheduler = auto(2, policy=BSFL(alpha=1000.0), late="drop")
    for _ in range(4):
        cohort = scheduler.select(available=range(3))
        respond_in_order(scheduler, cohort, {k: 1.0 + k for k in cohort})
    assert scheduler.last_round.n_invited == 2
    assert sorted(scheduler.select(available=[0, 1, 3])) == [0, 1, 3]
    assert scheduler.last_round.target_responses == 2


# --- the scheduler --------------------------------------------------------------------------------


def test_the_record_names_the_target_responses(tmp_path):
    scheduler, sizes = Scheduler(BSFL(), cohort_size=4, over_selection=1.5), []
    scheduler.join(range(20))
    for settings in ({}, {"over_selection": 1.0}, {"cohort_size": 9}):
        cohort = scheduler.select(**settings)
        record = scheduler.last_round
        sizes.append((len(cohort), record.n_invited, record.target_responses))
    assert sizes == [(6, 6, 4), (4, 4, 4), (14, 14, 9)]
    scheduler.save(tmp_path / "state")
    again = Scheduler.load(tmp_path / "state")
    assert again.over_selection == 1.5
    assert again.last_round == record


def test_a_loaded_scheduler_resumes_with_the_same_numbers(tmp_path):
    one = run(auto(), lambda k: 0.3)
    one.save(tmp_path / "state")
    other = Scheduler.load(tmp_path / "state")
    assert run(one, lambda k: 0.3, 5).last_round == run(other, lambda k: 0.3, 5).last_round


def test_responses_belong_to_the_size_of_their_round(tmp_path):
    scheduler = Scheduler(cohort_size=4, seed=0)
    first = scheduler.select(available=range(20))
    scheduler.select(available=[k for k in range(20) if k not in first], cohort_size=1)
    scheduler.save(tmp_path / "state")
    for one in (scheduler, Scheduler.load(tmp_path / "state")):
        one.observe(dict.fromkeys(first, 10.0), round=first.round)
        assert one.state.rate.time_s == pytest.approx(10.0), "a round of four, overtaken by one"


class Fails(UniformRandom):
    """Raises if it is to select more than 14 clients, after a first selection of 13."""

    def select(self, state, context, rng):
        if context.n_invited > 14:
            raise InvalidInput("no")
        return super().select(state, context, rng)


def test_a_round_that_cannot_be_opened_changes_nothing():
    scheduler = auto(policy=Fails())
    cohort = scheduler.select(available=range(30))
    scheduler.observe({k: Observation(outcome="failed") for k in cohort})
    before = saved_state(scheduler)
    with pytest.raises(InvalidInput, match="no"):
        scheduler.select(available=range(50))
    assert saved_state(scheduler) == before


@pytest.mark.parametrize("over_selection", [float("nan"), True])
def test_what_is_no_number_is_rejected(over_selection):
    with pytest.raises(InvalidInput, match="over_selection"):
        Scheduler(cohort_size=4, over_selection=over_selection)
