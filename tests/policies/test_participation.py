"""A floor is held by an alpha that finds itself."""

import numpy as np
import pytest

from bsfl import BSFL
from bsfl.errors import InvalidInput
from bsfl.experiments.worlds import FleetSpec
from bsfl.policies.memory import BsflState
from bsfl.policies.participation import Aim, gini, next_alpha
from bsfl.records import Roster, RoundContext
from bsfl.simulation import simulate
from bsfl.simulation.metrics import gini as gini_of_counts

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
@pytest.mark.parametrize("more", [{"radius": "bernstein"}, {"speeds": "lognormal"}])
def test_the_floor_is_held(floor, more):
    served, _ = shares(BSFL.for_participation(floor=floor, **more))
    assert served[120:].min() >= floor - 0.02


def test_a_lower_floor_is_quicker():
    times = [
        shares(BSFL.for_participation(floor=floor, radius="none"))[1] for floor in (0.2, 0.5, 0.9)
    ]
    assert times == sorted(times)
    assert times[0] < 0.9 * times[2]


def test_the_gini_is_held():
    served, _ = shares(BSFL.for_participation(max_gini=0.1, radius="none"))
    assert 0.05 < gini(served[-1]) <= 0.11


def state_with(selected):
    state = BsflState(len(selected))
    state.selected[:] = selected
    return state


def at(t, m=2, **roster):
    k = roster.pop("k", 4)
    who = Roster(n_members=k, **roster) if roster else None
    return RoundContext(t=t, available=np.arange(k), cohort_size=m, roster=who)


def test_alpha_grows_below_the_floor_and_shrinks_above():
    state = state_with([50, 50, 50, 20])  # fair: 50
    start = Aim("floor", 0.8).start(at(100), 4)
    assert start == 2 * 4 / 2
    assert next_alpha(Aim("floor", 0.8), state, at(100)) == pytest.approx(1.15 * start)
    lower = next_alpha(Aim("floor", 0.2), state, at(100))
    assert lower == pytest.approx(start / 1.03)
    state.alpha = 5.0
    assert next_alpha(Aim("floor", 0.8), state, at(100)) == pytest.approx(1.15 * 5.0)
    assert next_alpha(Aim("floor", 0.8), state, at(4)) == 5.0, "too early to tell"


def test_newcomers_and_those_who_left_are_judged_fairly():
    state = state_with([50, 50, 5, 0])
    late = at(
        100,
        since=np.array([1, 1, 91, 1]),
        members=np.array([True, True, True, False]),
        k=4,
    )
    aim = Aim("floor", 0.5)
    assert aim.excess(state, late) > 0, "5 of 10 rounds is no less than the others' 50 of 100"


def test_the_quick_gini_is_the_gini():
    counts = np.random.default_rng(0).poisson(3.0, 57)
    assert gini(counts.astype(float)) == pytest.approx(gini_of_counts(counts))
    assert gini(np.zeros(4)) == 0.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs floor or max_gini"),
        ({"floor": 1.2}, "floor must be"),
        ({"floor": 0.8, "max_gini": 0.1}, "both set alpha"),
        ({"max_gini": -0.1}, "max_gini must be"),
    ],
)
def test_what_cannot_be_asked_for(settings, message):
    with pytest.raises(InvalidInput, match=message):
        BSFL.for_participation(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"discount": 1.5}, "discount must be"),
        ({"window": 1}, "window must be"),
        ({"discount": 0.9, "window": 10}, "two ways to forget"),
        ({"quantile": 0.9}, "belongs to speeds='lognormal'"),
        ({"speeds": "lognormal", "quantile": 1.0}, "quantile must be"),
        ({"speeds": "medians"}, "speeds must be one of"),
        ({"optimism": -1.0}, "optimism must be"),
    ],
)
def test_wrong_options(settings, message):
    with pytest.raises(InvalidInput, match=message):
        BSFL(**settings)
