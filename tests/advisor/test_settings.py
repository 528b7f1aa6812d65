"""The settings that are tried, and their code."""

import pytest

from bsfl.advisor.settings import Setting, can_evaluate, deadlines_from, first_settings, fitting
from bsfl.policies import POLICIES


@pytest.mark.parametrize("over_selection", [1.0, "auto"])
def test_every_policy_that_a_log_can_evaluate_is_tried_and_its_code_can_be_pasted(over_selection):
    plan = {"cohort_size": 5, "deadline_s": 60.0, "over_selection": over_selection}
    tried = first_settings(Setting(policy="random", **plan), 100, 0.75)
    policies = {one.policy for one in tried}
    assert policies == {one for one in POLICIES if can_evaluate(one)}
    assert {"pace", "bsfl", "random", "cs-ucb", "rbcs-f", "age"} <= policies
    assert not {"genie", "oort", "weighted"} & policies
    assert any(one.options == {"min_participation": 0.75} for one in tried)
    assert len({one.key for one in tried}) == len(tried)
    for one in tried:
        names = {}
        exec(one.code(), names)
        found = names["scheduler"]
        assert repr(found.policy) == repr(one.made())
        plan = found.plan
        assert (plan.target_responses, plan.over_selection) == (5, over_selection)
        assert (plan.deadline_s or found.policy.tau_max) == 60.0


def test_more_clients_than_there_are_are_not_invited():
    assert [fitting(6, n) for n in (6, 8, 12)] == [[1.0], [1.0, 1.3], [1.0, 1.3, "auto"]]


def test_deadlines_are_rounded_and_shorter_than_that_of_the_log():
    assert deadlines_from([*range(1, 101)], 110.0) == [110.0, 80.0, 95.0]
    assert deadlines_from([*range(1, 101)], 100.0) == [100.0, 80.0]
