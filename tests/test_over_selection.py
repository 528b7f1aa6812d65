"""How many to invite: the number that makes enough answers likely, found by the clients' record."""

import numpy as np
import pytest

from bsfl import BSFL, Observation, Scheduler, UniformRandom
from bsfl.errors import InvalidInput
from bsfl.over_selection import most_invited, n_to_invite


@pytest.mark.parametrize("chance", [0.7, 0.8, 0.9, 0.95])
def test_enough_answer_in_19_of_20_rounds(chance):
    rng, n = np.random.default_rng(0), n_to_invite(40, chance)
    enough = np.mean(rng.binomial(n, chance, 20_000) >= 40)
    assert enough > 0.93
    if n > 52:  # not the least number of all
        assert np.mean(rng.binomial(n - 3, chance, 20_000) >= 40) < 0.95


def test_limits():
    assert n_to_invite(10, 1.0) == 13
    assert n_to_invite(10, 0.1) == 20
    assert most_invited(1.0, 7) == 7
    assert most_invited(1.3, 10) == 13


def play(scheduler, lost, rounds=80, n=60):
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        cohort = scheduler.select(available=range(n))
        scheduler.observe(
            {
                k: Observation(latency=9.0, outcome="timeout") if rng.random() < lost(k) else 1.0
                for k in cohort
            }
        )
    return scheduler


def test_the_less_reliable_clients_are_the_more_are_invited():
    sizes = [
        play(Scheduler(cohort_size=10, invite="auto"), lambda _, p=p: p).last_round.cohort_size
        for p in (0.0, 0.2, 0.4)
    ]
    assert sizes[0] == 13
    assert sizes[0] < sizes[1] < sizes[2] <= 20


def test_a_cohort_of_unreliable_clients_is_larger():
    scheduler = play(Scheduler(cohort_size=10, invite="auto"), lambda k: 0.5 if k < 30 else 0.0)
    bad = scheduler.select(available=range(30))
    good = scheduler.select(available=range(30, 60))
    assert len(bad) > len(good) + 3


def kept_of_six(invite, rounds=30):
    """Return how often each of six clients was among the two that end a round."""
    delays, kept = np.array([0.8, 1.6, 3.2, 6.0, 10.0, 16.0]), np.zeros(6)
    for seed in range(10):
        rng, scheduler = np.random.default_rng(seed), Scheduler(cohort_size=2, invite=invite)
        for _ in range(rounds):
            cohort = scheduler.select(available=range(6))
            seconds = dict(
                zip(
                    cohort,
                    delays[cohort] * np.exp(0.05 * rng.normal(size=len(cohort))),
                    strict=True,
                )
            )
            first = sorted(cohort, key=seconds.get)[:2]
            scheduler.observe(
                {
                    k: Observation(latency=s, outcome="ok" if k in first else "late")
                    for k, s in seconds.items()
                }
            )
            kept[first] += 0.1
    return kept


def test_who_is_slower_than_all_others_is_waited_for_now_and_then():
    assert kept_of_six(1.3)[5] == 0, "a third one always comes before it"
    assert kept_of_six("auto")[5] >= 1.5, "of 10, its fair number"


@pytest.mark.parametrize("m", [4, 6])
@pytest.mark.parametrize("falls", [True, False], ids=["losses fall", "losses stay"])
def test_one_client_much_slower_than_all_others_enters_the_model(m, falls):
    """It is heard in about a tenth of its fair number of rounds, 800 m / 15, less a few.

    Rounds that would leave out two or more wait for it when it is missed as much as they.
    """
    rng, scheduler = np.random.default_rng(0), Scheduler(cohort_size=m, invite="auto")
    usual_s, n_kept = np.append(rng.uniform(2.0, 5.0, 14), 30.0), 0
    for t in range(800):
        cohort = scheduler.select(available=range(15))
        seconds = {k: usual_s[k] * rng.lognormal(0, 0.15) for k in cohort}
        first = sorted(cohort, key=seconds.get)[: scheduler.last_round.enough]
        loss = 0.3 + 2.0 * np.exp(-t / 100) if falls else 1.0
        told = {k: {"loss": loss} if k in first else {"outcome": "late"} for k in cohort}
        scheduler.observe({k: Observation(latency=seconds[k], **told[k]) for k in cohort})
        n_kept += 14 in first
    assert 0.05 * 800 * m / 15 <= n_kept <= 0.15 * 800 * m / 15


def test_a_round_waits_for_all_only_if_it_would_leave_out_those_it_mostly_does():
    scheduler = Scheduler(BSFL(alpha=1000.0), cohort_size=2, invite="auto")
    for _ in range(4):
        cohort = scheduler.select(available=range(3))
        scheduler.observe(
            {k: Observation(latency=1.0 + k, outcome="late" if k == 2 else "ok") for k in cohort}
        )
    assert scheduler.last_round.cohort_size == 2
    assert sorted(scheduler.select(available=[0, 1, 3])) == [0, 1, 3]
    assert scheduler.last_round.enough == 2


def test_how_many_answers_are_enough_stands_in_the_record(tmp_path):
    scheduler = Scheduler(BSFL(), cohort_size=4, invite=1.5)
    assert len(scheduler.select(available=range(20))) == 6
    assert (scheduler.last_round.cohort_size, scheduler.last_round.enough) == (6, 4)
    assert len(scheduler.select(invite=1.0)) == 4
    assert len(scheduler.select(cohort_size=9)) == 9
    assert (scheduler.last_round.cohort_size, scheduler.last_round.enough) == (9, 4)
    scheduler.save(tmp_path / "state")
    again = Scheduler.load(tmp_path / "state")
    assert again.invite == 1.5
    assert again.last_round == scheduler.last_round


def test_a_saved_scheduler_goes_on_with_the_same_numbers(tmp_path):
    one = play(Scheduler(cohort_size=10, invite="auto"), lambda k: 0.3)
    one.save(tmp_path / "state")
    other = Scheduler.load(tmp_path / "state")
    assert play(one, lambda k: 0.3, 5).last_round == play(other, lambda k: 0.3, 5).last_round


def test_answers_belong_to_the_size_of_their_round(tmp_path):
    scheduler = Scheduler(cohort_size=4, seed=0)
    first = scheduler.select(available=range(20))
    scheduler.select(available=[k for k in range(20) if k not in first], cohort_size=1)
    scheduler.save(tmp_path / "state")
    for one in (scheduler, Scheduler.load(tmp_path / "state")):
        one.observe(dict.fromkeys(first, 10.0))
        assert one.state.time_s == pytest.approx(10.0), "a round of four that was overtaken"


def test_one_round_may_want_more_answers():
    scheduler = Scheduler(cohort_size=4)
    assert len(scheduler.select(available=range(40), cohort_size=8, invite=1.5)) == 12
    assert scheduler.last_round.enough == 8


class Refuses(UniformRandom):
    """Chooses once, and refuses to choose again."""

    def select(self, state, context, rng):
        if context.cohort_size > 14:
            raise InvalidInput("no")
        return super().select(state, context, rng)


def test_a_refused_round_leaves_everything_as_it_was():
    scheduler = Scheduler(Refuses(), cohort_size=10, invite="auto")
    cohort = scheduler.select(available=range(30))
    scheduler.observe({k: Observation(outcome="failed") for k in cohort})
    before = (
        scheduler._learned.ledger.last_chance,
        scheduler._learned.n_clients,
        len(scheduler.clients),
    )
    with pytest.raises(InvalidInput, match="no"):
        scheduler.select(available=range(50))
    assert (
        scheduler._learned.ledger.last_chance,
        scheduler._learned.n_clients,
        len(scheduler.clients),
    ) == before


@pytest.mark.parametrize("invite", [0.9, "often", float("nan"), True])
def test_a_bad_number_is_refused(invite):
    with pytest.raises(InvalidInput, match="invite"):
        Scheduler(cohort_size=4, invite=invite)
    with pytest.raises(InvalidInput, match="invite"):
        Scheduler(cohort_size=4).select(available=range(9), invite=invite)
