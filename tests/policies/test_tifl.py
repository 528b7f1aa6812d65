"""TiFL: profiling, tiers, credits and probabilities, one step after another."""

import numpy as np
import pytest
from policy_rounds import context, report

from bsfl.errors import InvalidInput
from bsfl.policies import TiFL
from bsfl.policies.tifl import NO_TIER, rank_probabilities, tier_losses


def seen(cohort, latency, loss=None):
    """Client k takes latency[k] and reports loss[k]."""
    loss = np.ones(len(latency)) if loss is None else loss
    cohort = [int(k) for k in cohort]
    return report(
        {k: float(latency[k]) for k in cohort}, losses={k: float(loss[k]) for k in cohort}
    )


def profiled(policy, k, m, latency, loss=None):
    """Return the state after everyone was profiled, and the next round's number."""
    state, t = policy.init(k), 1
    while (state.selected == 0).any():
        cohort = policy.select(state, context(t, m, k), np.random.default_rng(t))
        assert np.all(state.selected[cohort] == 0), "profiling chooses nobody twice"
        policy.observe(state, context(t, m, k), seen(cohort, latency, loss))
        t += 1
    return state, t


def test_everyone_is_profiled_once_and_then_sorted_into_tiers_of_equal_size():
    policy = TiFL(tau_max=100.0, rounds=50)
    latency = np.random.default_rng(0).permutation(np.arange(1.0, 21.0))
    state, t = profiled(policy, 20, 4, latency)
    assert t == 6
    assert np.all(state.tier == NO_TIER), "until a tier is first needed"
    cohort = policy.select(state, context(t, 4, 20), np.random.default_rng(0))
    policy.observe(state, context(t, 4, 20), seen(cohort, latency))
    assert state.tier.tolist() == ((latency - 1) // 4).astype(int).tolist()
    assert state.bound_s == pytest.approx([5.0, 9.0, 13.0, 17.0])


def test_a_cohort_comes_from_one_tier():
    policy = TiFL(tau_max=100.0, rounds=10**6)
    latency = np.arange(1.0, 31.0)
    state, start = profiled(policy, 30, 3, latency)
    drawn = set()
    for t in range(start, start + 60):
        cohort = policy.select(state, context(t, 3, 30), np.random.default_rng(t))
        tier = set((cohort // 6).tolist())
        assert len(tier) == 1
        drawn |= tier
        policy.observe(state, context(t, 3, 30), seen(cohort, latency))
    assert drawn == set(range(5))


def test_credits_step_by_step():
    # 23 rounds are planned: each of 5 tiers gets ceil(23 / 5) = 5 credits
    policy = TiFL(tau_max=100.0, rounds=23, interval=10**6)
    latency = np.arange(1.0, 31.0)
    state, t = profiled(policy, 30, 6, latency)
    assert policy.credits(state).tolist() == [5] * 5
    spent = np.zeros(5, dtype=int)
    for round_number in range(1, 26):
        cohort = policy.select(state, context(t, 6, 30), np.random.default_rng(t))
        tier = int(cohort[0] // 6)
        assert spent[tier] < 5, "no tier is chosen without a credit"
        policy.observe(state, context(t, 6, 30), seen(cohort, latency))
        spent[tier] += 1
        t += 1
        assert state.spent.tolist() == spent.tolist()
        if round_number < 25:
            assert policy.credits(state).tolist() == (5 - spent).tolist()
    assert spent.tolist() == [5] * 5
    assert policy.credits(state).tolist() == [5] * 5, "all are spent: they start over"


def test_a_tier_without_credits_is_not_drawn():
    policy = TiFL(tau_max=100.0, rounds=10)  # two credits each
    state, _ = profiled(policy, 30, 6, np.arange(1.0, 31.0))
    tier = np.arange(30) // 6
    state.spent[:] = [2, 2, 0, 2, 2]
    draws = {policy.draw_tier(state, tier, 6, np.random.default_rng(s)) for s in range(50)}
    assert draws == {2}


def test_probabilities_change_every_interval():
    policy = TiFL(tau_max=100.0, rounds=1000, interval=10)
    latency, loss = np.arange(1.0, 31.0), np.repeat([0.3, 0.9, 0.1, 0.5, 0.7], 6)
    state, start = profiled(policy, 30, 6, latency, loss)
    for t in range(start, 13):
        cohort = policy.select(state, context(t, 6, 30), np.random.default_rng(t))
        policy.observe(state, context(t, 6, 30), seen(cohort, latency, loss))
        if t < 10:
            assert state.probability.tolist() == [0.2] * 5
        else:
            # losses .3 .9 .1 .5 .7: the largest gets 5/15, the smallest 1/15
            assert state.probability * 15 == pytest.approx([2, 5, 1, 3, 4])
    loss = loss[::-1]
    for t in range(13, 100):
        cohort = policy.select(state, context(t, 6, 30), np.random.default_rng(t))
        policy.observe(state, context(t, 6, 30), seen(cohort, latency, loss))
        if t < 20:
            assert state.probability * 15 == pytest.approx([2, 5, 1, 3, 4]), "not before round 20"
    assert state.probability * 15 == pytest.approx([4, 3, 1, 5, 2])


def test_tiers_are_equally_likely_until_they_have_losses():
    policy = TiFL(tau_max=100.0, rounds=50, interval=2)
    latency = np.arange(1.0, 21.0)
    state, t = profiled(policy, 20, 4, latency, loss=latency)
    assert t > policy.interval, "the probabilities were due while everyone was profiled"
    assert state.probability.tolist() == [0.2] * 5
    for later in (t, t + 1):
        cohort = policy.select(state, context(later, 4, 20), np.random.default_rng(0))
        policy.observe(state, context(later, 4, 20), seen(cohort, latency, loss=latency))
    assert state.probability.argmax() == 4, "the slowest tier has the largest losses"


def test_tiers_are_drawn_as_the_probabilities_say():
    policy, draws = TiFL(tau_max=100.0, rounds=1000), 6000
    state, _ = profiled(policy, 30, 6, np.arange(1.0, 31.0))
    state.probability[:] = p = np.array([2, 5, 1, 3, 4]) / 15
    rng, hits = np.random.default_rng(8), np.zeros(5)
    for _ in range(draws):
        hits[policy.draw_tier(state, np.arange(30) // 6, 6, rng)] += 1
    assert np.all(np.abs(hits / draws - p) < 4 * np.sqrt(p * (1 - p) / draws))


def test_rank_probabilities_and_tier_losses():
    assert rank_probabilities(np.array([0.1, 0.2, 0.3, 0.4, 0.5])) * 15 == pytest.approx(
        [1, 2, 3, 4, 5]
    )
    assert rank_probabilities(np.array([1.0, -np.inf])) == pytest.approx([2 / 3, 1 / 3])
    state = TiFL(tau_max=1.0, rounds=1, tiers=3).init(4)
    state.tier[:], state.loss[:] = [0, 0, 2, NO_TIER], [1.0, 3.0, np.nan, 9.0]
    assert tier_losses(state).tolist() == [2.0, -np.inf, -np.inf]


def test_newcomers_are_profiled_and_then_belong_to_a_tier():
    policy = TiFL(tau_max=100.0, rounds=1000)
    latency = np.append(np.arange(1.0, 31.0), [2.5, 99.0])
    state, t = profiled(policy, 30, 6, latency)
    cohort = policy.select(state, context(t, 6, 30), np.random.default_rng(0))
    policy.observe(state, context(t, 6, 30), seen(cohort, latency))
    grown = policy.init(32)
    for name in ("selected", "observed", "mean", "loss", "tier"):
        getattr(grown, name)[:30] = getattr(state, name)
    grown.formed, grown.bound_s[:] = True, state.bound_s
    cohort = policy.select(grown, context(t + 1, 6, 32), np.random.default_rng(1))
    assert {30, 31} <= set(cohort.tolist())
    assert len(set((cohort[:4] // 6).tolist())) == 1, "the other places go to one tier"
    policy.observe(grown, context(t + 1, 6, 32), report({}, chosen=cohort))
    assert grown.tier[30:].tolist() == [4, 4], "silent so far: the slowest tier"
    policy.observe(grown, context(t + 1, 6, 32), report({30: 2.5}, chosen=[], losses={30: 1.0}))
    assert grown.tier[30:].tolist() == [0, 4]


def test_tiers_are_cut_anew_every_interval():
    # two tiers, m = 1; clients 0 .. 3 take 1 .. 4 s, then client 0 takes 9 s
    policy = TiFL(tau_max=10.0, rounds=1000, tiers=2, interval=10)
    state, latency = policy.init(4), np.arange(1.0, 5.0)
    for t, k in enumerate((0, 1, 2, 3, 0), start=1):
        policy.observe(state, context(t, 1, 4), seen([k], latency))
    assert state.tier.tolist() == [0, 0, 1, 1]
    latency[0] = 9.0
    for t in range(6, 11):
        policy.observe(state, context(t, 1, 4), seen([0], latency))
        if t == 7:  # mean (1 + 1 + 9 + 9) / 4 = 5 is beyond the bound of 3 s, the others stay
            assert state.tier.tolist() == [1, 0, 1, 1]
    # round 10: means 47/7, 2, 3, 4, so that client 2 is one of the two fastest now
    assert state.tier.tolist() == [1, 0, 0, 1]
    assert state.bound_s == pytest.approx([4.0])


def test_a_tier_with_too_few_available_clients_is_passed_over():
    policy = TiFL(tau_max=100.0, rounds=1000)
    state, t = profiled(policy, 30, 6, np.arange(1.0, 31.0))
    here = context(t, 4, 30, available=[0, 1, 2, 12, 13, 14, 15, 16, 25])
    for s in range(30):
        assert set(policy.select(state, here, np.random.default_rng(s)) // 6) == {2}
    scattered = context(t, 4, 30, available=[0, 1, 7, 8, 19, 20, 25, 26])
    for s in range(30):
        tiers = sorted(policy.select(state, scattered, np.random.default_rng(s)) // 6)
        assert tiers in ([0, 0, 1, 1], [3, 3, 4, 4]), "a tier of two, and the nearest other one"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tau_max": 0}, "tau_max must be a finite number above 0, got 0"),
        ({"rounds": 0}, "rounds must be a whole number of at least 1, got 0"),
        ({"tiers": 0}, "tiers must be a whole number of at least 1, got 0"),
        ({"interval": 1.5}, "interval must be a whole number of at least 1, got 1.5"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        TiFL(**({"tau_max": 9.0, "rounds": 10} | settings))


def test_means_that_no_latency_can_have_are_refused():
    state, _ = profiled(TiFL(tau_max=100.0, rounds=50), 20, 4, np.arange(1.0, 21.0))
    state.check()
    state.mean[3] = 1e100
    with pytest.raises(InvalidInput, match="below 0 s"):
        state.check()
