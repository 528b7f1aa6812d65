"""Faults that the attacks have found, one by one."""

from types import SimpleNamespace

import numpy as np
import pytest
from hostile_files import content_of

from bsfl import (
    AFL,
    BSFL,
    CsUcb,
    Lognormal,
    Observation,
    Pace,
    PowerOfChoice,
    Scheduler,
    SlidingWindow,
    UCBIndex,
    WeightedRandom,
)
from bsfl.errors import CorruptFile, InvalidInput
from bsfl.estimators.fairness import capped_shares
from bsfl.policies import POLICIES, make_policy
from saved_state import saved_state


def started(**settings):
    """Return a scheduler that waits for two clients."""
    scheduler = Scheduler(**({"cohort_size": 2} | settings))
    scheduler.select(["ann", "bob", "cem"])
    return scheduler


@pytest.mark.parametrize("wrong", [5, "ann", object(), ["ann", "ann"]])
def test_abandon_wants_a_collection_of_ids(wrong):
    scheduler = started()
    before = saved_state(scheduler)
    with pytest.raises(InvalidInput, match="client"):
        scheduler.abandon(wrong)
    assert saved_state(scheduler) == before


def test_an_answer_of_another_kind_fails_alone():
    scheduler = started()
    one, two = scheduler.in_flight
    refused = scheduler.observe({one: SimpleNamespace(latency_s=-1.0), two: 3.0})
    assert list(refused) == [one]
    assert scheduler.in_flight == []


@pytest.mark.parametrize("over_selection", [np.array([1.2, 2.0]), 1e7, 1e100, "x" * 5000])
def test_over_selection_is_a_plausible_number(over_selection):
    scheduler = started()
    before = saved_state(scheduler)
    with pytest.raises(InvalidInput, match="over_selection must be") as error:
        scheduler.select(over_selection=over_selection)
    assert len(str(error.value)) < 200
    assert saved_state(scheduler) == before


def test_settings_of_numpy_are_saved(tmp_path):
    settings = {
        "over_selection": np.float32(1.5),
        "forget_after": np.int64(7),
        "cohort_size": np.int32(2),
    }
    scheduler = Scheduler(CsUcb(tau_max=np.float32(20.0)), **settings)
    scheduler.select(["ann", "bob", "cem"])
    scheduler.save(tmp_path / "s.bsfl")
    loaded = Scheduler.load(tmp_path / "s.bsfl")
    assert (loaded.over_selection, loaded.forget_after, loaded.policy.tau_max) == (1.5, 7, 20.0)


def test_a_client_that_joins_again_is_not_forgotten_at_once():
    scheduler = Scheduler(cohort_size=1, forget_after=10)
    scheduler.select(["ann", "bob"])
    scheduler.leave(["bob"])
    for _ in range(9):
        scheduler.select(["ann"])
    scheduler.join(["bob"])
    for _ in range(10):
        scheduler.select(["ann"])
        assert scheduler.clients == ["ann", "bob"]


def test_a_refused_selection_leaves_the_record_of_the_fleet():
    """Newcomers without samples are refused; then the fleet is still that of the last round."""
    scheduler = Scheduler(WeightedRandom(), cohort_size=2)
    scheduler.join(["ann", "bob", "cem"], samples=[1.0, 2.0, 3.0])
    scheduler.select()
    before = saved_state(scheduler)
    with pytest.raises(InvalidInput, match="samples"):
        scheduler.select(["ann", "dan"])
    assert saved_state(scheduler) == before


def test_samples_that_are_registered_after_the_selection_count():
    scheduler = Scheduler(AFL(), cohort_size=2)
    cohort = scheduler.select(["ann", "bob", "cem"])
    scheduler.register(cohort[0], samples=5.0)
    answer = Observation(latency_s=1.0, loss=2.0)
    assert list(scheduler.observe(dict.fromkeys(cohort, answer))) == [cohort[1]]


def test_features_far_from_all_others_break_no_selection(tmp_path):
    for policy in (Pace(), BSFL(index=Lognormal())):
        scheduler = Scheduler(policy, cohort_size=2)
        scheduler.join(range(4), features=[[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [1e-9, 1.0]])
        for client in range(20):
            scheduler.register(10 + client, features=[1e12 * (-1) ** client, -1e12])
            scheduler.observe({k: 10.0 ** (k % 19 - 8) for k in scheduler.select()})
            scheduler.save(tmp_path / "s.bsfl")
            assert Scheduler.load(tmp_path / "s.bsfl").round == scheduler.round


def test_shares_of_tiny_weights_are_numbers():
    shares = capped_shares(np.array([1.0, 0.0, 1e-312, 1e-312, 1e-312]), 2)
    assert shares == pytest.approx([1.0, 0.0, 1 / 3, 1 / 3, 1 / 3])


def test_features_of_nobody_are_not_reserved_for_the_next(tmp_path):
    """A file without clients may claim a row of any length at no cost."""
    path = tmp_path / "s.bsfl"
    Scheduler(cohort_size=1).save(path)
    content = content_of(path)
    for array in content.arrays:
        if array[0] == "pool/features":
            array[2] = [0, 10**9]
    path.write_bytes(content.to_bytes())
    with pytest.raises(CorruptFile, match="features"):
        Scheduler.load(path)


@pytest.mark.parametrize("fault", ["forget_after", "missing", "small"])
def test_states_that_break_a_later_round_are_refused(tmp_path, fault):
    policy = (
        make_policy("rbcs-f", **POLICIES["rbcs-f"].example) if fault == "forget_after" else BSFL()
    )
    scheduler, path = Scheduler(policy, cohort_size=2), tmp_path / "s.bsfl"
    for _ in range(4):
        scheduler.observe(dict.fromkeys(scheduler.select(range(5)), 2.0))
    scheduler.save(path)
    content = content_of(path)
    names = [array[0] for array in content.arrays]
    if fault == "forget_after":
        content.header["forget_after"] = 5
    elif fault == "missing":
        del content.arrays[names.index("task/invitations")]
    else:  # counts of 32 bits would run over with the next answer
        where = names.index("policy/memory.observed")
        content.put(where, np.full(5, 2**31 - 1, np.int32))
    path.write_bytes(content.to_bytes())
    with pytest.raises(CorruptFile, match="no scheduler can have saved"):
        Scheduler.load(path)


def test_a_client_that_is_named_twice_in_other_words_answers_once():
    class Word(str):
        __slots__ = ()

        def __hash__(self):
            return 5

        def __eq__(self, other):
            return self is other

    scheduler = started()
    one = scheduler.in_flight[0]
    twice = Word(one)
    refused = scheduler.observe({one: 2.0, twice: 3.0})
    assert list(refused) == [twice]


@pytest.mark.parametrize(("kind", "count"), [("i4", 2**31 - 1), ("i8", 2**32 + 1)])
def test_a_count_that_would_run_over_is_refused(tmp_path, kind, count):
    """Four bytes end soon after 2 x 10^9; 2^32 + 1 would become 1 in them."""
    path = tmp_path / "s.bsfl"
    started().save(path)
    content = content_of(path)
    (place,) = (i for i, (name, *_) in enumerate(content.arrays) if name == "pool/responded")
    content.put(place, np.full(3, count, kind))
    path.write_bytes(content.to_bytes())
    with pytest.raises(CorruptFile, match="responded holds"):
        Scheduler.load(path)


def test_a_round_beyond_all_counting_is_refused(tmp_path):
    path = tmp_path / "s.bsfl"
    scheduler = started()
    scheduler._engine.task.round = 2**31 - 2
    scheduler.save(path)
    with pytest.raises(CorruptFile, match="holds what no"):
        Scheduler.load(path)


def test_missing_samples_do_not_keep_a_file_from_being_loaded(tmp_path):
    scheduler = Scheduler(PowerOfChoice(candidates=2), cohort_size=2)
    scheduler.join(["ann", "bob", "cem"])
    scheduler.save(tmp_path / "s.bsfl")
    loaded = Scheduler.load(tmp_path / "s.bsfl")
    loaded.join(["ann", "bob", "cem"], samples=[1, 1, 1])
    assert len(loaded.select()) == 2


def test_more_answers_than_selections_break_no_selection():
    scheduler = Scheduler(
        BSFL(index=UCBIndex(confidence_width="bernstein"), memory=SlidingWindow(10)), cohort_size=2
    )
    for _ in range(12):
        scheduler.observe(dict.fromkeys(scheduler.select(range(6)), 2.0))
    scheduler._engine.task.invitations[:] = 1  # as a file may say
    scheduler.state.memory.recent[:] = scheduler.state.memory.older_count[:] = 1.0
    for _ in range(12):
        assert len(scheduler.select()) == 2
