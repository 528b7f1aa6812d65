"""CS-UCB: worked cases."""

import pytest
from policy_rounds import drive

from bsfl.policies import CsUcb, CsUcbQ


def test_rounds_by_hand():
    driver = drive(CsUcb(tau_max=10.0), 3, 2)
    driver.run_round({0: 1.0, 1: 5.5})
    assert driver.state.mean == pytest.approx([0.9, 0.45, 0.0])
    assert driver.select().tolist() == [0, 2], "the unseen client first, then the better mean"
    driver.run_round({0: 1.4, 2: 6.0})
    assert driver.state.mean == pytest.approx([0.88, 0.45, 0.4])
    # t = 3, m = 1: 0.88 + sqrt(2 ln 3 / 2) = 1.928; 0.45 + sqrt(2 ln 3) = 1.932; 0.4 + 1.482 = 1.882
    assert driver.select(target_responses=1).tolist() == [1]
    assert driver.select(target_responses=1, available=[0, 2]).tolist() == [0]
    driver.run_round({1: 30.0})
    assert driver.state.mean[1] == pytest.approx(0.225), "beyond tau_max earns 0, not less"


@pytest.mark.parametrize(("policy", "slow"), [(CsUcb, 5.0), (CsUcbQ, 8.0)])
def test_less_exploration_lets_speed_count_earlier(policy, slow):
    # round 3, selected twice and once. CS-UCB: 0.8 + sqrt(2 ln 3 / 2) = 1.85 is below
    # 0.5 + sqrt(2 ln 3) = 1.98, with a hundredth 0.90 is above 0.65. CS-UCB-Q: both indices are
    # cut to 1 and the queue decides, with a hundredth they are 0.90 and 0.35
    for exploration, expected in ((1.0, 1), (0.01, 0)):
        driver = drive(policy(tau_max=10.0, exploration=exploration), 2, 1)
        driver.run_round({0: 2.0, 1: slow}, target_responses=2)
        driver.run_round({0: 2.0})
        assert driver.select().tolist() == [expected]


def test_indices_count_invitations_not_responses():
    # t = 3, m = 1: client 1 did not respond in round 2. With c_1 = 2 its index is
    # 0.5 + sqrt(2 ln 3 / 2) = 1.55, below 0.4 + sqrt(2 ln 3) = 1.88; with c_1 = 1 it would be 1.98
    driver = drive(CsUcb(tau_max=10.0), 2, 1)
    driver.run_round({0: 6.0, 1: 5.0}, target_responses=2)
    driver.run_round({}, cohort=[1])
    assert driver.state.mean == pytest.approx([0.4, 0.5])
    assert driver.select().tolist() == [0]
