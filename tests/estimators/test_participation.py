"""Participation targets: they are held by an alpha that is adapted."""

import numpy as np
import pytest

from bsfl import (
    BSFL,
    Discounted,
    Lognormal,
    MaxGini,
    MinParticipation,
    Scheduler,
    SlidingWindow,
    UCBIndex,
    UniformRandom,
)
from bsfl._core.events import Join, Leave
from bsfl.errors import InvalidInput
from bsfl.estimators.fairness import gini
from bsfl.estimators.participation import LearnedWeight, participation_ratios
from bsfl.experiments.clients_spec import Clients
from bsfl.simulation import simulate
from bsfl.testing import PolicyDriver
from saved_state import saved_state

K, M = 200, 10
PHONES = Clients(n_clients=K, tau_min=2.0, tau_max=180.0, latency={"population": "phones"})
BERNSTEIN = UCBIndex(confidence_width="bernstein")
NO_WIDTH = UCBIndex(confidence_width="none")


def run_phones(policy, rounds=600, seed=0):
    """Return participation ratios after every round, and the time that all rounds took."""
    records = list(simulate(policy, PHONES.build(seed), cohort_size=M, rounds=rounds, seed=seed))
    counts = np.cumsum([np.bincount(r.cohort, minlength=K) for r in records], axis=0)
    fair = np.arange(1, rounds + 1)[:, np.newaxis] * M / K
    return counts / fair, records[-1].clock_s


@pytest.mark.parametrize("minimum", [0.5, 0.8])
@pytest.mark.parametrize("index", [BERNSTEIN, Lognormal(quantile=0.5, optimism=1.0)])
def test_the_minimum_participation_is_held(minimum, index):
    ratios, _ = run_phones(BSFL(alpha=MinParticipation(minimum), index=index))
    assert ratios[120:].min() >= minimum - 0.02


def test_the_gini_coefficient_is_held():
    ratios, _ = run_phones(BSFL(alpha=MaxGini(0.1), index=NO_WIDTH))
    assert 0.05 < gini(ratios[-1]) <= 0.11


def adapted(target, invitations, t, alpha=0.0):
    """Return alpha after round t of four clients that were available in all rounds, m = 2."""
    driver = PolicyDriver(UniformRandom(), n_clients=4, target_responses=2)
    driver.task.round, driver.task.invitations[:4] = t - 1, invitations
    driver.task.fair_count[:4] = t * 2 / 4
    state = LearnedWeight(alpha=alpha)
    target.adapt(state, driver.context())
    return state.alpha


def test_alpha_grows_below_the_minimum_and_shrinks_above():
    counts = [50, 50, 50, 20]  # fair: 50, and 42.5 of the 170 invitations; 20 / 42.5 = 0.47
    start = 2 * 4 / 2
    assert adapted(MinParticipation(0.8), counts, 100) == pytest.approx(1.15 * start)
    assert adapted(MinParticipation(0.2), counts, 100) == pytest.approx(start / 1.03)
    assert adapted(MinParticipation(0.8), counts, 100, alpha=5.0) == pytest.approx(1.15 * 5.0)
    assert adapted(MinParticipation(0.8), counts, 4, alpha=5.0) == 5.0, "too early to correct"


def test_new_clients_count_from_their_first_round_and_those_that_left_not_at_all():
    driver = PolicyDriver(UniformRandom(), n_clients=3, target_responses=2)
    driver.task.round, driver.task.fair_count[:3] = 90, 90 * 2 / 3
    driver.engine.run(Join(n_new=1))
    driver.engine.run(Leave(clients=np.array([2])))
    driver.task.round = 99
    driver.task.invitations[:4], driver.task.fair_count[:4] = [50, 50, 0, 5], [50, 50, 40, 5]
    # 5 of 5 and 50 of 50: the same
    assert participation_ratios(driver.context()).tolist() == [1.0, 1.0, 1.0]
    assert MinParticipation(0.5).excess(np.ones(3), n_passes=100 / 1.5) > 0


def test_participation_ratios_by_hand():
    # 12 invitations, one of which was dropped, so 11 count. Clients 0 and 1: fair 4 each, client 2
    # fair 3, client 3 was available too rarely; 11 = 11/11 per fair count
    driver = PolicyDriver(UniformRandom(), n_clients=4, target_responses=1)
    driver.task.round = 12
    driver.task.invitations[:4], driver.task.dropped[:4] = [6, 4, 2, 0], [0, 1, 0, 0]
    driver.task.fair_count[:4] = [4, 4, 3, 0]
    assert participation_ratios(driver.context()) == pytest.approx([6 / 4, 3 / 4, 2 / 3])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MinParticipation(1.2), "share must be"),
        (lambda: MaxGini(-0.1), "limit must be"),
        (lambda: BSFL(alpha=MinParticipation(0.8), generalization="loss"), "for equal shares"),
        (lambda: BSFL(alpha=MaxGini(0.1), generalization="weighted"), "for equal shares"),
        (lambda: BSFL(alpha="min-participation"), "alpha must be a finite number"),
        (lambda: Discounted(1.5), "gamma must be"),
        (lambda: SlidingWindow(1), "window must be"),
        (lambda: Lognormal(quantile=1.0), "quantile must be"),
        (lambda: Lognormal(optimism=-1.0), "optimism must be"),
        (lambda: BSFL(index=SlidingWindow(10)), r"index must be UCBIndex\(...\) or Lognormal"),
        (lambda: BSFL(index=Lognormal), "index must be UCBIndex"),
        (lambda: BSFL(memory=UCBIndex()), r"memory must be CumulativeMean\(...\) or Discounted"),
    ],
)
def test_wrong_components_are_rejected(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def minimum_08(n_clients, cohort_size=5, **settings):
    """Return a scheduler of clients that are to have 80 % of their fair count."""
    policy = BSFL(alpha=MinParticipation(0.8), index=BERNSTEIN)
    scheduler = Scheduler(policy, cohort_size=cohort_size, **settings)
    scheduler.join(range(n_clients))
    return scheduler


def run(scheduler, rounds):
    for _ in range(rounds):
        scheduler.observe({client: 1.0 + client for client in scheduler.select()})


def invitations(scheduler):
    return np.array([row["invitations"] for row in scheduler.table()])


@pytest.mark.parametrize("change", ["join and leave", "leave", "all leave"])
def test_after_clients_changed_in_an_open_round_it_resumes_from_its_file(tmp_path, change):
    scheduler = minimum_08(6, cohort_size=2, clock=lambda: 0.0)  # files hold ages of rounds
    run(scheduler, 20)
    cohort = scheduler.select()
    if change == "join and leave":
        scheduler.join([10])
    scheduler.leave({"join and leave": [5], "leave": [0, 1, 2], "all leave": range(6)}[change])
    scheduler.save(tmp_path / "s")
    loaded = Scheduler.load(tmp_path / "s", clock=lambda: 0.0)
    for one in (scheduler, loaded):
        one.observe(dict.fromkeys(cohort, 1.0))
    assert loaded.state.weight.alpha == scheduler.state.weight.alpha
    assert saved_state(loaded) == saved_state(scheduler)


def test_alpha_follows_cohorts_of_changing_size():
    scheduler = minimum_08(50)
    for t in range(600):
        cohort = scheduler.select(cohort_size=10 if t % 3 == 0 else None)
        scheduler.observe({k: 1.0 + k for k in cohort})
    assert 0.1 < scheduler.state.weight.alpha < 50, "a constant size leads to 2"
    selected = invitations(scheduler)
    assert selected.min() / selected.mean() > 0.78


def test_alpha_follows_a_population_that_shrinks():
    scheduler = minimum_08(100)
    run(scheduler, 600)
    scheduler.leave(range(50))
    run(scheduler, 400)
    assert scheduler.state.weight.alpha < 50, "not its upper limit, 100,000"
    stayed = invitations(scheduler)[50:]
    assert stayed.min() / stayed.mean() > 0.78


def test_alpha_does_not_depend_on_the_number_of_reports():
    at_once, one_at_a_time = minimum_08(50), minimum_08(50)
    for _ in range(80):
        responses = {client: 1.0 + client for client in at_once.select()}
        at_once.observe(responses)
        assert one_at_a_time.select() == list(responses)
        for client, latency in responses.items():
            one_at_a_time.observe({client: latency})
        assert one_at_a_time.state.weight.alpha == at_once.state.weight.alpha
    assert at_once.state.weight.alpha not in (0.0, 20.0), "it has moved from its start, 2 K/m"
