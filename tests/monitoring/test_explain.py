"""Why a client was selected or not: the numbers are what forcing the client would change."""

from itertools import combinations

import numpy as np
import pytest

from attacks import of_long_form
from bsfl import (
    BSFL,
    Discounted,
    Lognormal,
    Observation,
    Pace,
    Scheduler,
    SlidingWindow,
    UCBIndex,
    UniformRandom,
)
from bsfl.errors import UnknownClient
from bsfl.monitoring.words import figure

POLICIES = (
    Pace(),
    Pace(fairness=1.0),
    Pace(min_participation=0.5),
    Pace(tau_max=30.0),
    BSFL(alpha=5.0),
    BSFL(alpha=1.0, index=UCBIndex(confidence_width="none")),
    BSFL(alpha=3.0, index=Lognormal()),
    BSFL(alpha=2.0, memory=SlidingWindow(4)),
    BSFL(alpha=2.0, memory=Discounted(0.5), generalization="opportunity"),
)


def random_life(rng, policy):
    """Return a scheduler some rounds old, in the middle of one, and its clients."""
    k = int(rng.integers(4, 11))
    scheduler = Scheduler(
        policy,
        cohort_size=int(rng.integers(1, min(4, k - 1) + 1)),
        over_selection=float(rng.choice([1.0, 1.5])),
        seed=int(rng.integers(1000)),
    )
    clients = [f"c{i}" for i in range(k)]
    scheduler.join(clients)
    speed = np.exp(rng.normal(1.0, 1.0, k))
    for _ in range(int(rng.integers(0, 14))):
        here = [c for c in clients if rng.random() < 0.9]
        cohort = scheduler.select(here)
        scheduler.observe({c: result(rng, speed[int(c[1:])]) for c in cohort if rng.random() < 0.9})
        if scheduler.in_flight and rng.random() < 0.3:
            scheduler.observe({scheduler.in_flight[0]: result(rng, 5.0)})  # perhaps late
    return scheduler, clients, speed


def result(rng, seconds):
    draw = rng.random()
    if draw < 0.1:
        return Observation(outcome="failed")
    if draw < 0.2:
        return Observation(latency_s=40.0, outcome="timeout")
    latency_s = float(seconds * np.exp(rng.normal(0.0, 0.3)))
    return Observation(latency_s=latency_s, loss=float(rng.uniform(0.5, 2.0)))


def best(u, g, m, alpha, *, has=None, lacks=None):
    """Return the largest objective over all cohorts that have a client, or lack one."""
    cohorts = (set(one) for one in combinations(range(len(u)), m))
    allowed = [list(one) for one in cohorts if lacks not in one and one >= {has} - {None}]
    return max(u[one].min() + alpha * g[one].mean() for one in allowed)


def check_life(rng, policy):
    """Check the explanations of all clients in one state; return how many had numbers."""
    scheduler, clients, speed = random_life(rng, policy)
    here = [c for c in clients if rng.random() < 0.95]
    cohort = scheduler.select(here)
    reported = [c for c in cohort if rng.random() < 0.7]
    scheduler.observe({c: result(rng, speed[int(c[1:])]) for c in reported})  # the state moves on
    selection, _ = scheduler._engine.selection
    u, g, alpha = selection.u, selection.g, selection.alpha
    m = len(selection.clients) - len(selection.reserved)
    n = 0
    for client in clients:
        found = scheduler.explain(client)
        assert (found.selected, found.round) == (client in cohort, scheduler.round)
        assert str(found).startswith(f"{client} was {'' if found.selected else 'not '}selected")
        if found.unit in (None, "value"):
            continue
        n += 1
        if not np.isfinite(u).all():
            continue
        at = int(np.searchsorted(selection.candidates, clients.index(client)))
        free = best(u, g, m, alpha)
        forced = best(u, g, m, alpha, **({"lacks": at} if found.selected else {"has": at}))
        close = {"rel": 1e-9, "abs": 1e-9 * max(1.0, abs(found.objective))}
        numbers = found.objective, found.alternative, found.difference, found.cost - found.gain
        assert numbers == pytest.approx((free, forced, free - forced, free - forced), **close)
        assert found.difference >= -close["abs"]
        for number in (found.cost, found.gain):  # what is not next to nothing stands in the text
            if abs(number) > 1e-6 * max(1.0, alpha * np.abs(g).max()):
                assert figure(abs(number)) in found.text, found.text
    return n


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize("n_states", [6, pytest.param(of_long_form(110), marks=pytest.mark.attack)])
def test_the_text_claims_what_forcing_the_client_changes(policy, n_states):
    rng = np.random.default_rng(7)
    n = sum(check_life(rng, policy) for _ in range(n_states))
    assert n > 1.6 * n_states, "most states have something to weigh"


def trained():
    scheduler = Scheduler(Pace(fairness=1.0), cohort_size=2)
    clients = ["ann", "bob", "cem", "dan", "eve"]
    for _ in range(25):
        cohort = scheduler.select(clients)
        scheduler.observe({c: 40.0 if c == "eve" else 2.0 + clients.index(c) for c in cohort})
    return scheduler, clients


def by_speed(solver="exact"):
    """Return a scheduler with one place that weighs speed alone, by the indices 1, 1/2, 1/3, 1/4."""
    index = UCBIndex(confidence_width="none")
    policy = BSFL(alpha=0.0, tau_min=1.0, index=index, solver=solver)
    scheduler = Scheduler(policy, cohort_size=1)
    for _ in range(6):
        scheduler.observe({c: 1.0 + c for c in scheduler.select(range(4))})
    return scheduler


def test_the_sentence_for_a_slow_client():
    scheduler, clients = trained()
    cohort = scheduler.select(clients)
    found, row = scheduler.explain("eve"), scheduler.client("eve")
    (left_out,) = found.leaving
    assert left_out in cohort
    assert found.entering == ("eve",)
    assert str(found) == (
        f"eve was not selected in round 26: the best cohort with it would be {figure(found.cost)} s "
        f"slower and worth {figure(found.gain)} s more, with {left_out} left out; its expected "
        f"latency is {figure(found.latency_s)} s (80 % of its responses come in "
        f"{figure(row['low_s'])} - {figure(row['high_s'])} s)"
    )


def test_the_sentence_for_a_speed_index_by_hand():
    scheduler = by_speed()
    assert scheduler.select(range(4)) == [0]
    found = scheduler.explain(2)
    assert (found.unit, found.cost, found.gain) == ("index", pytest.approx(2 / 3), 0.0)
    assert (found.objective, found.alternative) == (1.0, pytest.approx(1 / 3))
    assert str(found) == (
        "2 was not selected in round 7: the best cohort with it would be 0.667 slower and worth as "
        "much, with 0 left out; its speed index is 0.333"
    )
    found = scheduler.explain(0)
    assert (found.cost, found.leaving, found.entering) == (0.5, (0,), (1,))
    assert str(found) == (
        "0 was selected in round 7: the best cohort without it would be 0.5 slower and worth as "
        "much, with 1 in it; its speed index is 1"
    )


def test_a_custom_solver_may_miss_the_best_cohort():
    scheduler = by_speed(lambda u, g, m, alpha, rng: np.argsort(u)[:m])
    assert scheduler.select(range(4)) == [3]
    found = scheduler.explain(3)
    assert found.difference < 0
    assert "the solver missed the better cohort" in found.text


@pytest.mark.parametrize("policy", [UniformRandom(), Pace(), BSFL()])
def test_the_sentence_where_nothing_was_weighed(policy, tmp_path):
    scheduler = Scheduler(policy, cohort_size=2)
    scheduler.join(["ann", "bob", "cem"])
    assert str(scheduler.explain("ann")) == "no round has been opened yet"
    scheduler.select(["ann", "bob"])
    scheduler.join(["dan"])
    assert str(scheduler.explain("ann")) == (
        "ann was selected in round 1: all 2 available clients were selected"
    )
    for client in ("cem", "dan"):
        assert str(scheduler.explain(client)) == (
            f"{client} was not selected in round 1: it was not one of the 2 available clients"
        )
    scheduler.save(tmp_path / "s")
    loaded = Scheduler.load(tmp_path / "s").explain("ann")
    assert loaded.selected
    assert "loaded from a file" in loaded.text
    with pytest.raises(UnknownClient):
        scheduler.explain("zoe")


class First(Pace):
    def select(self, state, context, rng):
        return context.available[: context.n_invited]


@pytest.mark.parametrize("policy", [UniformRandom(), First()])
def test_a_policy_that_does_not_report_what_it_weighs(policy):
    scheduler = Scheduler(policy, cohort_size=2)
    (client, *_) = scheduler.select(["ann", "bob", "cem"])
    found = scheduler.explain(client)
    assert found.selected
    assert str(found) == (
        f"{client} was selected in round 1: {type(policy).__name__} selected 2 of 3 available "
        "clients and does not report how it weighs them"
    )
    assert found.difference is found.unit is None


def test_clients_in_flight_were_not_available():
    scheduler = Scheduler(BSFL(), cohort_size=1, lifetime_s=60.0, max_open_rounds=2)
    (first,) = scheduler.select(["ann", "bob", "cem"], now_s=0.0)
    scheduler.select(now_s=1.0)
    assert "it was not one of the 2 available clients" in str(scheduler.explain(first))


def test_unseen_clients_come_first_in_bsfl():
    scheduler = Scheduler(BSFL(alpha=1.0), cohort_size=2)
    first = scheduler.select(["ann", "bob"])
    scheduler.observe(dict.fromkeys(first, 1.0))
    second = scheduler.select(["ann", "bob", "cem"])
    assert "had never been selected" in str(scheduler.explain("cem"))
    old = next(c for c in first if c in second)
    assert scheduler.explain(old).unit == "index"
    scheduler.observe(dict.fromkeys(second, 1.0))
    scheduler.select(["ann", "bob", "cem", "dan", "eve"])
    assert "took all places" in str(scheduler.explain("ann"))
    assert "it had never" not in str(scheduler.explain("dan"))  # it was weighed against eve


def test_what_does_not_concern_a_selection_leaves_its_explanation():
    scheduler, clients = trained()
    scheduler.join(["away"])
    scheduler.select(clients)
    before = scheduler.explain("eve")
    with pytest.raises(ValueError, match="cohort_size must be"):
        scheduler.select(clients, cohort_size=9)
    scheduler.forget(["away"])
    assert scheduler.explain("eve") == before
    scheduler.forget(["ann"])
    assert "clients were forgotten" in str(scheduler.explain("eve"))


def test_it_explains_the_round_that_was_opened_last():
    scheduler, clients = trained()
    scheduler.max_open_rounds = 2
    scheduler.select(clients[:4])
    second = scheduler.select(clients)
    scheduler.close(26)
    found = scheduler.explain(second[0])
    assert (found.round, found.selected) == (27, True)
