"""The genie: the paper's oracle, which knows the true mean speeds."""

import numpy as np
from policy_rounds import drive

from bsfl.estimators.indices import UCBIndex
from bsfl.policies import BSFL, Genie
from bsfl.testing import contents


def test_it_maximises_with_the_true_speeds():
    # m = 2: E{0,1} = 0.8 + g0 + g1 ..., with alpha / m = 1
    driver = drive(Genie(mean_speed=[0.9, 0.8, 0.2, 0.1], alpha=2.0), 4, 2)
    driver.task.round, driver.task.invitations[:4] = 10, [5, 5, 0, 0]
    # t = 11: g = 1/2 - 5/11 = 0.045 and 1/2: E{0,1} = 0.89, E{2,3} = 0.1 + 1.0 = 1.1
    assert driver.select().tolist() == [2, 3]
    assert contents(driver.state) == {}, "it learns nothing"


def test_it_equals_bsfl_that_has_learned_the_true_speeds():
    mean = np.random.default_rng(3).uniform(0.1, 1.0, 15)
    genie = drive(Genie(mean_speed=mean, alpha=4.0), 15, 4)
    bsfl = drive(BSFL(alpha=4.0, tau_min=1.0, index=UCBIndex(confidence_width="none")), 15, 4)
    bsfl.state.memory.observed[:], bsfl.state.memory.mean[:] = 1, mean
    for driver in (genie, bsfl):
        driver.task.round, driver.task.invitations[:15] = 4, 1
    for _ in range(5, 40):
        cohort = genie.select().tolist()
        assert cohort == bsfl.select().tolist()
        for driver in (genie, bsfl):
            driver.run_round({}, cohort=cohort)
