"""The hierarchical model: what it predicts, and what it makes of few and of many answers."""

import numpy as np
import pytest

from bsfl import BSFL, Lognormal, Scheduler
from bsfl.errors import InvalidInput
from bsfl.estimation import lognormal
from bsfl.records import Observation, Report, Roster, RoundContext

K = 3000
RNG = np.random.default_rng(5)
FEATURES = np.column_stack([RNG.normal(20.0, 4.0, K), RNG.normal(-1.0, 0.01, K)])
THETA = np.array([0.1, -20.0])
OWN = 0.3 * RNG.normal(size=K)
LEVEL = 1.0 + FEATURES @ THETA - 20.0 * 1.0 + OWN
NOISE = 0.15
ROSTER = Roster(n_members=K, features=FEATURES)


def context(t, m=100):
    return RoundContext(t=t, available=np.arange(K), cohort_size=m, roster=ROSTER)


def hear(policy, state, t, clients):
    latency = np.exp(LEVEL[clients] + NOISE * RNG.normal(size=len(clients)))
    seen = {int(k): Observation(latency=float(x)) for k, x in zip(clients, latency, strict=True)}
    policy.observe(state, context(t), Report.of(seen, chosen=clients))


@pytest.fixture(scope="module")
def learned():
    policy = BSFL(index=Lognormal(quantile=0.5, optimism=1.0))
    state = policy.init(K)
    for t in range(1, 11):
        hear(policy, state, t, np.arange(100 * (t - 1), 100 * t))  # 1,000 of 3,000 are met once
    for t in range(11, 31):
        hear(policy, state, t, np.arange(100))  # and 100 of them twenty times more
    known = policy.memory.recall(state.memory, np.arange(K), 31)
    return state, lognormal.Judge(state.index, ROSTER)(np.arange(K), known)


def test_strangers_are_judged_by_their_features(learned):
    _, judged = learned
    strangers = np.arange(1000, K)
    expected = LEVEL[strangers] - OWN[strangers]
    assert np.abs(judged.mean[strangers] - expected).max() < 0.1
    errors = (LEVEL[strangers] - judged.mean[strangers]) / np.sqrt(judged.variance[strangers])
    assert errors.std() == pytest.approx(1.0, abs=0.1), "the width is honest"


def test_one_answer_says_something_and_many_say_nearly_all(learned):
    _, judged = learned
    wrong = np.abs(judged.mean - LEVEL)
    often, once, never = wrong[:100].mean(), wrong[100:1000].mean(), wrong[1000:].mean()
    assert often < 0.05 < once < 0.7 * never
    assert judged.variance[:100].max() < judged.variance[100:1000].min()
    errors = (LEVEL - judged.mean)[100:1000] / np.sqrt(judged.variance[100:1000])
    assert errors.std() == pytest.approx(1.0, abs=0.12)


def test_a_clients_own_noise_is_found(learned):
    _, judged = learned
    assert judged.sigma[:100].mean() == pytest.approx(NOISE, rel=0.1)
    assert np.all(judged.sigma[1000:] == judged.sigma[-1]), "strangers get the fleet's"


def test_a_quantile_prefers_the_steady():
    policy = {q: BSFL(index=Lognormal(quantile=q, optimism=0.0)) for q in (0.5, 0.9)}
    for q, one in policy.items():
        state = one.init(2)
        rng = np.random.default_rng(0)
        two = RoundContext(t=1, available=np.arange(2), cohort_size=2)
        for _ in range(60):
            noise = rng.normal()
            seen = {0: Observation(latency=10.0), 1: Observation(latency=9.5 * np.exp(noise))}
            one.observe(state, two, Report.of(seen, chosen=[0, 1]))
        steady, jittery = one.ucb(state, two)
        assert (steady > jittery) == (q == 0.9 or jittery < steady)
        if q == 0.9:
            assert steady > 2 * jittery
        else:
            assert jittery == pytest.approx(steady, rel=0.35)


def test_nobody_comes_first_only_because_nobody_has_met_it():
    policy = BSFL(index=Lognormal(quantile=0.5, optimism=0.0), alpha=0.0)
    state = policy.init(K)
    rng = np.random.default_rng(0)
    hear(policy, state, 1, rng.permutation(K)[:200])
    cohort = policy.select(state, context(2), rng)
    best = np.argsort(LEVEL - OWN)[:300]
    assert np.isin(cohort, best).mean() > 0.9, "those with good features, met or not"


def test_features_reach_the_policy_through_the_scheduler(tmp_path):
    scheduler = Scheduler(
        BSFL(index=Lognormal(quantile=0.5, optimism=0.0), alpha=0.0), cohort_size=4
    )
    for i in range(40):
        scheduler.register(f"c{i}", features=[float(i), np.nan if i % 7 == 0 else 1.0])
    for _ in range(8):
        cohort = scheduler.select()
        scheduler.observe({c: float(np.exp(int(c[1:]) / 20)) for c in cohort})
    scheduler.save(tmp_path / "s")
    assert Scheduler.load(tmp_path / "s").select() == scheduler.select()
    scheduler.register("new", features=[-30.0, 1.0])
    assert "new" in scheduler.select(), "a stranger with the best features"
    scheduler.join([f"d{i}" for i in range(100)])
    assert len(scheduler.select()) == 4, "those without features are average"


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([1.0], "same 2 features, got 1"),
        ([np.inf, 1.0], "numbers of at most 1e.12, or NaN where unknown, got inf"),
        ([[1.0, 2.0]], "one row of numbers"),
        ([], "one row of numbers"),
    ],
)
def test_wrong_features_are_refused_and_nothing_changes(features, message):
    scheduler = Scheduler(BSFL(), cohort_size=1)
    scheduler.register("a", features=[1.0, 2.0])
    with pytest.raises(InvalidInput, match=message):
        scheduler.register("b", features=features)
    assert scheduler.clients == ["a"]


def test_failures_and_silence_look_slow():
    policy = BSFL(index=Lognormal(quantile=0.5, optimism=0.0))
    state = policy.init(4)
    here = RoundContext(t=1, available=np.arange(4), cohort_size=4)
    seen = {
        0: Observation(latency=2.0),
        1: Observation(outcome="failed"),
        2: Observation(latency=9.0, outcome="timeout"),
    }
    for t in (1, 2, 3):
        policy.observe(state, here, Report.of(seen, chosen=np.arange(4)))
        speed = policy.ucb(state, RoundContext(t=t + 1, available=np.arange(4), cohort_size=4))
        assert np.isfinite(speed).all()
    assert speed[0] > 2 * max(speed[1], speed[2], speed[3])


def play(scheduler, rounds, latency=lambda client: 1.0 + client):
    for _ in range(rounds):
        scheduler.observe({client: latency(client) for client in scheduler.select()})


def test_failures_before_the_first_latency_are_never_fast():
    scheduler = Scheduler(BSFL(index=Lognormal(quantile=0.5, optimism=1.0)), cohort_size=2)
    scheduler.join(range(10))
    broken = None
    for _ in range(30):
        cohort = scheduler.select()
        broken = broken or cohort
        failed = Observation(outcome="failed")
        scheduler.observe({k: failed if k in broken else 100.0 + k for k in cohort})
    asked = scheduler.state.selected
    assert asked[broken].max() <= np.median(np.delete(asked, broken))


def test_features_may_come_after_the_first_answers():
    scheduler = Scheduler(
        BSFL(alpha=100.0, index=Lognormal(quantile=0.5, optimism=1.0)), cohort_size=2
    )
    scheduler.join(range(100))
    play(scheduler, 1)
    scheduler.join(range(100), features=np.log(1.0 + np.arange(100.0))[:, None])
    play(scheduler, 30)
    state = scheduler.state.index
    effect = np.linalg.solve(state.gram, state.moment)[1] / state.scale[0]
    assert effect == pytest.approx(1.0, abs=0.1), "ln tau is the feature itself"


@pytest.mark.filterwarnings("error")
def test_an_empty_report_and_unknown_features_teach_nothing():
    scheduler = Scheduler(BSFL(index=Lognormal(quantile=0.5, optimism=1.0)), cohort_size=2)
    scheduler.join(range(10), features=np.full((10, 1), np.nan))
    scheduler.select()
    scheduler.observe({})
    play(scheduler, 10)
    assert scheduler.state.index.centre.tolist() == [0.0]


@pytest.mark.parametrize("features", [["wifi"], [[1.0], [2.0, 3.0]], [object()]])
def test_features_that_are_no_numbers_are_refused(features):
    scheduler = Scheduler(BSFL(), cohort_size=2)
    with pytest.raises(InvalidInput, match="features must"):
        scheduler.register("a", features=features)
    assert scheduler.clients == []
