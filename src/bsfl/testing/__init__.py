"""The contracts of policies and tasks, to be run on custom ones.

    from bsfl.testing import check_policy, check_task

    def test_my_policy():
        check_policy(LeastSelected())

`CHECKS` holds the checks of a policy by name, so that each can be a test of its own; a check raises
AssertionError. A policy with settings by client must have them for 40 clients. `PolicyDriver` runs
single rounds of a policy, with a forced cohort or the policy's own.
"""

from bsfl.testing.driver import PolicyDriver, contents, response
from bsfl.testing.policy import CHECKS, check_policy
from bsfl.testing.task import check_task

__all__ = [
    "CHECKS",
    "PolicyDriver",
    "check_policy",
    "check_task",
    "contents",
    "response",
]
