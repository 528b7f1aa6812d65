"""Why a client was chosen or not: what the text claims is what forcing the client would change."""

from itertools import combinations

import numpy as np
import pytest

from bsfl import (
    BSFL,
    Discounted,
    Lognormal,
    Means,
    Observation,
    Pace,
    Scheduler,
    UniformRandom,
    Windowed,
)
from bsfl.errors import UnknownClient
from bsfl.monitor.words import figure
from bsfl.policies import bsfl as bsfl_module
from bsfl.policies import pace as pace_module

POLICIES = (
    Pace(),
    Pace(evenness=1.0),
    Pace(least_share=0.5),
    Pace(tau_max=30.0),
    BSFL(alpha=5.0),
    BSFL(alpha=1.0, index=Means(radius="none")),
    BSFL(alpha=3.0, index=Lognormal()),
    BSFL(alpha=2.0, memory=Windowed(4)),
    BSFL(alpha=2.0, memory=Discounted(0.5), generalization="opportunity"),
)


def solved(monkeypatch):
    """Return a list that gets the problem of every call of the exact solver by a policy."""
    problems = []

    def pace(u, g, m, alpha):
        problems.append((u.copy(), g.copy(), m, alpha))
        return original(u, g, m, alpha)

    original = pace_module.solve_exact
    monkeypatch.setattr(pace_module, "solve_exact", pace)
    resolve = bsfl_module.SOLVERS.resolve

    class Solvers:
        known = bsfl_module.SOLVERS

        @staticmethod
        def resolve(name, solver):
            return lambda u, g, m, alpha, rng: (
                problems.append((u.copy(), g.copy(), m, alpha))
                or resolve(name, solver)(u, g, m, alpha, rng)
            )

    monkeypatch.setattr(bsfl_module, "SOLVERS", Solvers)
    return problems


def random_life(rng, policy):
    """Return a scheduler some rounds old, in the middle of one, and its fleet."""
    k = int(rng.integers(4, 11))
    scheduler = Scheduler(
        policy,
        cohort_size=int(rng.integers(1, min(4, k - 1) + 1)),
        invite=float(rng.choice([1.0, 1.5])),
        seed=int(rng.integers(1000)),
    )
    fleet = [f"c{i}" for i in range(k)]
    scheduler.join(fleet)
    speed = np.exp(rng.normal(1.0, 1.0, k))
    for _ in range(int(rng.integers(0, 14))):
        here = [c for c in fleet if rng.random() < 0.9]
        cohort = scheduler.select(here)
        scheduler.observe({c: answer(rng, speed[int(c[1:])]) for c in cohort if rng.random() < 0.9})
    return scheduler, fleet, speed


def answer(rng, seconds):
    draw = rng.random()
    if draw < 0.1:
        return Observation(outcome="failed")
    if draw < 0.2:
        return Observation(latency=40.0, outcome="timeout")
    outcome = "late" if draw < 0.25 else "ok"
    latency = float(seconds * np.exp(rng.normal(0.0, 0.3)))
    return Observation(latency=latency, outcome=outcome, loss=float(rng.uniform(0.5, 2.0)))


def best(u, g, m, alpha, *, has=None, lacks=None):
    """Return the largest objective over all cohorts that have a client, or lack one."""
    cohorts = (
        list(s)
        for s in combinations(range(len(u)), m)
        if (has is None or has in s) and (lacks is None or lacks not in s)
    )
    return max(u[s].min() + alpha * g[s].mean() for s in cohorts)


def check_life(rng, policy, problems):
    """Check what is claimed of every client in one state, and return how many claims had numbers."""
    scheduler, fleet, speed = random_life(rng, policy)
    here = [c for c in fleet if rng.random() < 0.95]
    problems.clear()
    cohort = scheduler.select(here)
    u, g, m, alpha = problems[-1] if problems else (None,) * 4
    told = [c for c in cohort if rng.random() < 0.7]
    scheduler.observe({c: answer(rng, speed[int(c[1:])]) for c in told})  # the state moves on
    n = 0
    for client in fleet:
        found = scheduler.explain(client)
        assert found.chosen == (client in cohort)
        assert found.t == scheduler.t
        assert str(found) == found.text
        assert found.text.startswith(f"{client} was {'' if found.chosen else 'not '}chosen")
        if found.unit in (None, "value"):
            continue
        n += 1
        choice = scheduler._learned.choice
        at = choice.place(fleet.index(client))
        assert np.array_equal(choice.u, u)
        assert np.array_equal(choice.g, g)
        assert (len(choice.weighed()), choice.alpha) == (m, alpha)
        forced = best(u, g, m, alpha, **({"lacks": at} if found.chosen else {"has": at}))
        if not np.isfinite(u).all():
            continue
        close = {"rel": 1e-9, "abs": 1e-9 * max(1.0, abs(found.objective))}
        assert found.objective == pytest.approx(best(u, g, m, alpha), **close)
        assert found.alternative == pytest.approx(forced, **close)
        assert found.difference == pytest.approx(best(u, g, m, alpha) - forced, **close)
        assert found.difference == pytest.approx(found.cost - found.gain, **close)
        assert found.difference >= -close["abs"]
        for number in (found.cost, found.gain):  # what is not next to nothing stands in the text
            if abs(number) > 1e-6 * max(1.0, alpha * np.abs(g).max()):
                assert figure(abs(number)) in found.text, found.text
    return n


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_the_text_claims_what_forcing_the_client_changes(policy, monkeypatch):
    problems, rng = solved(monkeypatch), np.random.default_rng(7)
    n = sum(check_life(rng, policy, problems) for _ in range(6))
    assert n > 10, "most states have something to weigh"


@pytest.mark.attack
def test_the_text_claims_what_forcing_the_client_changes_in_a_thousand_states(monkeypatch):
    problems, rng = solved(monkeypatch), np.random.default_rng(8)
    n = sum(check_life(rng, POLICIES[i % len(POLICIES)], problems) for i in range(1000))
    assert n > 3000


def taught():
    scheduler = Scheduler(Pace(evenness=1.0), cohort_size=2)
    fleet = ["ann", "bob", "cem", "dan", "eve"]
    for _ in range(25):
        cohort = scheduler.select(fleet)
        scheduler.observe({c: 40.0 if c == "eve" else 2.0 + fleet.index(c) for c in cohort})
    return scheduler, fleet


def test_the_words_for_a_slow_client():
    scheduler, fleet = taught()
    cohort = scheduler.select(fleet)
    assert "eve" not in cohort
    found = scheduler.explain("eve")
    assert found.unit == "s"
    assert found.cost > found.gain > 0
    assert "eve was not chosen in round 26: its latency, taken for" in found.text
    assert f"would have cost the round {figure(found.cost)} s" in found.text
    assert f"worth only {figure(found.gain)} s more than" in found.text
    assert "eve" in found.entering
    assert set(found.leaving) <= set(cohort)


@pytest.mark.parametrize("policy", [UniformRandom(), Pace(), BSFL()])
def test_honest_words_where_nothing_was_weighed(policy, tmp_path):
    scheduler = Scheduler(policy, cohort_size=2)
    scheduler.join(["ann", "bob", "cem"])
    assert str(scheduler.explain("ann")) == "no cohort was chosen yet"
    scheduler.select(["ann", "bob"])
    assert "all 2 that were available were taken" in str(scheduler.explain("ann"))
    assert "not one of the 2 that were available" in str(scheduler.explain("cem"))
    scheduler.join(["dan"])
    assert "not one of the 2" in str(scheduler.explain("dan"))
    scheduler.save(tmp_path / "s")
    loaded = Scheduler.load(tmp_path / "s").explain("ann")
    assert loaded.chosen
    assert "loaded from a file" in loaded.text
    with pytest.raises(UnknownClient):
        scheduler.explain("zoe")


def test_a_policy_that_does_not_tell():
    scheduler = Scheduler(UniformRandom(), cohort_size=2)
    (client, *_) = scheduler.select(["ann", "bob", "cem"])
    found = scheduler.explain(client)
    assert found.chosen
    assert "UniformRandom chose 2 of 3 available clients and does not tell" in found.text
    assert found.difference is found.unit is None


def test_clients_never_chosen_come_first_in_bsfl():
    scheduler = Scheduler(BSFL(alpha=1.0), cohort_size=2)
    first = scheduler.select(["ann", "bob"])
    scheduler.observe(dict.fromkeys(first, 1.0))
    second = scheduler.select(["ann", "bob", "cem"])
    assert "had never been chosen" in str(scheduler.explain("cem"))
    old = next(c for c in first if c in second)
    assert scheduler.explain(old).unit == "index"
    scheduler.observe(dict.fromkeys(second, 1.0))
    scheduler.select(["ann", "bob", "cem", "dan", "eve"])
    assert "took all places" in str(scheduler.explain("ann"))
    assert "it had never" not in str(scheduler.explain("dan"))  # it was weighed against eve


def test_an_annealing_solver_may_miss_the_best_and_says_so():
    def worst(u, g, m, alpha, rng):
        return np.argsort(u)[:m]

    scheduler = Scheduler(BSFL(alpha=0.0, index=Means(radius="none"), solver=worst), cohort_size=1)
    for _ in range(6):
        scheduler.observe({c: 1.0 + c for c in scheduler.select(range(4))})
    (chosen,) = scheduler.select(range(4))
    assert chosen == 3
    found = scheduler.explain(3)
    assert found.difference < 0
    assert "the solver missed the better cohort" in found.text


def test_a_derived_policy_with_a_select_of_its_own_is_asked_for_that():
    class First(Pace):
        def select(self, state, context, rng):
            return context.available[: context.cohort_size]

    scheduler = Scheduler(First(), cohort_size=2)
    assert [scheduler.select(range(6)) for _ in range(3)] == [[0, 1]] * 3
    assert "does not tell" in str(scheduler.explain(0))


def test_forgetting_others_leaves_the_explanation_and_forgetting_rivals_does_not():
    scheduler, fleet = taught()
    scheduler.join(["away"])
    scheduler.select(fleet)
    before = scheduler.explain("eve")
    scheduler.forget(["away"])
    assert scheduler.explain("eve") == before
    scheduler.forget(["ann"])
    assert "clients were forgotten" in str(scheduler.explain("eve"))


def test_a_refused_selection_leaves_the_explanation_of_the_round_before():
    scheduler, fleet = taught()
    scheduler.select(fleet)
    before = scheduler.explain("eve")
    with pytest.raises(ValueError, match="cohort_size must be"):
        scheduler.select(fleet, cohort_size=9)
    assert scheduler.explain("eve") == before
