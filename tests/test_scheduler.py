"""The Scheduler as its users meet it."""

import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest

from bsfl import BSFL, CsUcbQ, Genie, Means, Observation, Scheduler, UniformRandom, WeightedRandom
from bsfl.errors import InvalidInput, NotSelected, UnknownClient

IDS = [f"phone-{i}" for i in range(10)]


@pytest.fixture
def scheduler():
    return Scheduler(BSFL(alpha=5.0), cohort_size=3, seed=1)


def snapshot(scheduler):
    """Everything a caller could notice."""
    state = scheduler.state
    return (
        scheduler.t,
        scheduler.clients,
        scheduler.outstanding,
        scheduler.last_round,
        {f.name: np.copy(getattr(state, f.name)).tobytes() for f in fields(state)},
    )


def test_a_round(scheduler):
    cohort = scheduler.select(available=IDS)
    assert len(cohort) == 3
    assert set(cohort) <= set(IDS)
    assert scheduler.outstanding == cohort
    scheduler.observe({cohort[0]: 3.2, cohort[1]: Observation(latency=60.0, outcome="timeout")})
    assert scheduler.outstanding == [cohort[2]]
    record = scheduler.last_round
    assert (record.t, record.cohort, record.n_available, record.short) == (
        1,
        tuple(cohort),
        10,
        False,
    )


def test_it_learns_who_is_slow():
    fast = Scheduler(BSFL(alpha=0.0, index=Means(radius="none")), cohort_size=3)
    for _ in range(12):
        cohort = fast.select(available=IDS)
        fast.observe({c: 1.0 + int(c[-1]) for c in cohort})
    assert cohort == IDS[:3]


def test_int_ids_of_any_size_and_numpy_ints():
    huge = [2**64 - 1, 2**63, -5]
    scheduler = Scheduler(UniformRandom(), cohort_size=3)
    assert sorted(scheduler.select(available=huge)) == sorted(huge)
    small = Scheduler(UniformRandom(), cohort_size=2)
    cohort = small.select(available=np.arange(5))
    assert all(type(c) is int for c in cohort)


def test_fewer_available_than_wanted_takes_all_and_says_so(scheduler):
    scheduler.join(IDS)
    assert sorted(scheduler.select(available=IDS[:2])) == IDS[:2]
    assert scheduler.last_round.short
    assert scheduler.select(available=[]) == []
    assert scheduler.last_round.n_available == 0
    assert len(scheduler.select()) == 3
    assert not scheduler.last_round.short


def test_one_round_may_invite_more(scheduler, tmp_path):
    assert len(scheduler.select(available=IDS, cohort_size=5)) == 5
    assert (scheduler.last_round.cohort_size, scheduler.last_round.short) == (5, False)
    scheduler.save(tmp_path / "scheduler.bsfl")
    assert Scheduler.load(tmp_path / "scheduler.bsfl").last_round == scheduler.last_round
    assert len(scheduler.select()) == 3
    before = snapshot(scheduler)
    for wrong, rule in ((0, "a whole number of at least 1, got 0"), (11, "between 1 and the 10")):
        with pytest.raises(InvalidInput, match=f"cohort_size must be {rule}"):
            scheduler.select(cohort_size=wrong)
    assert snapshot(scheduler) == before


def test_abandoned_answers_are_no_longer_waited_for(scheduler):
    cohort = scheduler.select(available=IDS)
    scheduler.abandon(cohort[:1])
    assert scheduler.outstanding == cohort[1:]
    scheduler.abandon()
    assert scheduler.outstanding == []
    with pytest.raises(NotSelected, match="has no answer outstanding"):
        scheduler.observe({cohort[1]: 1.0}, strict=True)
    scheduler.select()
    assert scheduler.state.selected.sum() == 3
    with pytest.raises(UnknownClient, match="unknown client 'ghost'"):
        scheduler.abandon(["ghost"])


def test_late_answers_count_for_their_own_round(scheduler):
    first = scheduler.select(available=IDS)
    scheduler.observe({first[0]: 1.0})
    second = scheduler.select()
    scheduler.observe({first[1]: 2.0, second[0]: 3.0})
    scheduler.observe({second[1]: 4.0})
    assert set(scheduler.outstanding) == {first[2], second[2]}
    index = scheduler._clients.index_of
    for client, latency in ((first[1], 2.0), (second[0], 3.0), (second[1], 4.0)):
        assert scheduler.state.memory.mean[index(client)] == pytest.approx(1 / latency)
    for client in (*first, *second):
        assert scheduler.state.selected[index(client)] == 1


def test_a_cohort_nobody_reports_still_counts_as_chosen(scheduler):
    chosen = {*scheduler.select(available=IDS), *scheduler.select(), *scheduler.select()}
    assert len(chosen) == 9, "silent clients do not stay first in line"
    scheduler.select()
    assert scheduler.state.selected.sum() == 9


def test_leaving_and_returning_keeps_what_is_known(scheduler):
    scheduler.join(IDS)
    for _ in range(20):
        scheduler.observe({c: 1.0 + int(c[-1]) for c in scheduler.select()})
    index = scheduler._clients.index_of("phone-4")
    known = scheduler.state.memory.mean[index]
    scheduler.leave(["phone-4"])
    assert "phone-4" not in scheduler.clients
    for _ in range(10):
        cohort = scheduler.select()
        assert "phone-4" not in cohort
        scheduler.observe({c: 1.0 + int(c[-1]) for c in cohort})
    scheduler.select(available=["phone-4", "phone-5", "phone-6"])
    assert "phone-4" in scheduler.clients
    assert scheduler.state.memory.mean[index] == known
    # it was away for rounds 21 to 30, which do not count: round 31 is its 21st
    assert scheduler._clients.roster().since[index] == 11


def test_a_late_joiner_is_not_owed_the_rounds_before_it_came(scheduler):
    scheduler.join(IDS)
    for _ in range(200):
        scheduler.observe(dict.fromkeys(scheduler.select(), 1.0))
    scheduler.register("new")
    chosen = 0
    for _ in range(40):
        cohort = scheduler.select()
        chosen += "new" in cohort
        scheduler.observe(dict.fromkeys(cohort, 1.0))
    # a fair share of 40 rounds is 40 * 3 / 11 = 11; owed 240 rounds it would be in nearly all
    assert 8 <= chosen <= 15


def test_register_updates_what_is_known():
    scheduler = Scheduler(WeightedRandom(), cohort_size=1, seed=0)
    scheduler.register("a", samples=1)
    scheduler.register("b", samples=1)
    scheduler.register("a", samples=1e12)
    assert [scheduler.select() for _ in range(20)] == [["a"]] * 20


def test_the_same_seed_gives_the_same_cohorts():
    def play(seed):
        scheduler = Scheduler(UniformRandom(), cohort_size=2, seed=seed)
        return [scheduler.select(available=IDS) for _ in range(10)]

    assert play(3) == play(3)
    assert play(3) != play(4)


def test_answers_nobody_waits_for(scheduler):
    cohort = scheduler.select(available=IDS)
    other = next(c for c in IDS if c not in cohort)
    before = snapshot(scheduler)
    with pytest.raises(NotSelected, match=f"client '{other}' has no answer outstanding"):
        scheduler.observe({cohort[0]: 1.0, other: 1.0}, strict=True)
    with pytest.raises(UnknownClient, match="unknown client 'ghost'"):
        scheduler.observe({cohort[0]: 1.0, "ghost": 1.0}, strict=True)
    assert snapshot(scheduler) == before, "nothing of the good part was taken either"
    refused = scheduler.observe({cohort[0]: 1.0, other: 1.0, "ghost": 1.0})
    assert list(refused) == [other, "ghost"]
    assert "no answer outstanding" in refused[other]
    assert "unknown client 'ghost'" in refused["ghost"]
    assert scheduler.outstanding == cohort[1:]
    with pytest.raises(NotSelected, match="or was reported already"):
        scheduler.observe({cohort[0]: 1.0}, strict=True)


@pytest.mark.parametrize("latency", [float("nan"), float("inf"), -1.0, 0, 0.0, "fast", None, True])
def test_bad_latencies_change_nothing(scheduler, latency):
    cohort = scheduler.select(available=IDS)
    before = snapshot(scheduler)
    answers = {cohort[0]: 1.0, cohort[1]: latency}
    with pytest.raises(InvalidInput, match=f"client '{cohort[1]}': latency"):
        scheduler.observe(answers, strict=True)
    assert snapshot(scheduler) == before
    assert list(scheduler.observe(answers)) == [cohort[1]]
    assert scheduler.outstanding == cohort[2:]
    failed = scheduler._clients.index_of(cohort[1])
    assert scheduler._learned.ledger.missed.tolist() == [int(k == failed) for k in range(10)]


@pytest.mark.parametrize(
    ("available", "message"),
    [
        (["a", "b", "a", "c"], "client ids must be distinct, got 'a' more than once"),
        (["a", 1, "b"], "client ids must be all str or all int, got 'a' and 1"),
        ([0.5, 1.5, 2.5], "a client id must be a str or an int, got 0.5"),
        ([True, False], "a client id must be a str or an int, got True"),
        (["a", "b"], "cohort_size must be between 1 and the 2 clients of the fleet, got 3"),
        ("abcdef", "clients must be a collection of ids, got 'abcdef'"),
        ([], "cohort_size must be between 1 and the 0 clients of the fleet, got 3"),
    ],
)
def test_bad_fleets_change_nothing(scheduler, available, message):
    before = snapshot(scheduler)
    with pytest.raises(InvalidInput, match=message):
        scheduler.select(available=available)
    assert snapshot(scheduler) == before


def test_bad_fleets_are_refused_later_too(scheduler):
    scheduler.select(available=IDS)
    before = snapshot(scheduler)
    with pytest.raises(InvalidInput, match="distinct, got 'phone-1' more than once"):
        scheduler.select(available=["phone-1", "phone-2", "phone-1"])
    with pytest.raises(InvalidInput, match="all str or all int"):
        scheduler.select(available=[1, 2, 3])
    with pytest.raises(UnknownClient, match="unknown client 'ghost'"):
        scheduler.leave(["phone-1", "ghost"])
    assert snapshot(scheduler) == before
    scheduler.leave(IDS[2:])
    with pytest.raises(InvalidInput, match="between 1 and the 2 clients of the fleet, got 3"):
        scheduler.select()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cohort_size": 0}, "cohort_size must be a whole number of at least 1, got 0"),
        ({"cohort_size": 2.5}, "cohort_size must be a whole number of at least 1, got 2.5"),
        ({"cohort_size": 3, "seed": -1}, "seed must be a whole number of at least 0, got -1"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InvalidInput, match=message):
        Scheduler(BSFL(), **settings)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (BSFL, r"got the class BSFL; did you mean BSFL\(\)\?"),
        ("bsfl", "got 'bsfl'; bsfl.policies.make_policy makes one by its name"),
        (object(), "has no init and no select and no observe"),
    ],
)
def test_a_policy_must_be_one(policy, message):
    with pytest.raises(InvalidInput, match=message):
        Scheduler(policy, cohort_size=3)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"samples": [1, 0]}, "samples must be finite and above 0, got 0"),
        ({"samples": [0, 0]}, "samples must be finite and above 0, got 0"),
        ({"samples": [1, -3]}, "samples must be finite and above 0, got -3"),
        ({"samples": [1, float("nan")]}, "samples must be finite and above 0, got nan"),
        (
            {"samples": [1]},
            r"samples must hold one number for each of the 2 clients, got shape \(1,\)",
        ),
        ({"quality": [1, 1.5]}, "quality must be finite and above 0 and at most 1, got 1.5"),
    ],
)
def test_bad_weights_change_nothing(scheduler, told, message):
    with pytest.raises(InvalidInput, match=message):
        scheduler.join(["a", "b"], **told)
    assert scheduler.clients == []


def test_a_weighted_policy_says_what_it_misses():
    scheduler = Scheduler(BSFL(generalization="weighted"), cohort_size=2)
    scheduler.join(["a", "b", "c"], samples=[1, 2, 3])
    scheduler.register("d")
    with pytest.raises(InvalidInput, match="1 of 4 clients have none; register them first"):
        scheduler.select()
    scheduler.register("d", samples=4)
    assert len(scheduler.select()) == 2


def test_a_select_that_fails_takes_its_newcomers_back():
    scheduler = Scheduler(WeightedRandom(), cohort_size=2)
    scheduler.join(list("abcd"), samples=[1, 2, 3, 4])
    scheduler.select()
    scheduler.leave(["d"])
    before = snapshot(scheduler)
    with pytest.raises(InvalidInput, match="1 of 5 clients have none"):
        scheduler.select(["a", "b", "d", "new"])
    assert snapshot(scheduler) == before
    assert len(scheduler.select(["a", "b", "c"])) == 2
    genie = Scheduler(Genie(mean_speed=[0.5, 0.5]), cohort_size=1)
    genie.select(["a", "b"])
    with pytest.raises(InvalidInput, match="mean_speed must cover the fleet of 3 clients, got 2"):
        genie.select(["a", "b", "c"])
    assert genie.select(["a", "b"])


def test_a_client_that_owes_two_answers_may_give_both():
    scheduler = Scheduler(BSFL(), cohort_size=2)
    scheduler.select([1, 2])
    scheduler.select([1, 2])
    scheduler.observe({1: 50.0, 2: 1.0})
    assert scheduler.outstanding == [1, 2]
    scheduler.observe({1: 2.0, 2: 1.0})
    assert scheduler.outstanding == []
    assert scheduler.state.memory.observed.tolist() == [2, 2]


def test_joining_between_choice_and_answer_does_not_matter():
    scheduler = Scheduler(CsUcbQ(tau_max=5.0), cohort_size=2)
    scheduler.join(list("abcd"), samples=[1, 2, 3, 4])
    cohort = scheduler.select()
    scheduler.join(["new"])
    scheduler.observe(dict.fromkeys(cohort, 1.0))


def test_a_set_of_ids_means_the_same_in_every_process():
    code = (
        "from bsfl import BSFL, Scheduler\n"
        "print(Scheduler(BSFL(), cohort_size=2).select({f'c{i}' for i in range(20)}))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(seen) == 1


def test_a_refused_loss_can_be_corrected():
    scheduler = Scheduler(BSFL(generalization="loss"), cohort_size=1)
    (client,) = scheduler.select([1, 2, 3])
    with pytest.raises(InvalidInput, match=r"needs losses of at least 0, got -0\.5"):
        scheduler.observe({client: Observation(latency=1.0, loss=-0.5)}, strict=True)
    scheduler.observe({client: Observation(latency=1.0, loss=0.5)})
    assert len(scheduler.select()) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.select("ab"), "clients must be a collection of ids, got 'ab'"),
        (lambda s: s.join(5), "clients must be a collection of ids, got 5"),
        (lambda s: s.join(["c"], samples=["x"]), r"samples must be a list of numbers, got \['x'\]"),
        (lambda s: s.observe([("a", 1.0)]), "answers must map clients to latencies"),
        (
            lambda s: s.observe({True: 1.0}, strict=True),
            "a client id must be a str or an int, got True",
        ),
        (
            lambda s: s.observe({"a": 10**400}, strict=True),
            "client 'a': latency must be a finite number above 0",
        ),
        (
            lambda s: s.observe({"a": 1e-310}, strict=True),
            "latency must be between 1e-09 and 1e[+]12, got 1e-310",
        ),
        (
            lambda s: s.observe({"a": np.ones(2)}, strict=True),
            "client 'a': latency must be a finite number above 0",
        ),
    ],
)
def test_odd_arguments_change_nothing(call, message):
    scheduler = Scheduler(BSFL(), cohort_size=1)
    scheduler.select(["a", "b"])
    scheduler.select(["a"])
    before = snapshot(scheduler)
    with pytest.raises(InvalidInput, match=message):
        call(scheduler)
    assert snapshot(scheduler) == before


@pytest.mark.parametrize("chosen", [[0, 0], [0, 1, 2], [0, 99], [1]])
def test_a_policy_that_chooses_nonsense_is_caught(chosen):
    class Odd(UniformRandom):
        def select(self, state, context, rng):
            return chosen

    scheduler = Scheduler(Odd(), cohort_size=2)
    with pytest.raises(InvalidInput, match="must choose 2 distinct available clients, got"):
        scheduler.select(["a", "b", "c"])
    assert (scheduler.t, scheduler.clients, scheduler.outstanding) == (0, [], [])


def test_a_generalization_that_returns_nonsense_is_caught():
    scheduler = Scheduler(
        BSFL(generalization=lambda c, h, x: np.full(len(c), np.nan)), cohort_size=1
    )
    with pytest.raises(InvalidInput, match="generalization must return one finite number"):
        scheduler.select(["a", "b"])


def test_extreme_weights_keep_the_cohort_size():
    for size in (1e15, 1e-300, 1e-320):
        scheduler = Scheduler(WeightedRandom(), cohort_size=2)
        scheduler.join(list("abcd"), samples=[size] * 4)
        assert len(scheduler.select()) == 2


def test_a_client_that_is_renamed_is_the_same():
    scheduler = Scheduler(BSFL(), cohort_size=1)
    scheduler.join(["ann", "bob"])
    scheduler.leave(["bob"])
    assert scheduler.select() == ["ann"]
    assert scheduler.rename("ann", "eve")
    scheduler.observe({"eve": 3.0})
    assert (scheduler.clients, scheduler.outstanding) == (["eve"], [])
    assert scheduler.state.memory.observed[0] == 1
    assert scheduler.last_round.cohort == ("eve",)
    assert not scheduler.rename("eve", "bob"), "somebody else's, though it has left"
    with pytest.raises(UnknownClient):
        scheduler.rename("ann", "zoe")
