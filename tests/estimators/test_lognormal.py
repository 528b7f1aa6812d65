"""The hierarchical model: what it predicts from features, few responses and many."""

import numpy as np
import pytest

from bsfl import BSFL, Lognormal, Pace, Scheduler
from bsfl._core.state import validate
from bsfl.errors import InvalidInput
from bsfl.estimators import lognormal
from bsfl.testing import PolicyDriver
from bsfl.types import Observation

K = 3000
RNG = np.random.default_rng(5)
FEATURES = np.column_stack([RNG.normal(20.0, 4.0, K), RNG.normal(-1.0, 0.01, K)])
THETA = np.array([0.1, -20.0])
OWN = 0.3 * RNG.normal(size=K)
LEVEL = 1.0 + FEATURES @ THETA - 20.0 * 1.0 + OWN
NOISE = 0.15


def drive(policy, n_clients=K, m=100, **attributes):
    return PolicyDriver(policy, n_clients=n_clients, target_responses=m, **attributes)


def median(optimism, **settings):
    """Return BSFL that ranks clients by their median latency."""
    return BSFL(index=Lognormal(quantile=0.5, optimism=optimism), **settings)


def run_round(driver, clients):
    """Run a round in which these clients respond with latencies of the model."""
    latency = np.exp(LEVEL[clients] + NOISE * RNG.normal(size=len(clients)))
    driver.run_round(dict(zip(clients.tolist(), latency.tolist(), strict=True)))


def speeds(driver):
    return driver.policy.ucb(driver.state, driver.context())


@pytest.fixture(scope="module")
def posterior():
    driver = drive(median(1.0), features=FEATURES)
    for t in range(1, 11):
        run_round(driver, np.arange(100 * (t - 1), 100 * t))  # 1,000 of 3,000 respond once
    for _ in range(11, 31):
        run_round(driver, np.arange(100))  # and 100 of them twenty times more
    stats = driver.policy.memory.recall(driver.state.memory, np.arange(K), 31)
    return lognormal.predict(driver.state.index, driver.context().pool, np.arange(K), stats)


@pytest.mark.parametrize("policy", [Pace(), BSFL(index=Lognormal())])
def test_a_slowest_latency_that_cannot_be_is_rejected(policy):
    # a failure would count as ln 1e-300 = -691, whose square no sum of squares of latencies has
    state = policy.init(3)
    validate(state)
    state.slowest_s = 1e-300
    with pytest.raises(InvalidInput, match="slowest_s is smaller than a latency can be"):
        validate(state)


def test_unseen_clients_are_predicted_from_their_features(posterior):
    unseen = np.arange(1000, K)
    expected = LEVEL[unseen] - OWN[unseen]
    assert np.abs(posterior.mean[unseen] - expected).max() < 0.1
    errors = (LEVEL[unseen] - posterior.mean[unseen]) / np.sqrt(posterior.variance[unseen])
    assert errors.std() == pytest.approx(1.0, abs=0.1), "the variance is right"


def test_one_response_tells_something_and_many_nearly_all(posterior):
    error = np.abs(posterior.mean - LEVEL)
    often, once, never = error[:100].mean(), error[100:1000].mean(), error[1000:].mean()
    assert often < 0.05 < once < 0.7 * never
    assert posterior.variance[:100].max() < posterior.variance[100:1000].min()
    errors = (LEVEL - posterior.mean)[100:1000] / np.sqrt(posterior.variance[100:1000])
    assert errors.std() == pytest.approx(1.0, abs=0.12)


def test_the_noise_of_a_client_is_found(posterior):
    assert posterior.sigma[:100].mean() == pytest.approx(NOISE, rel=0.1)
    assert np.all(posterior.sigma[1000:] == posterior.sigma[-1]), "unseen clients: that of all"


def test_a_high_quantile_prefers_clients_with_a_small_variance():
    driver, rng = drive(median(0.0), n_clients=2, m=2), np.random.default_rng(0)
    for _ in range(60):
        driver.run_round({0: 10.0, 1: 9.5 * np.exp(rng.normal())})
    steady, jittery = speeds(driver)
    assert jittery == pytest.approx(steady, rel=0.35)
    driver.policy = BSFL(index=Lognormal(quantile=0.9, optimism=0.0))
    steady, jittery = speeds(driver)
    assert steady > 2 * jittery


def test_a_client_does_not_come_first_only_because_it_is_unseen():
    policy = median(0.0, alpha=0.0)
    driver, rng = drive(policy, features=FEATURES), np.random.default_rng(0)
    run_round(driver, rng.permutation(K)[:200])
    best = np.argsort(LEVEL - OWN)[:300]
    assert np.isin(driver.select(rng=rng), best).mean() > 0.9, "good features, observed or not"


def test_features_reach_the_policy_through_the_scheduler(tmp_path):
    scheduler = Scheduler(median(0.0, alpha=0.0), cohort_size=4)
    for i in range(40):
        scheduler.register(f"c{i}", features=[float(i), np.nan if i % 7 == 0 else 1.0])
    for _ in range(8):
        cohort = scheduler.select()
        scheduler.observe({c: float(np.exp(int(c[1:]) / 20)) for c in cohort})
    scheduler.save(tmp_path / "s")
    assert Scheduler.load(tmp_path / "s").select() == scheduler.select()
    scheduler.register("new", features=[-30.0, 1.0])
    assert "new" in scheduler.select(), "an unseen client with the best features"
    scheduler.join([f"d{i}" for i in range(100)])
    assert len(scheduler.select()) == 4, "those without features are average"


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([1.0], "same 2 features, got 1"),
        ([np.inf, 1.0], "numbers of at most 1e.12, or NaN where unknown, got inf"),
        ([[1.0, 2.0]], "one row of numbers"),
        ([], "one row of numbers"),
        (["wifi"], "features must"),
        ([[1.0], [2.0, 3.0]], "features must"),
        ([object()], "features must"),
    ],
)
def test_wrong_features_are_rejected_and_nothing_changes(features, message):
    scheduler = Scheduler(BSFL(), cohort_size=1)
    scheduler.register("a", features=[1.0, 2.0])
    with pytest.raises(InvalidInput, match=message):
        scheduler.register("b", features=features)
    assert scheduler.clients == ["a"]


def test_failures_and_missing_responses_look_slow():
    driver = drive(median(0.0), n_clients=4, m=4)
    reported = {
        0: Observation(latency_s=2.0),
        1: Observation(outcome="failed"),
        2: Observation(latency_s=9.0, outcome="timeout"),
    }
    for _ in range(3):
        driver.run_round(reported, cohort=range(4))
        speed = speeds(driver)
        assert np.isfinite(speed).all()
    assert speed[0] > 2 * max(speed[1], speed[2], speed[3])


def run(scheduler, rounds):
    for _ in range(rounds):
        scheduler.observe({client: 1.0 + client for client in scheduler.select()})


def test_failures_before_the_first_latency_are_never_fast():
    scheduler = Scheduler(median(1.0), cohort_size=2)
    scheduler.join(range(10))
    broken = None
    for _ in range(30):
        cohort = scheduler.select()
        broken = broken or list(cohort)
        failed = Observation(outcome="failed")
        scheduler.observe({k: failed if k in broken else 100.0 + k for k in cohort})
    selected = np.array([row["invitations"] for row in scheduler.table()])
    assert selected[broken].max() <= np.median(np.delete(selected, broken))


def test_features_may_come_after_the_first_responses():
    scheduler = Scheduler(median(1.0, alpha=100.0), cohort_size=2)
    scheduler.join(range(100))
    run(scheduler, 1)
    scheduler.join(range(100), features=np.log(1.0 + np.arange(100.0))[:, None])
    run(scheduler, 30)
    state = scheduler.state.index
    effect = np.linalg.solve(state.gram, state.moment)[1] / state.scale[0]
    assert effect == pytest.approx(1.0, abs=0.1), "ln tau is the feature itself"


def test_an_empty_report_and_unknown_features_teach_nothing():
    scheduler = Scheduler(median(1.0), cohort_size=2)
    scheduler.join(range(10), features=np.full((10, 1), np.nan))
    scheduler.observe({}, round=scheduler.select())
    run(scheduler, 10)
    assert scheduler.state.index.centre.tolist() == [0.0]
