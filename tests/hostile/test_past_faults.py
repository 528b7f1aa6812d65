"""Faults that the attacks have found, one by one."""

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
)
from bsfl.errors import CorruptFile
from bsfl.estimators.fairness import capped_shares
from bsfl.policies import POLICIES


def started(**settings):
    """Return a scheduler that waits for two clients."""
    scheduler = Scheduler(**({"cohort_size": 2} | settings))
    scheduler.select(["ann", "bob", "cem"])
    return scheduler


def test_settings_of_numpy_are_saved(tmp_path):
    scheduler = started(
        policy=CsUcb(tau_max=np.float32(20.0)),
        over_selection=np.float32(1.5),
        forget_after=np.int64(7),
        cohort_size=np.int32(2),
    )
    scheduler.save(tmp_path / "s.bsfl")
    loaded = Scheduler.load(tmp_path / "s.bsfl")
    assert (loaded.over_selection, loaded.forget_after, loaded.policy.tau_max) == (1.5, 7, 20.0)


def test_samples_that_are_registered_after_the_selection_count():
    scheduler = started(policy=AFL())
    cohort = scheduler.in_flight
    scheduler.register(cohort[0], samples=5.0)
    response = Observation(latency_s=1.0, loss=2.0)
    assert list(scheduler.observe(dict.fromkeys(cohort, response))) == [cohort[1]]


@pytest.mark.parametrize("policy", [Pace(), BSFL(index=Lognormal())])
def test_features_far_from_all_others_break_no_selection(policy, tmp_path):
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


def changed(path, change):
    """Change the content of a saved file."""
    content = content_of(path)
    change(content)
    path.write_bytes(content.to_bytes())
    return path


def test_features_of_no_client_are_not_reserved_for_the_next(tmp_path):
    """A file without clients may claim a row of any length at no cost."""

    def claim(content):
        content.arrays[content.position("pool/features")][2] = [0, 10**9]

    Scheduler(cohort_size=1).save(tmp_path / "s.bsfl")
    with pytest.raises(CorruptFile, match="features"):
        Scheduler.load(changed(tmp_path / "s.bsfl", claim))


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("policy/memory.observed", np.full(3, 2**31 - 1, np.int32)),
        ("pool/responded", np.full(3, 2**31 - 1, np.int32)),
        ("pool/responded", np.full(3, 2**32 + 1, np.int64)),  # 1 in four bytes
        ("task/round", np.array(2**31 - 2)),
    ],
)
def test_counts_that_would_run_over_are_rejected(tmp_path, name, numbers):
    started(policy=BSFL()).save(tmp_path / "s.bsfl")
    with pytest.raises(CorruptFile, match=f"{name.split('/')[1].split('.')[-1]} holds"):
        Scheduler.load(changed(tmp_path / "s.bsfl", lambda content: content.put(name, numbers)))


def test_a_file_whose_policy_cannot_forget_forgets_no_client(tmp_path):
    policy = POLICIES.make("rbcs-f", **POLICIES["rbcs-f"].example)
    started(policy=policy).save(tmp_path / "s.bsfl")
    with pytest.raises(CorruptFile, match="by their position"):
        Scheduler.load(changed(tmp_path / "s.bsfl", lambda one: one.header.update(forget_after=5)))


def test_a_client_that_is_named_twice_in_other_words_responds_once():
    class Word(str):
        __slots__ = ()

        def __hash__(self):
            return 5

        def __eq__(self, other):
            return self is other

    scheduler = started()
    one = scheduler.in_flight[0]
    twice = Word(one)
    assert list(scheduler.observe({one: 2.0, twice: 3.0})) == [twice]


def test_missing_samples_do_not_keep_a_file_from_being_loaded(tmp_path):
    scheduler = Scheduler(PowerOfChoice(candidates=2), cohort_size=2)
    scheduler.join(["ann", "bob", "cem"])
    scheduler.save(tmp_path / "s.bsfl")
    loaded = Scheduler.load(tmp_path / "s.bsfl")
    loaded.join(["ann", "bob", "cem"], samples=[1, 1, 1])
    assert len(loaded.select()) == 2


def test_more_responses_than_selections_break_no_selection():
    scheduler = Scheduler(
        BSFL(index=UCBIndex(confidence_width="bernstein"), memory=SlidingWindow(10)), cohort_size=2
    )
    for _ in range(12):
        scheduler.observe(dict.fromkeys(scheduler.select(range(6)), 2.0))
    scheduler._engine.task.invitations[:] = 1  # as a file may say
    scheduler.state.memory.recent[:] = scheduler.state.memory.older_count[:] = 1.0
    for _ in range(12):
        assert len(scheduler.select()) == 2
